//! Schemas that are made to be expensive, each with a name. Other crates' tests include this file.
//!
//! `LLGTRT_SPENDING=1 cargo test --release -p llgtrt-schema --test hostile -- --nocapture` shows what each takes.
//!
//! Sizes are near what a server lets in: a source of a megabyte, patterns of 8 kB, 127 levels of nesting.

use serde_json::{Map, Value, json};

/// Every schema, by name.
pub(crate) fn hostile() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    fan_out(&mut all);
    unevaluated(&mut all);
    patterns(&mut all);
    values(&mut all);
    objects(&mut all);
    arrays(&mut all);
    references(&mut all);
    texts(&mut all);
    pairs(&mut all);
    all
}

type Corpus = Vec<(String, Value)>;

fn add(all: &mut Corpus, name: impl Into<String>, schema: Value) {
    all.push((name.into(), schema));
}

fn named(n: usize, mut f: impl FnMut(usize) -> (String, Value)) -> Value {
    Value::Object((0..n).map(&mut f).collect::<Map<String, Value>>())
}

fn list(n: usize, f: impl FnMut(usize) -> Value) -> Value {
    Value::Array((0..n).map(f).collect())
}

fn next(i: usize) -> Value {
    json!({ "$ref": format!("#/$defs/d{}", i + 1) })
}

/// Definitions `d0` to `dN`, each made of references to the next.
fn ladder(levels: usize, link: impl Fn(usize) -> Value, last: Value) -> Value {
    let mut defs = named(levels, |i| (format!("d{i}"), link(i)));
    defs[format!("d{levels}")] = last;
    defs
}

/// References that fan out at each level.
fn fan_out(all: &mut Corpus) {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let defs = ladder(29, |i| json!({ keyword: [next(i), next(i)] }), json!({"type": "null"}));
        add(all, format!("ladder of {keyword}"), json!({"$ref": "#/$defs/d0", "$defs": defs}));
        let step = |i: usize| json!({ keyword: [next(i), {"properties": {format!("p{i}"): next(i)}}] });
        let defs = ladder(40, step, json!({"type": "object"}));
        add(
            all,
            format!("ladder of {keyword} with properties"),
            json!({"$ref": "#/$defs/d0", "$defs": defs}),
        );
    }
    let defs = ladder(40, |i| json!({"not": {"anyOf": [next(i), {"const": i}]}}), json!({"type": "string"}));
    add(all, "ladder of not", json!({"$ref": "#/$defs/d0", "$defs": defs}));
    let step = |i: usize| json!({"if": next(i), "then": {"items": next(i)}, "else": {"not": next(i)}});
    add(
        all,
        "ladder of if",
        json!({"$ref": "#/$defs/d0", "$defs": ladder(40, step, json!({"minItems": 1}))}),
    );
    let bits =
        list(30, |i| json!({"oneOf": [{"required": [format!("a{i}")]}, {"required": [format!("b{i}")]}]}));
    add(all, "2^30 alternatives", json!({"type": "object", "allOf": bits}));
    // One value is judged by every way through the ladder.
    let step = |i: usize| json!({"oneOf": [next(i), {"not": next(i)}, {"allOf": [next(i), {"minimum": i}]}]});
    let defs = ladder(40, step, json!({"minimum": 3}));
    add(
        all,
        "enum judged by a ladder",
        json!({"enum": [1, 2, 3], "allOf": [{"$ref": "#/$defs/d0"}], "$defs": defs}),
    );
    let defs = ladder(45, |i| json!({"items": [next(i), next(i)]}), json!({"type": "integer"}));
    let unique = json!({"type": "array", "uniqueItems": true, "items": {"type": "integer"}, "minItems": 1,
        "allOf": [{"$ref": "#/$defs/d0"}], "$defs": defs});
    add(all, "unique items beside a ladder", unique);
    let defs = ladder(45, |i| json!({"allOf": [next(i), next(i)]}), json!(true));
    let unique = json!({"type": "array", "uniqueItems": true, "items": {"type": "integer"}, "minItems": 1,
        "allOf": [{"$ref": "#/$defs/d0"}], "$defs": defs});
    add(all, "unique items beside pairs of references", unique);
    add(
        all,
        "oneOf of many alike",
        json!({"oneOf": list(3000, |i| json!({"type": "object", "required": [format!("k{i}")]}))}),
    );
    add(all, "not oneOf of many", json!({"not": {"oneOf": list(20_000, |i| json!({"maximum": i}))}}));
    add(
        all,
        "anyOf of many",
        json!({"type": "object", "not": {"anyOf": list(20_000, |i| json!({"required": [format!("k{i}")]}))}}),
    );
}

fn unevaluated(all: &mut Corpus) {
    let defs = ladder(13, |i| json!({"allOf": list(10, |_| next(i))}), json!({"properties": {"a": {}}}));
    for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
        let schema = json!({"type": ["object", "array"], keyword: false, "allOf": [{"$ref": "#/$defs/d0"}], "$defs": defs});
        add(all, format!("{keyword} over a ladder"), schema);
        let nested = (0..40).fold(
            json!({"properties": {"z": {}}}),
            |inner, i| json!({"anyOf": [inner, {"properties": {format!("p{i}"): {}}}], keyword: false}),
        );
        add(all, format!("{keyword} beside nested anyOf"), nested);
        let nested = (0..100)
            .fold(json!({"properties": {"z": {}}}), |inner, _| json!({"anyOf": [inner], keyword: false}));
        add(all, format!("{keyword} nested a hundred times"), nested);
        let branches = list(3000, |i| json!({"properties": {format!("p{i}"): {"type": "integer"}}}));
        add(all, format!("{keyword} beside many branches"), json!({"oneOf": branches, keyword: false}));
    }
    let wide = named(4000, |i| (format!("p{i}"), json!({})));
    let defs = ladder(60, |i| json!({"allOf": [next(i)], "properties": wide}), json!({}));
    let small =
        json!({"$ref": "#/$defs/d0", "unevaluatedProperties": false, "$defs": {"d0": defs["d0"], "d1": {}}});
    add(all, "unevaluatedProperties beside many names", small);
    let dependent = named(200, |i| (format!("k{i}"), json!({"properties": {format!("v{i}"): {}}})));
    add(
        all,
        "unevaluatedProperties beside dependentSchemas",
        json!({"dependentSchemas": dependent, "unevaluatedProperties": false}),
    );
}

fn patterns(all: &mut Corpus) {
    let string = |pattern: String| json!({"type": "string", "pattern": pattern, "not": {"const": "x"}});
    add(
        all,
        "long text matched against a counted pattern",
        json!({"type": "string", "not": {"const": "x"},
        "pattern": "^[ab]*a[ab]{100000}$", "enum": ["a".repeat(20_000)]}),
    );
    add(
        all,
        "complement of a counted pattern",
        json!({"type": "string", "not": {"pattern": "(a|b)*a(a|b){18}$"}}),
    );
    add(all, "look-ahead over long distances", string("^(?=.*a.{40}b)(?=.*b.{30}c).{1000}$".to_owned()));
    add(
        all,
        "intersections of patterns",
        json!({"allOf": list(12, |i| json!({"pattern": format!("a.{{{}}}b", 20 + i)})), "maxLength": 60}),
    );
    add(
        all,
        "many look-aheads",
        string(format!("^{}x", (0..400).map(|i| format!("(?=.*a{{{i}}}b)")).collect::<Vec<_>>().concat())),
    );
    add(all, "row of optional alternatives", string(format!("^{}$", "(a?|b?)".repeat(1000))));
    add(all, "row of optional characters", string(format!("^{}$", "a?".repeat(4000))));
    add(all, "ends in repetitions", string(format!("{}a${}", "(".repeat(55), ")*".repeat(55))));
    add(all, "stars in repetitions", string(format!("^{}a{}$", "(".repeat(55), "*b)".repeat(55))));
    add(all, "large counts inside each other", string("^((a{1,1000}){1,1000}){1,1000}$".to_owned()));
    add(
        all,
        "large class",
        string(format!(
            "^[{}]*$",
            (0..4000).filter_map(|i| char::from_u32(0x4E00 + 2 * i)).collect::<String>()
        )),
    );
    let ranges = (0..1300).filter_map(|i| Some(format!("{}-ɏ", char::from_u32(0x41 + i % 26)?)));
    add(all, "ranges whose case is ignored", string(format!("(?i)^[{}]*$", ranges.collect::<String>())));
    add(all, "braces without end", string("a{".repeat(4000)));
    add(all, "starts in a row", string("^".repeat(8000)));
    add(
        all,
        "classes of many scripts",
        json!({"allOf": list(40, |i| json!({"pattern": format!("^(\\p{{L}}|\\P{{Lu}}|[^\\p{{N}}]){{{i},}}[^a-{}]$", char::from(98 + (i % 20) as u8))}))}),
    );
    let overlapping =
        named(6, |i| (format!("^.{{{i}}}[a-f]*{}", char::from(97 + i as u8)), json!({"minimum": i})));
    add(
        all,
        "overlapping patterns of keys",
        json!({"patternProperties": overlapping, "additionalProperties": false, "minProperties": 2}),
    );
    add(
        all,
        "hundreds of patterns of keys",
        json!({"patternProperties": named(600, |i| (format!("{i}$"), json!({"minimum": i}))), "not": {"required": ["a"]}}),
    );
    add(
        all,
        "long pattern many times",
        json!({"allOf": list(60, |i| json!({"pattern": format!("^(?!{}{i})", "[a-z][0-9]|".repeat(700))}))}),
    );
    add(
        all,
        "formats against each other",
        json!({"allOf": [{"format": "uri"}, {"format": "iri"}, {"not": {"format": "email"}}, {"format": "hostname"}, {"pattern": "[a-z]{3,70}"}], "minLength": 20}),
    );
}

fn values(all: &mut Corpus) {
    let numbers = list(10_000, |i| json!(i));
    let texts = list(10_000, |i| json!(format!("text {i}")));
    add(all, "enum of enum", json!({"enum": texts, "allOf": [{"enum": texts}, {"enum": texts}]}));
    add(all, "not enum of numbers", json!({"type": "number", "not": {"enum": numbers}}));
    add(all, "not enum of texts", json!({"type": "string", "not": {"enum": texts}}));
    add(
        all,
        "not enum of texts with a pattern",
        json!({"type": "string", "pattern": "[0-9]{4}$", "not": {"enum": texts}}),
    );
    let objects = list(5000, |i| json!({"a": i, "b": [i, {"c": i}]}));
    add(
        all,
        "enum of objects with enum of objects",
        json!({"enum": objects, "anyOf": [{"enum": objects}, {"required": ["z"]}]}),
    );
    add(all, "not enum of objects", json!({"not": {"enum": list(300, |i| json!({"a": i, "b": i}))}}));
    let deep = (0..100).fold(list(3000, |i| json!(i)), |inner, _| json!([inner]));
    add(all, "not const of a deep list", json!({"type": "array", "not": {"const": deep}}));
    add(all, "not const of a long text", json!({"type": "string", "not": {"const": "x".repeat(900_000)}}));
    add(
        all,
        "multiples that do not fit",
        json!({"allOf": list(3000, |i| json!({"multipleOf": 1_000_003 + 2 * i})), "not": {"multipleOf": 3}}),
    );
    add(
        all,
        "counts of any size",
        json!({"type": ["array", "object", "string"], "minItems": 1e14, "minProperties": 1e14, "minLength": 1e14, "not": {"maxItems": u64::MAX}}),
    );
    add(
        all,
        "numbers of any size",
        json!({"type": "number", "minimum": -1e308, "maximum": 1e308, "not": {"multipleOf": 1e-300}}),
    );
    add(
        all,
        "intervals inside each other",
        json!({"type": "integer", "allOf": list(5000, |i| json!({"not": {"minimum": 3 * i, "maximum": 3 * i + 1}}))}),
    );
}

fn objects(all: &mut Corpus) {
    let keys = named(5000, |i| (format!("k{i}"), json!({"type": "string"})));
    add(all, "counts over many keys", json!({"properties": keys, "minProperties": 2, "maxProperties": 40}));
    add(
        all,
        "many keys in many alternatives",
        json!({"type": "object", "properties": keys, "oneOf": list(390, |i| json!({"required": [format!("k{i}")]}))}),
    );
    add(
        all,
        "some key of many",
        json!({"type": "object", "properties": keys, "not": {"additionalProperties": {"const": 1}}}),
    );
    add(
        all,
        "keys of many names",
        json!({"propertyNames": {"enum": list(8000, |i| json!(format!("k{i}")))}, "minProperties": 3, "additionalProperties": {"type": "integer"}, "not": {"required": ["k1", "k2"]}}),
    );
    add(
        all,
        "dependent keys",
        json!({"dependentRequired": named(400, |i| (format!("k{i}"), json!([format!("k{}", (i + 1) % 400)])))}),
    );
    add(
        all,
        "dependent schemas",
        json!({"type": "object", "dependentSchemas": named(40, |i| (format!("k{i}"), json!({"properties": {format!("k{}", i + 1): {"type": "integer"}}, "required": [format!("k{}", i + 2)]})))}),
    );
    add(
        all,
        "not of many properties",
        json!({"type": "object", "not": {"properties": named(2000, |i| (format!("k{i}"), json!({"minimum": i}))), "required": list(300, |i| json!(format!("k{i}")))}}),
    );
    add(
        all,
        "closed objects against each other",
        json!({"oneOf": list(60, |i| json!({"type": "object", "properties": named(60, |j| (format!("k{j}"), json!({"maximum": i + j}))), "additionalProperties": false}))}),
    );
}

fn arrays(all: &mut Corpus) {
    let contains = |i: usize| json!({"contains": {"const": i}, "minContains": 2, "maxContains": 9});
    add(all, "contains many times", json!({"type": "array", "maxItems": 9, "allOf": list(12, contains)}));
    add(
        all,
        "contains with large counts",
        json!({"contains": {"minimum": 5}, "minContains": 500_000, "maxContains": 600_000, "items": {"type": "number"}}),
    );
    add(
        all,
        "contains in a list of known length",
        json!({"type": "array", "minItems": 20, "maxItems": 24, "allOf": list(4, |i| json!({"contains": {"multipleOf": i + 2}}))}),
    );
    add(
        all,
        "not prefixItems of many",
        json!({"not": {"prefixItems": list(40_000, |_| json!({"type": "null"}))}}),
    );
    add(
        all,
        "prefixItems of many",
        json!({"prefixItems": list(40_000, |i| json!({"not": {"const": i % 7}})), "minItems": 40_000, "uniqueItems": true}),
    );
    add(
        all,
        "unique items of few values",
        json!({"uniqueItems": true, "items": {"enum": list(9, |i| json!(i))}, "minItems": 7}),
    );
}

fn references(all: &mut Corpus) {
    let web = named(400, |i| {
        (
            format!("d{i}"),
            json!({"anyOf": list(20, |j| json!({"$ref": format!("#/$defs/d{}", (i * 7 + j * 13) % 400)})), "not": {"const": i}}),
        )
    });
    add(all, "web of references", json!({"$ref": "#/$defs/d0", "$defs": web}));
    let web = named(300, |i| {
        (
            format!("d{i}"),
            json!({"type": "object", "properties": named(12, |j| (format!("p{j}"), json!({"$ref": format!("#/$defs/d{}", (i * 7 + j * 13) % 300)}))), "not": {"required": ["q"]}}),
        )
    });
    add(all, "web of objects", json!({"$ref": "#/$defs/d0", "$defs": web}));
    let chain = ladder(
        3000,
        |i| json!({"type": "object", "properties": {"n": next(i)}, "required": ["n"]}),
        json!({"not": {"type": "object"}}),
    );
    add(all, "chain of required objects", json!({"$ref": "#/$defs/d0", "$defs": chain}));
    add(
        all,
        "chain of references",
        json!({"$ref": "#/$defs/d0", "$defs": ladder(5000, next, json!({"not": {}}))}),
    );
    add(
        all,
        "identifiers of great length",
        json!({"$id": format!("http://a/{}/", "b".repeat(300_000)), "$defs": named(10_000, |i| (format!("d{i}"), json!({"$id": format!("i{i}"), "not": {"const": 1}})))}),
    );
    add(
        all,
        "references against a long identifier",
        json!({"$id": format!("http://a/{}/b", "b".repeat(300_000)), "anyOf": list(10_000, |_| json!({"$ref": "b#/$defs/x"})), "$defs": {"x": {"not": {"const": 1}}}}),
    );
    let anchors = named(8000, |i| {
        (format!("d{i}"), json!({"$anchor": format!("a{i}"), "not": {"$ref": format!("#a{}", i + 1)}}))
    });
    add(all, "chain of anchors", json!({"$ref": "#a0", "$defs": anchors}));
}

/// Long keys and deep places: paths that would fill the memory if each was written out.
fn texts(all: &mut Corpus) {
    let many = || list(60_000, |_| json!({"not": {}}));
    add(all, "long key above many schemas", json!({"properties": {"k".repeat(500_000): {"anyOf": many()}}}));
    let deep = (0..50).fold(json!({"anyOf": many()}), |inner, i| {
        json!({"properties": {format!("{i}{}", "k".repeat(75)): inner}, "not": {"required": ["z"]}})
    });
    add(all, "many schemas at a deep place", deep);
    for keyword in ["not", "items", "additionalProperties", "contains", "propertyNames", "if"] {
        let nested = (0..2000).fold(
            json!({"type": "string", "not": {"const": "x"}}),
            |inner, _| json!({ keyword: inner, "then": {"minLength": 1} }),
        );
        add(all, format!("{keyword} in depth"), nested);
    }
    for keyword in ["allOf", "anyOf", "oneOf", "prefixItems"] {
        let nested = (0..2000).fold(
            json!({"type": "string", "not": {"const": "x"}}),
            |inner, _| json!({ keyword: [inner, {"minLength": 1}] }),
        );
        add(all, format!("{keyword} in depth"), nested);
    }
}

/// Every keyword that judges by itself, and every pair of them, thirty times with different values.
fn pairs(all: &mut Corpus) {
    let one = |keyword: &str, i: usize| match keyword {
        "enum" => json!({"enum": list(50, |j| json!([i, j]))}),
        "not" => json!({"not": {"properties": {format!("a{i}"): {"minimum": i}}, "maxItems": i}}),
        "oneOf" => {
            json!({"oneOf": [{"required": [format!("a{i}")]}, {"minItems": i + 1}, {"minLength": i + 3}]})
        }
        "if" => {
            json!({"if": {"required": [format!("a{i}")]}, "then": {"maxProperties": 40 - i}, "else": {"minLength": i}})
        }
        "multipleOf" => json!({"multipleOf": 2 * i + 3}),
        "pattern" => json!({"pattern": format!("[a-z].{{{i}}}[0-9]")}),
        "patternProperties" => json!({"patternProperties": {format!("^a.{{{i}}}b"): {"minimum": i}}}),
        "propertyNames" => json!({"propertyNames": {"pattern": format!("a.{{{i}}}b|^a")}}),
        "contains" => json!({"contains": {"minimum": i}, "maxContains": i + 1}),
        "uniqueItems" => json!({"uniqueItems": true, "maxItems": 9 + i}),
        "dependentSchemas" => {
            json!({"dependentSchemas": {format!("a{i}"): {"minProperties": i, "maxLength": i}}})
        }
        "unevaluatedProperties" => {
            json!({"anyOf": [{"properties": {format!("a{i}"): {}}}, {"properties": {format!("b{i}"): {}}}], "unevaluatedProperties": false})
        }
        "additionalProperties" => {
            json!({"properties": {format!("a{i}"): {"type": "integer"}}, "additionalProperties": {"minimum": i}})
        }
        "prefixItems" => {
            json!({"prefixItems": list(i + 1, |j| json!({"not": {"const": j}})), "items": {"not": {"const": i}}})
        }
        _ => json!({"minProperties": i % 4, "maxProperties": 30 + i}),
    };
    let keywords = [
        "enum",
        "not",
        "oneOf",
        "if",
        "multipleOf",
        "pattern",
        "patternProperties",
        "propertyNames",
        "contains",
        "uniqueItems",
        "dependentSchemas",
        "unevaluatedProperties",
        "additionalProperties",
        "prefixItems",
        "maxProperties",
    ];
    for (at, a) in keywords.iter().enumerate() {
        add(all, format!("{a} thirty times"), json!({"allOf": list(30, |i| one(a, i))}));
        for b in &keywords[at + 1..] {
            let both = list(30, |i| if i % 2 == 0 { one(a, i) } else { one(b, i) });
            add(all, format!("{a} and {b} fifteen times each"), json!({ "allOf": both }));
        }
    }
}
