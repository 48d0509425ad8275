//! Reports on grammars: errors, rules, instances, bounds.

use std::sync::Arc;

use crate::support::Greedy;
use llgtrt_core::{ErrorKind, GrammarSpec};
use llgtrt_grammar::{GrammarCompiler, GrammarConfig, Report, ReportRequest};
use llgtrt_schema::ResidualMode;
use serde_json::{Value, json};

fn compiler(config: GrammarConfig) -> Arc<GrammarCompiler> {
    GrammarCompiler::alone(Arc::new(Greedy::new(&crate::support::WORDS, 1)), config).unwrap()
}

fn request(spec: GrammarSpec, instances: &[Value]) -> ReportRequest {
    ReportRequest {
        spec,
        residual: Some(ResidualMode::Refuse),
        instances: instances.iter().map(Value::to_string).collect(),
        places: vec![(String::new(), "json_schema".to_owned())],
    }
}

fn report(spec: GrammarSpec, instances: &[Value]) -> Report {
    compiler(GrammarConfig::default()).report(request(spec, instances)).unwrap()
}

fn schema(schema: &Value) -> GrammarSpec {
    GrammarSpec::JsonSchema(schema.to_string())
}

fn person() -> Value {
    json!({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"], "additionalProperties": false})
}

#[track_caller]
fn accepted(report: &Report) -> Vec<Option<bool>> {
    assert!(report.ok, "{:?}", report.errors);
    report.instances.iter().map(|verdict| verdict.accepted).collect()
}

#[test]
fn a_good_schema_is_described() {
    let report = report(schema(&person()), &[]);
    assert!(report.ok && report.errors.is_empty() && report.residual.is_empty());
    // The schema is compiled as it is; its numbers are kept short beside it.
    assert!(report.rules.iter().all(|rule| rule.name == "digits"), "{:?}", report.rules);
    assert_eq!(report.normalized, Some(person()));
    assert!(report.grammar_size.unwrap() > 5 && report.compile_ms > 0.0);
    // `{` and `{"`.
    assert_eq!(report.first_mask_tokens, Some(2));
    let text = serde_json::to_value(&report).unwrap();
    for member in ["ok", "errors", "rules", "normalized", "grammar_size", "compile_ms", "first_mask_tokens"] {
        assert!(!text[member].is_null(), "{member}");
    }
}

#[test]
fn rules_are_counted() {
    let one = json!({"oneOf": [{"type": "string"}, {"type": "null"}]});
    let source = json!({"type": "object", "properties": {"a": one, "b": one, "c": {"type": "string", "format": "color"}}});
    let report = report(schema(&source), &[]);
    let names: Vec<&str> = report.rules.iter().map(|rule| rule.name).collect();
    assert!(names.contains(&"one-of") && names.contains(&"unknown-format"), "{names:?}");
    let one_of = report.rules.iter().find(|rule| rule.name == "one-of").unwrap();
    assert_eq!(one_of.count, one_of.paths.len());
    assert!(one_of.paths[0].starts_with("json_schema.properties.a"), "{:?}", one_of.paths);
    assert!(!report.normalized.unwrap().to_string().contains("oneOf"));
}

#[test]
fn values_count_in_any_order_and_texts_as_they_are() {
    let instances = [
        json!({"name": "x", "age": 1}),
        json!({"age": 1, "name": "x"}),
        json!({"name": "x"}),
        json!({"name": "x", "age": "1"}),
        json!("{\"name\": \"x\", \"age\": 1}"),
        json!("{\"age\":1,\"name\":\"x\"}"),
        json!("hello"),
        json!(null),
    ];
    let report = report(schema(&person()), &instances);
    let yes = Some(true);
    let no = Some(false);
    assert_eq!(accepted(&report), [yes, yes, no, no, yes, no, no, no]);
    let order = report.instances[5].reason.as_deref().unwrap();
    assert!(order.contains("accepted as a value"), "{order}");
    assert_eq!(report.instances[5].rejected_at, Some(2));
    for verdict in &report.instances {
        assert_eq!(verdict.accepted == no, verdict.rejected_at.is_some() && verdict.reason.is_some());
    }
}

#[test]
fn a_string_may_be_the_text_or_the_value() {
    let spec = schema(&json!({"type": "string", "maxLength": 3}));
    let report = report(spec, &[json!("abc"), json!("\"abc\""), json!("abcd"), json!(1)]);
    assert_eq!(accepted(&report), [Some(true), Some(true), Some(false), Some(false)]);
    assert_eq!(report.instances[2].text.as_deref(), Some("\"abcd\""));
    assert_eq!(report.instances[2].rejected_at, Some(4));
    let cut = self::report(schema(&person()), &[json!("{\"name\": \"x\"")]);
    assert_eq!((cut.instances[0].rejected_at, cut.instances[0].text.as_ref()), (Some(12), None));
}

#[test]
fn other_kinds_judge_texts() {
    let regex = GrammarSpec::Regex("[a-c]+é?[0-9]{2}".to_owned());
    let report = self::report(regex, &[json!("abc12"), json!("abé1"), json!("abéx"), json!("\"abc12\"")]);
    assert_eq!(accepted(&report), [Some(true), Some(false), Some(false), Some(false)]);
    assert_eq!(report.instances[1].rejected_at, Some(4));
    assert_eq!(report.instances[2].rejected_at, Some(3));
    assert!(report.normalized.unwrap().as_str().unwrap().contains("[a-c]"));
    let choice = GrammarSpec::Choice(vec!["yes".to_owned(), "no".to_owned()]);
    assert_eq!(accepted(&self::report(choice, &[json!("yes"), json!("ye")])), [Some(true), Some(false)]);
    let lark = GrammarSpec::Lark("start: \"n=\" /[0-9]+/".to_owned());
    assert_eq!(accepted(&self::report(lark, &[json!("n=12"), json!("n=")])), [Some(true), Some(false)]);
    let list = json!({"grammars": [{"json_schema": {"type": "integer"}}]}).to_string();
    assert_eq!(
        accepted(&self::report(GrammarSpec::Llguidance(list), &[json!(3), json!("3")])),
        [Some(true); 2]
    );
}

#[test]
fn every_error_is_found_with_its_keyword_and_advice() {
    let source = json!({"type": "object", "properties": {
        "a": {"type": "stsring"},
        "b c": {"type": "string", "pattern": "((("},
        "d": {"type": "array", "items": {"minLength": -1, "type": "string"}},
        "e": {"$ref": "#/$defs/nowhere"},
        "f": {"type": "array", "uniqueItems": true, "items": {"type": "number"}},
        "good": {"type": "null"}
    }});
    let report = report(schema(&source), &[json!({})]);
    assert!(!report.ok && report.normalized.is_none() && report.first_mask_tokens.is_none());
    let found: Vec<(&str, &str)> = report
        .errors
        .iter()
        .map(|problem| (problem.path.as_str(), problem.keyword.as_deref().unwrap_or("")))
        .collect();
    for expected in [
        ("json_schema.properties.a.type", "type"),
        ("json_schema.properties[\"b c\"].pattern", "pattern"),
        ("json_schema.properties.d.items.minLength", "minLength"),
        ("json_schema.properties.e.$ref", "$ref"),
        ("json_schema.properties.f.uniqueItems", "uniqueItems"),
    ] {
        assert!(found.contains(&expected), "{expected:?} in {found:?}");
    }
    assert_eq!(found.len(), 5, "{found:?}");
    for problem in &report.errors {
        assert!(problem.message.contains(problem.keyword.as_deref().unwrap()), "{problem:?}");
        assert!(problem.hint.as_ref().is_some_and(|hint| !hint.is_empty()), "{problem:?}");
    }
    assert_eq!(report.instances[0].accepted, None);
}

#[test]
fn errors_without_a_place_end_the_search() {
    for source in ["false", "3", "{", r#"{"type":"integer","minimum":5,"maximum":1}"#] {
        let report = report(GrammarSpec::JsonSchema(source.to_owned()), &[]);
        assert!(!report.ok, "{source}");
        assert_eq!(report.errors.len(), 1, "{source}");
        assert!(report.errors[0].path.starts_with("json_schema"), "{source}");
    }
    let choices = GrammarSpec::Choice(vec![String::new(), "a".to_owned(), String::new()]);
    let paths: Vec<String> = report(choices, &[]).errors.into_iter().map(|problem| problem.path).collect();
    assert_eq!(paths, ["json_schema[0]", "json_schema[2]"]);
    assert!(!report(GrammarSpec::Lark("start: missing".to_owned()), &[]).ok);
    assert!(!report(GrammarSpec::Regex("(?=a)".to_owned()), &[]).errors[0].hint.as_ref().unwrap().is_empty());
}

#[test]
fn verified_constraints_are_listed() {
    let source = json!({"type": "array", "uniqueItems": true, "items": {"type": "number"}});
    let ask = ReportRequest { residual: Some(ResidualMode::Verify), ..request(schema(&source), &[]) };
    let report = compiler(GrammarConfig::default()).report(ask).unwrap();
    assert!(report.ok, "{:?}", report.errors);
    assert_eq!(report.residual[0].keyword, "uniqueItems");
    assert_eq!(report.residual[0].path, "json_schema");
}

#[test]
fn limits_of_instances_are_the_requests_error() {
    let compiler = compiler(GrammarConfig::default());
    let mut ask = request(GrammarSpec::JsonObject, &[]);
    ask.instances = vec!["1".to_owned(); 1000];
    let error = compiler.report(ask).unwrap_err();
    assert_eq!((error.kind, error.param.as_deref()), (ErrorKind::InvalidRequest, Some("instances")));
}

#[test]
fn a_late_report_says_so() {
    let compiler = compiler(GrammarConfig { compile_deadline_ms: 0, ..GrammarConfig::default() });
    let report = compiler.report(request(schema(&person()), &[json!({})])).unwrap();
    assert!(!report.ok);
    assert!(report.errors[0].message.contains("limit of 0 ms"), "{report:?}");
    assert_eq!(report.instances[0].accepted, None);
}

#[test]
fn hostile_schemas_are_reported() {
    let deep = format!("{}{}", "{\"not\":".repeat(500), "}".repeat(500));
    let wide: Vec<Value> =
        (0..60).map(|i| json!({"required": [format!("k{i}")], "type": "object"})).collect();
    for source in [
        deep,
        json!({"oneOf": wide}).to_string(),
        json!({"$ref": "#"}).to_string(),
        json!({"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}).to_string(),
        json!({"type": "array", "minItems": 1_000_000_000}).to_string(),
        "[".repeat(100_000),
    ] {
        let report = report(GrammarSpec::JsonSchema(source), &[json!({"a": 1})]);
        assert_eq!(report.ok, report.errors.is_empty());
    }
}

#[test]
fn whole_numbers_with_a_point_are_integers_since_draft_6() {
    let integer = |draft: &str| json!({"$schema": draft, "type": "integer"});
    let four = report(schema(&integer("http://json-schema.org/draft-04/schema#")), &[json!(5), json!(5.0)]);
    assert_eq!(accepted(&four), [Some(true), Some(false)]);
    let seven = report(schema(&integer("http://json-schema.org/draft-07/schema#")), &[json!(5), json!(5.0)]);
    assert_eq!(accepted(&seven), [Some(true), Some(true)]);
}
