//! Instances for a schema: built along its keywords so that many are valid, and changed a little so that many are
//! just not.

use serde_json::{Map, Value, json};

use super::random::Random;
use super::tables::{FORMATS, KEYS, WORDS, number, scalar, value};

const MAX_DEPTH: usize = 6;

/// Tries to build what `schema`, a part of `root`, allows.
pub fn construct(root: &Value, schema: &Value, random: &mut Random, depth: usize) -> Value {
    let Value::Object(object) = schema else { return value(random, 1) };
    if depth > MAX_DEPTH {
        return scalar(random);
    }
    let merged = branch(root, object, random, depth);
    if let Some(only) = merged.get("const") {
        return only.clone();
    }
    if let Some(list) = merged.get("enum").and_then(Value::as_array).filter(|list| !list.is_empty()) {
        return random.pick(list).clone();
    }
    match kind(&merged, random) {
        "null" => Value::Null,
        "boolean" => json!(random.chance(50)),
        "integer" => whole(&merged, random),
        "number" => any_number(&merged, random),
        "string" => string(&merged, random),
        "array" => array(root, &merged, random, depth),
        "object" => members(root, &merged, random, depth),
        _ => value(random, 2),
    }
}

/// The keywords that a value is built along: those of the schema, with one way through each combination laid over.
fn branch(
    root: &Value,
    schema: &Map<String, Value>,
    random: &mut Random,
    depth: usize,
) -> Map<String, Value> {
    let mut merged = schema.clone();
    let mut parts: Vec<&Value> = Vec::new();
    for name in ["anyOf", "oneOf"] {
        let list = schema.get(name).and_then(Value::as_array);
        parts.extend(list.filter(|list| !list.is_empty()).map(|list| random.pick(list)));
    }
    parts.extend(schema.get("allOf").and_then(Value::as_array).into_iter().flatten());
    if random.chance(50) {
        parts.extend(schema.get("if").into_iter().chain(schema.get("then")));
    } else {
        parts.extend(schema.get("else"));
    }
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
    parts.extend(target.and_then(|pointer| root.pointer(pointer)));
    for part in parts {
        let Value::Object(part) = part else { continue };
        if depth > MAX_DEPTH {
            continue;
        }
        for (name, keyword) in branch(root, part, random, depth + 2) {
            match (merged.get_mut(&name), keyword) {
                (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
                (Some(Value::Array(old)), Value::Array(new)) if name == "required" => old.extend(new),
                (_, keyword) => {
                    merged.insert(name, keyword);
                }
            }
        }
    }
    merged
}

fn kind<'s>(schema: &'s Map<String, Value>, random: &mut Random) -> &'s str {
    match schema.get("type") {
        Some(Value::String(name)) => return name,
        Some(Value::Array(names)) if !names.is_empty() => {
            return random.pick(names).as_str().unwrap_or("null");
        }
        _ => {}
    }
    let has = |names: &[&str]| names.iter().any(|name| schema.contains_key(*name));
    let mut kinds = Vec::new();
    if has(&["properties", "required", "patternProperties", "additionalProperties", "minProperties"]) {
        kinds.push("object");
    }
    if has(&["items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"]) {
        kinds.push("array");
    }
    if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        kinds.push("number");
    }
    if has(&["pattern", "minLength", "maxLength", "format"]) {
        kinds.push("string");
    }
    if kinds.is_empty() || random.chance(20) { "any" } else { random.word(&kinds) }
}

/// A number at a bound or a step beside it.
fn any_number(schema: &Map<String, Value>, random: &mut Random) -> Value {
    let names = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
    let bounds: Vec<f64> = names.iter().filter_map(|name| schema.get(*name)?.as_f64()).collect();
    let step = schema.get("multipleOf").and_then(Value::as_f64);
    if bounds.is_empty() && step.is_none() {
        return number(random);
    }
    let base = if bounds.is_empty() { 0.0 } else { *random.pick(&bounds) };
    let near = base + *random.pick(&[0.0, 1.0, -1.0, 0.5, -0.5, 0.25, 2.0, -2.0, 0.01, -0.001, 10.0]);
    match step {
        Some(step) if random.chance(70) => tidy((near / step).round() * step),
        _ => tidy(near),
    }
}

fn whole(schema: &Map<String, Value>, random: &mut Random) -> Value {
    let near = any_number(schema, random).as_f64().unwrap_or(0.0);
    tidy(if random.chance(50) { near.ceil() } else { near.floor() })
}

/// Without the noise of binary fractions, and whole where it is.
fn tidy(number: f64) -> Value {
    let rounded = (number * 1000.0).round() / 1000.0;
    if rounded.fract() == 0.0 && rounded.abs() < 1e15 { json!(rounded as i64) } else { json!(rounded) }
}

fn string(schema: &Map<String, Value>, random: &mut Random) -> Value {
    if let Some(format) = schema.get("format").and_then(Value::as_str)
        && let Some((_, samples)) = FORMATS.iter().find(|(name, _)| *name == format)
    {
        return json!(random.word(samples));
    }
    let least = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0) as usize;
    let mut text = (random.word(&WORDS)).to_owned();
    while text.chars().count() < least && random.chance(90) {
        text.push_str(random.word(&["a", "b", "c", "1", "é"]));
    }
    if let Some(most) = schema.get("maxLength").and_then(Value::as_u64) {
        text = text.chars().take(most as usize + usize::from(random.chance(10))).collect();
    }
    json!(text)
}

fn array(root: &Value, schema: &Map<String, Value>, random: &mut Random, depth: usize) -> Value {
    let count = |name: &str| schema.get(name).and_then(Value::as_u64).map(|n| n as usize);
    let least = count("minItems").unwrap_or(0);
    let most = count("maxItems").unwrap_or(least + 3).max(least);
    let length = least + random.below((most - least + 1).min(4));
    let items = schema.get("items");
    let prefix = schema.get("prefixItems").or(items).and_then(Value::as_array);
    let rest = if schema.contains_key("additionalItems") { schema.get("additionalItems") } else { items };
    let mut list: Vec<Value> = Vec::new();
    for index in 0..length.min(8) {
        let own = prefix.and_then(|prefix| prefix.get(index)).or(rest);
        let own = if random.chance(25) { schema.get("contains").or(own) } else { own };
        list.push(match own {
            _ if index > 0 && random.chance(8) => list[0].clone(),
            Some(own) => construct(root, own, random, depth + 1),
            None => scalar(random),
        });
    }
    Value::Array(list)
}

fn members(root: &Value, schema: &Map<String, Value>, random: &mut Random, depth: usize) -> Value {
    let mut keys: Vec<String> = Vec::new();
    for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        if random.chance(95) {
            keys.extend(key.as_str().map(str::to_owned));
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    keys.extend(properties.into_iter().flatten().map(|(key, _)| key.clone()).filter(|_| random.chance(60)));
    if random.chance(25) {
        keys.push(random.word(&KEYS).to_owned());
    }
    let least = schema.get("minProperties").and_then(Value::as_u64).unwrap_or(0) as usize;
    while keys.len() < least && random.chance(90) {
        keys.push(random.word(&KEYS).to_owned());
    }
    let patterns = schema.get("patternProperties").and_then(Value::as_object);
    let mut object = Map::new();
    for key in keys {
        let named = properties.and_then(|properties| properties.get(&key));
        let pattern = patterns.and_then(|patterns| patterns.values().next()).filter(|_| random.chance(50));
        let own = named.or(pattern).or(schema.get("additionalProperties"));
        let member = match own {
            Some(own) => construct(root, own, random, depth + 1),
            None => scalar(random),
        };
        object.insert(key, member);
    }
    Value::Object(object)
}

/// The value with one thing changed somewhere.
pub fn mutate(original: &Value, random: &mut Random) -> Value {
    let mut changed = original.clone();
    change_within(&mut changed, random);
    changed
}

fn change_within(here: &mut Value, random: &mut Random) {
    if random.chance(65) {
        match here {
            Value::Array(items) if !items.is_empty() => {
                let index = random.below(items.len());
                return change_within(&mut items[index], random);
            }
            Value::Object(members) if !members.is_empty() => {
                let index = random.below(members.len());
                if let Some(member) = members.values_mut().nth(index) {
                    return change_within(member, random);
                }
            }
            _ => {}
        }
    }
    change(here, random);
}

fn change(here: &mut Value, random: &mut Random) {
    if random.chance(15) {
        *here = value(random, 1);
        return;
    }
    match here {
        Value::Number(old) => {
            let n = old.as_f64().unwrap_or(0.0);
            *here = if random.chance(20) {
                json!(n.trunc())
            } else {
                tidy(n + *random.pick(&[1.0, -1.0, 0.5, -0.5, 0.001, 0.25]))
            };
        }
        Value::String(text) => match random.below(4) {
            0 => text.push_str(random.word(&["a", "b", "é", " ", "\n", "1"])),
            1 => text.truncate(text.char_indices().next_back().map_or(0, |(at, _)| at)),
            2 => *here = json!(random.word(&WORDS)),
            _ => text.insert_str(0, random.word(&["a", "b", "é", "\"", "\\"])),
        },
        Value::Array(items) => match random.below(4) {
            0 if !items.is_empty() => {
                let index = random.below(items.len());
                items.remove(index);
            }
            1 if !items.is_empty() => {
                let index = random.below(items.len());
                items.push(items[index].clone());
            }
            2 => items.reverse(),
            _ => items.push(scalar(random)),
        },
        Value::Object(members) => {
            if !members.is_empty() && random.chance(50) {
                let gone = members.keys().nth(random.below(members.len())).cloned();
                members.shift_remove(&gone.unwrap_or_default());
            } else {
                members.insert(random.word(&KEYS).to_owned(), scalar(random));
            }
        }
        leaf => *leaf = scalar(random),
    }
}
