//! The normaliser on arbitrary and hostile schemas: it answers, within its bounds, and does not panic.

use llgtrt_schema::{NormalizeLimits, Normalized, Reason, ResidualMode, SchemaError, normalize, rewrite};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn on_big_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    llgtrt_grammar::spawn_big_stack("normalize", work).expect("a thread").join().expect("no panic")
}

fn limits() -> NormalizeLimits {
    NormalizeLimits { max_steps: 2_000_000, standard: true, ..NormalizeLimits::default() }
}

fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(nodes).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

fn run(schema: &Value) -> Result<Normalized, SchemaError> {
    let schema = schema.clone();
    on_big_stack(move || rewrite(&schema, &limits()))
}

const KEYWORDS: [&str; 48] = [
    "type",
    "enum",
    "const",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "$defs",
    "definitions",
    "$id",
    "$anchor",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$schema",
];

fn atoms() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-5_i64..20).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "string",
            "object",
            "array",
            "integer",
            "#",
            "#/$defs/a",
            "#/definitions/a",
            "#/properties/a",
            "#a",
            "a",
            "^a",
            "(?!a)b",
            "(a|b)*$",
            "[",
            "email",
            "regex",
            "uri",
            "http://json-schema.org/draft-04/schema#",
            "x/y",
        ])
        .prop_map(Value::from),
    ]
    .boxed()
}

fn anything() -> BoxedStrategy<Value> {
    atoms()
        .prop_recursive(6, 60, 5, |inner| {
            let key = prop_oneof![
                4 => prop::sample::select(&KEYWORDS[..]).prop_map(str::to_owned),
                1 => prop::sample::select(vec!["a", "b", "^a"]).prop_map(str::to_owned),
            ];
            prop_oneof![
                1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                4 => prop::collection::vec((key, inner), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect::<Map<String, Value>>())),
            ]
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_json_is_answered_within_bounds(schema in anything(), verify in any::<bool>()) {
        let copy = schema.clone();
        let result = on_big_stack(move || {
            let residual = if verify { ResidualMode::Verify } else { ResidualMode::Refuse };
            let limits = NormalizeLimits { residual, ..limits() };
            let first = normalize(&copy, &limits);
            let _ = rewrite(&copy, &limits);
            first
        });
        match result {
            Ok(normalized) => {
                prop_assert!(normalized.spent.steps <= limits().max_steps);
                prop_assert!(nodes(&normalized.schema) <= 2 * limits().max_nodes + nodes(&schema));
                prop_assert!(verify || normalized.residual.is_empty());
            }
            Err(error) => prop_assert!(error.spent.steps <= limits().max_steps && error.is_deterministic()),
        }
    }
}

#[test]
fn deep_and_wide_schemas_are_bounded() {
    // Deep values are dropped on their thread as well.
    on_big_stack(check_deep_and_wide_schemas);
}

fn check_deep_and_wide_schemas() {
    let nested = |key: &str, n: usize, list: bool| {
        (0..n).fold(json!({"type": "string", "not": {"const": "x"}}), |inner, _| {
            if list { json!({ key: [inner, {"minLength": 1}] }) } else { json!({ key: inner }) }
        })
    };
    for key in ["not", "items", "additionalProperties", "contains", "if", "propertyNames"] {
        let _ = run(&nested(key, 2000, false));
    }
    let error = run(&nested("items", 3000, false)).unwrap_err();
    assert_eq!(error.reason, Reason::TooDeep, "{error:?}");
    for key in ["allOf", "anyOf", "oneOf", "prefixItems"] {
        let _ = run(&nested(key, 2000, true));
    }
    // 2^30 alternatives.
    let bits: Vec<Value> = (0..30)
        .map(|i| json!({"oneOf": [{"required": [format!("a{i}")]}, {"required": [format!("b{i}")]}]}))
        .collect();
    let error = run(&json!({"type": "object", "allOf": bits})).unwrap_err();
    assert_eq!(error.reason, Reason::TooLarge, "{error:?}");
    assert!(!error.path.is_empty() || !error.keyword.is_empty());
    let _ = run(&json!({"type": "string", "not": {"pattern": "(a|b)*a(a|b){18}$"}}));
    let _ = run(&json!({"type": "string", "pattern": "^(?=.*a.{40}b)(?=.*b.{30}c).{1000}$"}));
    let _ = run(&json!({"allOf": vec![json!({"pattern": "a.{30}b"}); 5], "maxLength": 60}));
    let keys: Map<String, Value> = (0..3000).map(|i| (format!("k{i}"), json!({"type": "string"}))).collect();
    run(&json!({"type": "object", "properties": keys, "not": {"required": ["k1", "k2"]}})).unwrap();
    let _ = run(&json!({"properties": keys, "minProperties": 2, "maxProperties": 40}));
    // Bombs of references.
    let mut defs = Map::new();
    for i in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
        defs.insert(format!("d{i}"), json!({"oneOf": [next, {"properties": {format!("p{i}"): next}}]}));
    }
    defs.insert("d40".to_owned(), json!({"type": "object"}));
    let _ = run(&json!({"$ref": "#/$defs/d0", "$defs": defs}));
}

#[test]
fn circles_of_references_are_refused_or_finite() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"not": {"$ref": "#"}}),
        json!({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    ] {
        assert!(run(&schema).unwrap_err().message.contains("back to itself"), "{schema}");
    }
    let endless = json!({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}});
    assert!(run(&endless).unwrap_err().message.contains("allows nothing"));
    let tree = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "not": {"required": ["b"]}});
    assert_eq!(run(&tree).unwrap().schema["$defs"].as_object().map(Map::len), Some(1));
}

#[test]
fn plain_schemas_come_out_unchanged() {
    for schema in [
        json!({}),
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]+$"}}, "required": ["a"]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "null"}, {"enum": [1, "x"]}]}}, "title": "T"}),
    ] {
        let normalized =
            normalize(&schema, &NormalizeLimits { standard: true, ..NormalizeLimits::default() }).unwrap();
        assert_eq!(normalized.schema, schema);
        assert!(normalized.rules.is_empty() && normalized.residual.is_empty());
    }
}

#[test]
fn refusals_name_path_keyword_and_hint() {
    let refuse = |schema: Value, param: &str| {
        let error = run(&schema).unwrap_err();
        assert_eq!(error.param(), param, "{error:?}");
        assert!(!error.message.is_empty() && !error.hint.is_empty(), "{error:?}");
    };
    let items = json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true});
    refuse(json!({"properties": {"a": {"items": items}}}), "properties.a.items.uniqueItems");
    refuse(
        json!({"$defs": {"t": {"contains": {"const": 1}}}, "items": {"$ref": "#/$defs/t"}}),
        "$defs.t.contains",
    );
    refuse(json!({"properties": {"x": {"$ref": "other.json#/a"}}}), "properties.x.$ref");
    refuse(json!({"properties": {"x": {"pattern": r"(a)\1"}}}), "properties.x.pattern");
}

#[test]
fn residual_is_named_when_it_may_be_verified() {
    let schema =
        json!({"properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}});
    let limits =
        NormalizeLimits { residual: ResidualMode::Verify, standard: true, ..NormalizeLimits::default() };
    let normalized = on_big_stack(move || normalize(&schema, &limits)).unwrap();
    assert_eq!(normalized.residual.len(), 1);
    assert_eq!(
        (normalized.residual[0].path.as_str(), normalized.residual[0].keyword.as_str()),
        ("properties.a", "uniqueItems")
    );
}
