//! Walks under the masks of many schemas of objects: no choice of allowed tokens leads to where nothing is
//! allowed. Each walk ends in an answer that the schema accepts.

use std::collections::HashMap;

use crate::support::{Bench, Greedy, WORDS, schema};
use llgtrt_core::{AdvanceState, SequenceId, TokenId};
use llgtrt_grammar::GrammarConfig;
use serde_json::{Map, Value, json};

/// Tokens after which a walk heads for the end.
const FREE: usize = 40;

/// Tokens within which it has to be there.
const MOST: usize = 1500;

/// A generator of numbers that are the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as usize
    }

    fn one<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

fn value(random: &mut Random) -> Value {
    random.one(&[
        json!({"type": "integer", "minimum": 0, "maximum": 20}),
        json!({"enum": ["x", 1]}),
        json!({"type": "boolean"}),
        json!(true),
        json!({"type": "string", "maxLength": 2}),
    ])
}

fn object(random: &mut Random) -> Map<String, Value> {
    let mut out = Map::from_iter([("type".to_owned(), json!("object"))]);
    let names = random.one(&[&[][..], &["a"], &["a", "b"], &["b", "ab", "a"]]);
    let mut required = Vec::new();
    let mut properties = Map::new();
    for name in names {
        let schema = if random.below(8) == 0 { json!(false) } else { value(random) };
        if random.below(3) == 0 && schema != json!(false) {
            required.push(*name);
        }
        properties.insert((*name).to_owned(), schema);
    }
    if random.below(10) == 0 {
        required.push("c");
    }
    if !properties.is_empty() {
        out.insert("properties".to_owned(), Value::Object(properties));
    }
    if !required.is_empty() {
        out.insert("required".to_owned(), json!(required));
    }
    if random.below(3) > 0 {
        let patterns = [
            "^a$",
            "^[ab]$",
            "^(a|b|ab)$",
            "^(?!a$)",
            "^(?!(a|b)$)",
            "^(?=a)[ab]$",
            "",
            "^a",
            "^[^ab]*$",
            "^[^a]$",
            "^$",
        ];
        let mut members = Map::new();
        for _ in 0..=random.below(2) {
            let schema = if random.below(4) == 0 { json!(false) } else { value(random) };
            members.insert(random.one(&patterns).to_owned(), schema);
        }
        out.insert("patternProperties".to_owned(), Value::Object(members));
    }
    match random.below(6) {
        0 | 1 => _ = out.insert("additionalProperties".to_owned(), json!(false)),
        2 => _ = out.insert("additionalProperties".to_owned(), value(random)),
        _ => {}
    }
    match random.below(8) {
        0 => _ = out.insert("propertyNames".to_owned(), json!({"enum": ["a", "b"]})),
        1 => _ = out.insert("propertyNames".to_owned(), json!({"pattern": "^[ab]$"})),
        2 => _ = out.insert("propertyNames".to_owned(), json!({"maxLength": 1})),
        3 => _ = out.insert("propertyNames".to_owned(), json!({"not": {"pattern": "[^ab]"}})),
        _ => {}
    }
    match random.below(8) {
        0 => _ = out.insert("maxProperties".to_owned(), json!(random.below(3))),
        1 => _ = out.insert("minProperties".to_owned(), json!(1)),
        _ => {}
    }
    out
}

fn generated(random: &mut Random) -> Value {
    let mut first = object(random);
    match random.below(6) {
        0 => json!({"allOf": [first, object(random)]}),
        1 => {
            first.insert("allOf".to_owned(), json!([object(random)]));
            first.insert("unevaluatedProperties".to_owned(), json!(false));
            Value::Object(first)
        }
        2 => json!({"anyOf": [first, object(random)]}),
        3 => json!({"type": "object", "properties": {"k": first}, "additionalProperties": object(random)}),
        _ => Value::Object(first),
    }
}

/// Which of the allowed tokens a walk takes.
enum Choice<'a> {
    /// One that was seldom taken before.
    Rarest(&'a mut HashMap<TokenId, usize>),
    Random(&'a mut Random),
}

/// Whether a text of JSON ends inside of a string.
fn in_string(text: &[u8]) -> bool {
    let (mut inside, mut escaped) = (false, false);
    for byte in text {
        match byte {
            b'\\' if inside && !escaped => escaped = true,
            b'"' if !escaped => inside = !inside,
            _ => escaped = false,
        }
    }
    inside
}

fn walk(bench: &Bench, id: u64, mut choice: Choice) -> Result<Vec<TokenId>, String> {
    let mut tokens = Vec::new();
    let shown = |tokens: &[TokenId]| String::from_utf8_lossy(&bench.decode(tokens)).into_owned();
    while tokens.len() < MOST {
        let (_, state) = bench.advance(id, &tokens, false);
        match state {
            AdvanceState::Stop => return Ok(tokens),
            AdvanceState::Sample => {}
            other => return Err(format!("{other:?} after {:?}", shown(&tokens))),
        }
        let allowed = match bench.fill(id, &tokens) {
            Ok(allowed) if !allowed.is_empty() => allowed,
            other => return Err(format!("{other:?} after {:?}", shown(&tokens))),
        };
        if tokens.len() >= FREE {
            if allowed.contains(&bench.eos()) {
                return Ok(tokens);
            }
            let closing: &[u8] = if in_string(&bench.decode(&tokens)) { b"\"" } else { b"}]\"" };
            let mut closing = closing.iter().map(|&byte| TokenId::from(byte));
            if let Some(end) = closing.find(|token| allowed.contains(token)) {
                tokens.push(end);
                continue;
            }
        }
        let next = match &mut choice {
            Choice::Random(random) => random.one(&allowed),
            Choice::Rarest(taken) => {
                let next =
                    *allowed.iter().min_by_key(|token| taken.get(token).copied().unwrap_or(0)).unwrap();
                *taken.entry(next).or_default() += 1;
                next
            }
        };
        if next == bench.eos() {
            return Ok(tokens);
        }
        tokens.push(next);
    }
    Err(format!("no end: {:?}", shown(&tokens)))
}

/// Walks under the masks of a schema; false if it is refused.
fn check(bench: &Bench, source: &Value, random: &mut Random) -> Result<bool, String> {
    let Ok(grammar) = bench.compiler.compile(&schema(&source.to_string())) else { return Ok(false) };
    let validator = jsonschema::draft202012::new(source).expect("generated schemas are well formed");
    let mut taken = HashMap::new();
    for round in 0..6 {
        let id = 1 + round;
        bench.pool.register(SequenceId(id), &grammar);
        let choice = if round < 3 { Choice::Rarest(&mut taken) } else { Choice::Random(random) };
        let end = walk(bench, id, choice);
        bench.pool.remove(SequenceId(id));
        let tokens = end.map_err(|error| format!("{source}: {error}"))?;
        let text = String::from_utf8(bench.decode(&tokens)).expect("masks keep UTF-8 whole");
        serde_json::from_str::<serde::de::IgnoredAny>(&text)
            .map_err(|error| format!("{source}: {error}: {text:?}"))?;
        // A number may be too large for a double.
        let Ok(instance) = serde_json::from_str::<Value>(&text) else { continue };
        if !validator.is_valid(&instance) {
            return Err(format!("{source} does not allow {instance}"));
        }
    }
    Ok(true)
}

#[test]
fn no_walk_ends_where_nothing_is_allowed() {
    walk_many(&Bench::words(), 1);
}

#[test]
fn no_walk_ends_where_nothing_is_allowed_in_closed_objects() {
    walk_many(&Bench::new(Greedy::new(&WORDS, 2), GrammarConfig::default()), 3);
}

fn walk_many(bench: &Bench, seed: u64) {
    let mut random = Random(seed);
    let mut wrong = Vec::new();
    let count = 300;
    let mut compiled = 0;
    for _ in 0..count {
        let source = generated(&mut random);
        match check(bench, &source, &mut random) {
            Ok(taken) => compiled += usize::from(taken),
            Err(error) => wrong.push(error),
        }
    }
    let shown: Vec<String> = wrong.iter().take(10).map(|text| text.chars().take(900).collect()).collect();
    assert!(wrong.is_empty(), "{} of {count}: {shown:#?}", wrong.len());
    assert!(compiled * 10 > count * 6, "only {compiled} of {count} schemas were taken");
}

#[test]
fn keys_that_are_used_up_are_not_waited_for() {
    let bench = Bench::bytes();
    let mut random = Random(2);
    let integer = json!({"type": "integer"});
    let named = json!({"type": "object", "properties": {"a": integer}, "required": ["a"]});
    let with = |more: Value| {
        let mut schema = named.as_object().unwrap().clone();
        schema.extend(more.as_object().unwrap().clone());
        Value::Object(schema)
    };
    for schema in [
        with(json!({"additionalProperties": false, "patternProperties": {"^a$": integer}})),
        with(json!({"unevaluatedProperties": false, "patternProperties": {"^a$": integer}})),
        with(json!({"patternProperties": {"^(?!a$)": false}})),
        with(json!({"patternProperties": {"^(a|b)$": integer, "^b": false}, "additionalProperties": false})),
        with(
            json!({"allOf": [{"patternProperties": {"^[a]$": {"minimum": 3}}, "additionalProperties": false}]}),
        ),
        with(json!({"propertyNames": {"pattern": "^a$"}})),
        with(json!({"propertyNames": {"not": {"pattern": "[^a]|^$|aa"}}})),
        json!({
            "type": "object", "properties": {"a": integer, "b": {"$ref": "#/$defs/endless"}},
            "additionalProperties": {"$ref": "#/$defs/endless"},
            "$defs": {"endless": {
                "type": "object", "properties": {"next": {"$ref": "#/$defs/endless"}}, "required": ["next"],
            }},
        }),
        json!({
            "type": "array", "prefixItems": [integer], "items": {"$ref": "#/$defs/endless"},
            "$defs": {"endless": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/endless"}}},
        }),
        with(
            json!({"properties": {"a": integer, "b": {"type": "integer", "minimum": 1, "maximum": 2, "multipleOf": 5}}}),
        ),
        with(json!({"properties": {"a": integer, "b": {"type": "integer", "minimum": 1.2, "maximum": 1.8}}})),
    ] {
        assert_eq!(check(&bench, &schema, &mut random), Ok(true), "{schema}");
    }
}

/// Nothing of a string that is too hard to intersect shows before it has begun.
#[test]
fn strings_that_the_lexer_cannot_intersect_go_on() {
    let bench = Bench::words();
    let mut random = Random(5);
    let mut words = json!({"type": "string", "pattern": "^$|(^(?:\\S+\\s+){0,99}\\S+$)", "maxLength": 5000});
    for schema in [
        words.clone(),
        json!({"type": "object", "properties": {"a": words.clone(), "b": words.take()}, "required": ["a", "b"]}),
        json!({"type": "string", "pattern": "x y|^c$", "format": "hostname"}),
        json!({"type": "array", "items": {"type": "string", "pattern": "x y|^c$", "format": "hostname"}, "minItems": 1}),
        json!({"type": "string", "pattern": "a.*b", "format": "hostname"}),
    ] {
        assert_eq!(check(&bench, &schema, &mut random), Ok(true), "{schema}");
    }
}
