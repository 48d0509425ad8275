//! Random schemas over all keywords of a draft, each valid under its meta-schema and with references that resolve.

use serde_json::{Map, Value, json};

use super::random::Random;
use super::tables::{FORMATS, KEYS, PATTERNS, number, scalar, value};

/// Subschemas of one schema.
const MAX_PARTS: usize = 24;

const DRAFTS: [(u32, &str); 4] = [
    (4, "http://json-schema.org/draft-04/schema#"),
    (6, "http://json-schema.org/draft-06/schema#"),
    (7, "http://json-schema.org/draft-07/schema#"),
    (2019, "https://json-schema.org/draft/2019-09/schema"),
];

struct Maker<'r> {
    random: &'r mut Random,
    draft: u32,
    parts: usize,
    /// References that do not lead back to where they stand without a step into a value.
    targets: Vec<String>,
}

/// A schema.
pub fn schema(random: &mut Random) -> Value {
    let draft = if random.chance(70) { None } else { Some(*random.pick(&DRAFTS)) };
    let number = draft.map_or(2020, |(number, _)| number);
    let mut maker = Maker { random, draft: number, parts: 0, targets: Vec::new() };
    let defs_key = if number >= 2019 { "$defs" } else { "definitions" };
    let mut defs = Map::new();
    if maker.random.chance(30) {
        for name in ["x", "y"] {
            defs.insert(name.to_owned(), maker.part(2));
            // A definition refers to the ones before it only.
            maker.targets.push(format!("#/{defs_key}/{name}"));
        }
    }
    let mut root = Map::new();
    if let Some((_, uri)) = draft {
        root.insert("$schema".to_owned(), json!(uri));
    }
    root.extend(maker.object(3));
    if !defs.is_empty() {
        root.insert(defs_key.to_owned(), Value::Object(defs));
    }
    Value::Object(root)
}

impl Maker<'_> {
    fn part(&mut self, depth: usize) -> Value {
        self.parts += 1;
        if self.random.chance(6) && self.draft > 4 {
            return json!(self.random.chance(60));
        }
        Value::Object(self.object(if self.parts > MAX_PARTS { 0 } else { depth }))
    }

    /// A part within a value: it may lead back to the root.
    fn inner(&mut self, depth: usize) -> Value {
        if self.random.chance(3) { json!({"$ref": "#"}) } else { self.part(depth) }
    }

    fn object(&mut self, depth: usize) -> Map<String, Value> {
        let mut schema = Map::new();
        if !self.targets.is_empty() && self.random.chance(15) {
            let target = self.random.pick(&self.targets).clone();
            schema.insert("$ref".to_owned(), json!(target));
            if self.random.chance(60) {
                return schema;
            }
        }
        if self.random.chance(8) {
            self.values(&mut schema);
        }
        let focus = self.random.below(if depth == 0 { 4 } else { 9 });
        match focus {
            0 => self.numbers(&mut schema),
            1 => self.strings(&mut schema),
            2 => {
                schema.insert("type".to_owned(), self.types());
            }
            3 => self.values(&mut schema),
            4 | 5 => self.arrays(&mut schema, depth - 1),
            _ => self.objects(&mut schema, depth - 1),
        }
        // Some that say something of another type.
        if self.random.chance(15) {
            self.numbers(&mut schema);
        }
        if self.random.chance(10) {
            self.strings(&mut schema);
        }
        if depth > 0 && self.random.chance(35) {
            self.combine(&mut schema, depth - 1);
        }
        if self.random.chance(5) {
            schema.insert("default".to_owned(), scalar(self.random));
        }
        schema
    }

    fn types(&mut self) -> Value {
        const NAMES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
        if self.random.chance(75) {
            return json!(self.random.word(&NAMES));
        }
        let mut names: Vec<&str> = (0..3).map(|_| self.random.word(&NAMES)).collect();
        names.sort_unstable();
        names.dedup();
        json!(names)
    }

    fn values(&mut self, schema: &mut Map<String, Value>) {
        if self.draft > 4 && self.random.chance(40) {
            schema.insert("const".to_owned(), value(self.random, 2));
            return;
        }
        let mut list: Vec<Value> = Vec::new();
        for _ in 0..=self.random.below(4) {
            let new = value(self.random, 1);
            // Equal ones, 1 and 1.0 too, are not allowed in some drafts.
            let text = |value: &Value| value.to_string().replace(".0", "");
            if list.iter().all(|old| text(old) != text(&new)) {
                list.push(new);
            }
        }
        schema.insert("enum".to_owned(), Value::Array(list));
    }

    fn numbers(&mut self, schema: &mut Map<String, Value>) {
        if self.random.chance(60) {
            let name = *self.random.pick(&["number", "integer"]);
            schema.entry("type").or_insert_with(|| json!(name));
        }
        let mut ends = [number(self.random), number(self.random)];
        let size = |value: &Value| value.as_f64().unwrap_or(0.0);
        if size(&ends[0]) > size(&ends[1]) && self.random.chance(90) {
            ends.reverse();
        }
        let names = [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")];
        for ((bound, strict), at) in names.into_iter().zip(ends) {
            if !self.random.chance(45) {
                continue;
            }
            if self.random.chance(70) {
                schema.insert(bound.to_owned(), at);
            } else if self.draft == 4 {
                schema.insert(bound.to_owned(), at);
                schema.insert(strict.to_owned(), json!(self.random.chance(70)));
            } else {
                schema.insert(strict.to_owned(), at);
            }
        }
        if self.random.chance(25) {
            let steps =
                [json!(1), json!(2), json!(3), json!(0.5), json!(0.25), json!(0.1), json!(10), json!(1.5)];
            schema.insert("multipleOf".to_owned(), self.random.pick(&steps).clone());
        }
    }

    fn strings(&mut self, schema: &mut Map<String, Value>) {
        if self.random.chance(70) {
            schema.entry("type").or_insert_with(|| json!("string"));
        }
        self.counts(schema, ("minLength", 30), ("maxLength", 30));
        if self.random.chance(45) {
            schema.insert("pattern".to_owned(), json!(self.random.word(&PATTERNS)));
        }
        if self.random.chance(12) {
            schema.insert("format".to_owned(), json!(self.random.pick(&FORMATS).0));
        }
    }

    /// Bounds of a length, each with its chance; few leave nothing between them.
    fn counts(
        &mut self,
        schema: &mut Map<String, Value>,
        (least, least_chance): (&str, usize),
        (most, most_chance): (&str, usize),
    ) {
        let mut ends = [self.random.below(4), self.random.below(5)];
        if self.random.chance(90) {
            ends.sort_unstable();
        }
        if self.random.chance(least_chance) {
            schema.insert(least.to_owned(), json!(ends[0]));
        }
        if self.random.chance(most_chance) {
            schema.insert(most.to_owned(), json!(ends[1]));
        }
    }

    fn list(&mut self, depth: usize, most: usize) -> Value {
        (0..=self.random.below(most)).map(|_| self.part(depth)).collect()
    }

    fn arrays(&mut self, schema: &mut Map<String, Value>, depth: usize) {
        if self.random.chance(70) {
            schema.entry("type").or_insert_with(|| json!("array"));
        }
        let tuple = if self.draft >= 2020 { "prefixItems" } else { "items" };
        if self.random.chance(30) {
            let items: Value = (0..=self.random.below(3)).map(|_| self.inner(depth)).collect();
            schema.insert(tuple.to_owned(), items);
        }
        let rest = if schema.contains_key("items") { "additionalItems" } else { "items" };
        if self.random.chance(50) {
            let items = self.inner(depth);
            schema.insert(rest.to_owned(), items);
        }
        self.counts(schema, ("minItems", 35), ("maxItems", 45));
        if self.random.chance(20) {
            schema.insert("uniqueItems".to_owned(), json!(self.random.chance(85)));
        }
        if self.draft > 4 && self.random.chance(25) {
            let item = self.inner(depth);
            schema.insert("contains".to_owned(), item);
        }
        if self.draft >= 2019 && self.random.chance(12) {
            schema.insert("minContains".to_owned(), json!(self.random.below(3)));
        }
        if self.draft >= 2019 && self.random.chance(12) {
            schema.insert("maxContains".to_owned(), json!(self.random.below(3)));
        }
        if self.draft >= 2019 && self.random.chance(8) {
            let rest = self.inner(depth);
            schema.insert("unevaluatedItems".to_owned(), rest);
        }
    }

    fn keys(&mut self, most: usize) -> Vec<&'static str> {
        let mut keys: Vec<&str> = (0..most).map(|_| self.random.word(&KEYS)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn objects(&mut self, schema: &mut Map<String, Value>, depth: usize) {
        if self.random.chance(70) {
            schema.entry("type").or_insert_with(|| json!("object"));
        }
        if self.random.chance(80) {
            let most = self.random.below(4);
            let properties: Map<String, Value> =
                self.keys(most).into_iter().map(|key| (key.to_owned(), self.inner(depth))).collect();
            schema.insert("properties".to_owned(), Value::Object(properties));
        }
        if self.random.chance(45) {
            let most = 1 + self.random.below(3);
            schema.insert("required".to_owned(), json!(self.keys(most)));
        }
        if self.random.chance(35) {
            let rest = if self.random.chance(55) { json!(false) } else { self.inner(depth) };
            schema.insert("additionalProperties".to_owned(), rest);
        }
        if self.random.chance(15) {
            let patterns: Map<String, Value> = (0..=self.random.below(2))
                .map(|_| (self.random.word(&PATTERNS).to_owned(), self.inner(depth)))
                .collect();
            schema.insert("patternProperties".to_owned(), Value::Object(patterns));
        }
        if self.draft > 4 && self.random.chance(10) {
            let names = self.part(0);
            schema.insert("propertyNames".to_owned(), names);
        }
        self.counts(schema, ("minProperties", 10), ("maxProperties", 10));
        if self.random.chance(12) {
            self.dependencies(schema, depth);
        }
        if self.draft >= 2019 && self.random.chance(8) {
            let rest = if self.random.chance(60) { json!(false) } else { self.inner(depth) };
            schema.insert("unevaluatedProperties".to_owned(), rest);
        }
    }

    fn dependencies(&mut self, schema: &mut Map<String, Value>, depth: usize) {
        let key = self.random.word(&KEYS).to_owned();
        let by_key = self.random.chance(50);
        let what = if by_key { json!(self.keys(2)) } else { self.part(depth) };
        let name = match (self.draft >= 2019, by_key) {
            (true, true) => "dependentRequired",
            (true, false) => "dependentSchemas",
            _ => "dependencies",
        };
        schema.insert(name.to_owned(), json!({ key: what }));
    }

    fn combine(&mut self, schema: &mut Map<String, Value>, depth: usize) {
        match self.random.below(6) {
            0 => {
                let list = self.list(depth, 3);
                schema.insert("anyOf".to_owned(), list);
            }
            1 => {
                let list = self.list(depth, 3);
                schema.insert("oneOf".to_owned(), list);
            }
            2 => {
                let list = self.list(depth, 3);
                schema.insert("allOf".to_owned(), list);
            }
            3 => {
                let part = self.part(depth);
                schema.insert("not".to_owned(), part);
            }
            4 if self.draft >= 7 => {
                for name in ["if", "then", "else"] {
                    if name == "if" || self.random.chance(70) {
                        let part = self.part(depth);
                        schema.insert(name.to_owned(), part);
                    }
                }
            }
            _ => {
                // A union that is told apart by a key, as tools make them: by its value, or, where they are many, by
                // which one there is.
                let many = self.random.chance(15);
                let outside = self.random.chance(30);
                let count = if many { 9 + self.random.below(4) } else { 1 + self.random.below(3) };
                let branches: Value = (0..count)
                    .map(|index| {
                        let mut branch = Map::new();
                        self.objects(&mut branch, if many { 0 } else { depth });
                        let properties = branch.entry("properties").or_insert_with(|| json!({}));
                        let key = if many { format!("k{index}") } else { "kind".to_owned() };
                        properties[&key] = json!({"enum": [format!("k{index}")]});
                        if many || !outside {
                            branch.insert("required".to_owned(), json!([key]));
                        }
                        Value::Object(branch)
                    })
                    .collect();
                if outside && !many {
                    let required = schema.entry("required").or_insert_with(|| json!([]));
                    if let Some(required) = required.as_array_mut() {
                        required.push(json!("kind"));
                    }
                }
                let name = if self.random.chance(60) { "oneOf" } else { "anyOf" };
                schema.insert(name.to_owned(), branches);
            }
        }
    }
}
