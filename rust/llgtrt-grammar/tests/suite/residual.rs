//! What the grammar leaves open with `ResidualMode::Verify`: supersets, named with the places they judge.

use llgtrt_grammar::{Instance, judge};
use llgtrt_schema::{NormalizeLimits, Normalized, ResidualMode, Segment, normalize, rewrite};
use serde_json::{Value, json};

fn verify(schema: &Value) -> Normalized {
    let schema = schema.clone();
    let limits =
        NormalizeLimits { residual: ResidualMode::Verify, standard: true, ..NormalizeLimits::default() };
    let run = move || normalize(&schema, &limits).unwrap_or_else(|error| panic!("{schema}: {error:?}"));
    llgtrt_grammar::spawn_big_stack("normalize", run).unwrap().join().unwrap()
}

fn key(key: &str) -> Segment {
    Segment::Key(key.to_owned())
}

/// The residual's path, keyword and places; and that valid instances pass.
fn check(schema: &Value, path: &str, keyword: &str, places: Option<&[Vec<Segment>]>, valid: &[Value]) {
    let found = verify(schema);
    assert_eq!(found.residual.len(), 1, "{schema}: {:#?}", found.residual);
    let left = &found.residual[0];
    assert_eq!((left.path.as_str(), left.keyword.as_str()), (path, keyword), "{schema}");
    assert_eq!(left.places.as_deref(), places, "{schema}");
    assert!(left.schema.is_object() && !left.message.is_empty(), "{left:?}");
    let matcher =
        crate::support::plain_matcher(&found.schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    let validator = jsonschema::validator_for(schema).unwrap();
    for instance in valid {
        assert!(validator.is_valid(instance), "{instance}");
        let judgement = judge(matcher.deep_clone(), Instance::Value(instance));
        assert!(judgement.accepted, "{schema}: {judgement:?}");
    }
}

/// What rules of a grammar hold is not left open for another constraint that they do not hold.
#[test]
fn rules_hold_what_they_can_beside_what_is_left_open() {
    let schema = json!({"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 100},
        "minContains": 2, "uniqueItems": true});
    let left = |compose: bool| {
        let limits =
            NormalizeLimits { residual: ResidualMode::Verify, compose, ..NormalizeLimits::default() };
        let found = normalize(&schema, &limits).unwrap();
        assert_eq!(found.lark.is_some(), compose);
        found.residual.into_iter().map(|left| left.keyword).collect::<Vec<_>>()
    };
    assert_eq!(left(false), ["contains", "uniqueItems"]);
    assert_eq!(left(true), ["uniqueItems"]);
}

#[test]
fn unique_items_are_left_open_where_they_are() {
    let tags = json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}});
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "array", "items": tags}, "b": {"$ref": "#/properties/a/items"}},
    });
    let found = verify(&schema);
    let mut places: Vec<_> = found.residual.iter().flat_map(|r| r.places.clone().unwrap()).collect();
    places.sort_by_key(Vec::len);
    assert_eq!(places, [vec![key("b")], vec![key("a"), Segment::AnyIndex]]);
    assert!(found.residual.iter().all(|r| r.schema == tags && r.keyword == "uniqueItems"));
}

#[test]
fn each_keyword_that_no_grammar_holds_has_its_residual() {
    let under = |schema: Value| json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
    let at = [vec![key("a")]];
    let at = Some(&at[..]);
    let path = "properties.a";
    check(
        &under(json!({"type": "array", "contains": {"type": "null"}, "maxItems": 90})),
        path,
        "contains",
        at,
        &[json!({"a": [1, null]})],
    );
    check(&under(json!({"type": "integer", "not": {"multipleOf": 7}})), path, "not", at, &[json!({"a": 8})]);
    check(
        &under(json!({"type": "string", "pattern": r"^(.)\1$"})),
        path,
        "pattern",
        at,
        &[json!({"a": "xx"})],
    );
    check(
        &under(json!({"not": {"patternProperties": {"^x": {"type": "string"}}}})),
        "properties.a.not",
        "patternProperties",
        at,
        &[json!({"a": {"x1": 3, "y": 4}})],
    );
    check(
        &under(json!({"type": "object", "minProperties": 3})),
        path,
        "minProperties",
        at,
        &[json!({"a": {"x": 1, "y": 2, "z": 3}})],
    );
    check(
        &json!({"type": "array", "contains": {"const": 1}, "maxItems": 2, "unevaluatedItems": {"type": "string"}}),
        "",
        "unevaluatedItems",
        Some(&[vec![]]),
        &[json!([1, "a"]), json!(["b", 1])],
    );
}

#[test]
fn only_the_count_of_many_optional_keys_stays_open() {
    let many: serde_json::Map<_, _> =
        (0..200).map(|i| (format!("k{i}"), json!({"type": "integer"}))).collect();
    for (keyword, count) in [("minProperties", 1), ("minProperties", 3), ("maxProperties", 2)] {
        let mut value = json!({"type": "object", "properties": many, "additionalProperties": false});
        value[keyword] = json!(count);
        let normalized = verify(&value);
        let named: Vec<_> = normalized.residual.iter().map(|left| (&*left.path, &*left.keyword)).collect();
        assert_eq!(named, [("", keyword)]);
        assert!(normalized.schema.to_string().contains("\"k199\""), "{keyword}");
    }
}

#[test]
fn unknown_parts_stay_open_under_not_as_well() {
    let schema = json!({"type": "string", "not": {"pattern": r"^(.)\1$"}, "maxLength": 3});
    check(&schema, "not", "pattern", Some(&[vec![]]), &[json!("xy"), json!("")]);
    let schema = json!({"oneOf": [{"pattern": r"^(.)\1$"}, {"minLength": 3}], "type": "string"});
    check(&schema, "oneOf[0]", "pattern", Some(&[vec![]]), &[json!("xx"), json!("xyz")]);
    let schema = json!({"enum": ["aa", "ab", 3], "pattern": r"^(.)\1$"});
    check(&schema, "", "pattern", Some(&[vec![]]), &[json!("aa"), json!(3)]);
}

#[test]
fn recursion_means_anywhere() {
    let schema = json!({
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "ids": {"type": "array", "uniqueItems": true}},
        "additionalProperties": false,
    });
    check(&schema, "properties.ids", "uniqueItems", None, &[json!({"next": {"ids": [1, 2]}})]);
}

#[test]
fn what_a_grammar_holds_has_no_residual() {
    for schema in [
        json!({"type": "array", "uniqueItems": true, "maxItems": 1}),
        json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        // One of several ways not to satisfy it is enough.
        json!({"not": {"type": "array", "items": {"type": "string"}, "minItems": 2}}),
    ] {
        assert_eq!(verify(&schema).residual, [], "{schema}");
    }
}

#[test]
fn mistakes_are_not_left_open() {
    let limits =
        NormalizeLimits { residual: ResidualMode::Verify, standard: true, ..NormalizeLimits::default() };
    for schema in [
        json!({"properties": {"a": {"type": "strin"}}}),
        json!({"oneOf": [{"pattern": "("}]}),
        json!({"not": {}}),
        json!({"$ref": "https://example.com/schema"}),
    ] {
        assert!(rewrite(&schema, &limits).is_err(), "{schema}");
    }
}

#[test]
fn what_can_be_held_beside_it_is_held() {
    let schema = json!({"type": "integer", "minimum": 0, "maximum": 99_999, "not": {"multipleOf": 7}});
    let found = verify(&schema);
    assert_eq!(found.residual.len(), 1);
    let matcher = crate::support::plain_matcher(&found.schema).unwrap();
    for (value, accepted) in
        [(json!(14), true), (json!(99_999), true), (json!(-1), false), (json!(100_000), false)]
    {
        assert_eq!(judge(matcher.deep_clone(), Instance::Value(&value)).accepted, accepted, "{value}");
    }
    assert!(!judge(matcher.deep_clone(), Instance::Value(&json!(1.5))).accepted);
}

/// Alternatives as of messages: the schema around them requires the key that tells them apart. Each has optional keys
/// besides, so that taking each other's apart one by one would take more alternatives than there may be.
fn messages(required: &[&str]) -> Value {
    let message = |i: usize| {
        let keys = ["a", "b", "c", "d"].map(|key| (format!("{key}{i}"), json!({"type": "integer"})));
        let mut properties: serde_json::Map<String, Value> = keys.into_iter().collect();
        properties.insert("kind".to_owned(), json!({"enum": [format!("k{i}")]}));
        json!({ "properties": properties })
    };
    json!({
        "type": "object",
        "properties": {"kind": {"type": "string"}},
        "required": required,
        "oneOf": (0..6).map(message).collect::<Vec<_>>(),
    })
}

#[test]
fn alternatives_are_told_apart_by_the_schema_around_them() {
    let schema = messages(&["kind"]);
    let found = verify(&schema);
    assert_eq!(found.residual, [], "{schema}");
    let matcher = crate::support::plain_matcher(&found.schema).unwrap();
    for (value, valid) in [
        (json!({"kind": "k0", "a0": 1}), true),
        (json!({"kind": "k5", "a5": 1, "b5": 2}), true),
        (json!({"kind": "k1", "a1": "x"}), false),
        (json!({"kind": "x"}), false),
        (json!({}), false),
    ] {
        assert_eq!(judge(matcher.deep_clone(), Instance::Value(&value)).accepted, valid, "{value}");
        assert_eq!(jsonschema::validator_for(&schema).unwrap().is_valid(&value), valid, "{value}");
    }
}

/// With the alternatives in a definition of its own, as code generators write them.
#[test]
fn alternatives_behind_a_reference_are_told_apart_by_what_stands_beside_it() {
    let mut message = messages(&["kind"]);
    let alternatives = message.as_object_mut().unwrap().remove("oneOf").unwrap();
    message["$ref"] = json!("#/$defs/any");
    message["$defs"] =
        json!({"any": {"$ref": "#/$defs/message"}, "message": {"type": "object", "oneOf": alternatives}});
    let found = verify(&message);
    assert_eq!(found.residual, [], "{message}");
    let matcher = crate::support::plain_matcher(&found.schema).unwrap();
    let validator = jsonschema::validator_for(&message).unwrap();
    for value in [
        json!({"kind": "k0", "a0": 1}),
        json!({"kind": "k5", "a5": 1, "b5": 2}),
        json!({"kind": "k1", "a1": "x"}),
        json!({"kind": "x"}),
        json!({}),
    ] {
        let accepted = judge(matcher.deep_clone(), Instance::Value(&value)).accepted;
        assert_eq!(accepted, validator.is_valid(&value), "{value}");
    }
}

/// What is valid under none of the alternatives is out all the same.
#[test]
fn alternatives_that_nothing_tells_apart_are_still_alternatives() {
    let schema = messages(&[]);
    check(&schema, "", "oneOf", Some(&[vec![]]), &[json!({"kind": "k0", "a0": 1}), json!({"kind": "k4"})]);
    let matcher = crate::support::plain_matcher(&verify(&schema).schema).unwrap();
    for value in [json!({"kind": "x"}), json!({"kind": "k0", "a0": "x"})] {
        assert!(!judge(matcher.deep_clone(), Instance::Value(&value)).accepted, "{value}");
    }
}
