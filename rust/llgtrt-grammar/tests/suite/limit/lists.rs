//! Lists at a limit of tokens: how many items there have to be, and which.

use llgtrt_core::TokenId;
use llgtrt_grammar::GrammarConfig;
use serde_json::{Value, json};

use super::{EMBEDDED, HOLDING, book, endless, generate, json_of};
use crate::support::{Bench, Greedy, schema};

#[test]
fn lists_of_a_thousand_items_are_completed() {
    let bench = Bench::words();
    for items in [json!({"type": "string", "maxLength": 6}), json!({"type": "integer"}), json!([1, 2])] {
        let items = if items.is_array() { json!({"enum": [items, "a"]}) } else { items };
        let grammar =
            bench.compile(&schema(&json!({"type": "array", "items": items, "minItems": 1000}).to_string()));
        let (tokens, closed) = generate(&bench, &grammar, EMBEDDED, 4500, endless(&bench, 3));
        assert!(closed && json_of(&bench, &tokens).as_array().unwrap().len() >= 1000, "{items}");
    }
}

/// What must be there is followed by the end, however alike the items of a list are.
#[test]
fn a_list_ends_behind_the_items_that_it_must_have() {
    let long_text = json!({"type": "string", "minLength": 70});
    let book = book();
    let visit = json!({"type": "object", "properties": {"at": {"type": "string", "format": "date-time"},
        "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{12}$"}}, "required": ["at", "code"],
        "additionalProperties": false});
    let pairs =
        json!({"type": "array", "minItems": 3, "items": {"type": "array", "minItems": 2, "items": book}});
    let texts = json!({"type": "array", "minItems": 2, "items": {"type": "object", "properties": {
        "items": {"type": "number", "minimum": 0, "maximum": 1}, "comment_text": {"type": "string", "minLength": 43, "maxLength": 82}, "name": {"type": "string"}},
        "required": ["items", "comment_text", "name"], "additionalProperties": false}});
    // Objects of some thirty tokens, as vocabularies of models have them.
    let closing = Greedy::new(&["}]", "\"\"", "................", "items", "comment_text", "name"], 1);
    let config = GrammarConfig { standard: true, ..GrammarConfig::default() };
    for bench in [Bench::bytes(), Bench::words(), Bench::new(closing, config)] {
        let shortest = |value: &Value| {
            let grammar = bench.compile(&schema(&value.to_string()));
            let tokens = grammar.way_out().unwrap_or_else(|| panic!("no way out: {value}"));
            assert!(jsonschema::is_valid(value, &json_of(&bench, tokens)), "{value}");
            tokens.len()
        };
        for items in [&long_text, &book, &visit, &pairs, &texts] {
            let one = shortest(items);
            // As far as a search has masks for them: what differs from item to item takes some for each.
            for count in [1, 2, 3, 4, 7, 20].into_iter().filter(|count| count * (one + 2) < 2000) {
                let list = json!({"type": "array", "items": items, "minItems": count});
                for value in [
                    list.clone(),
                    json!({"anyOf": [{"type": "array", "items": items, "minItems": count}]}),
                    json!({"type": "object", "properties": {"all": list}, "required": ["all"], "additionalProperties": false}),
                ] {
                    let found = shortest(&value);
                    assert!(found <= count * (one + 2) + 20, "{found} tokens, {one} of an item: {value}");
                }
            }
        }
    }
}

/// Prefers what opens one more level.
#[test]
fn what_opens_again_and_again_is_closed() {
    let list = json!({"type": "object", "properties": {"v": {"type": "integer"},
        "next": {"type": "array", "items": {"$ref": "#"}}}, "required": ["v", "next"], "additionalProperties": false});
    for bench in [Bench::bytes(), Bench::words()] {
        let grammar = bench.compile(&schema(&list.to_string()));
        let shortest = grammar.way_out().unwrap().len();
        for most in shortest..shortest + 120 {
            let opens = |allowed: &[TokenId]| {
                let rank = |token: &TokenId| match bench.decode(&[*token]).as_slice() {
                    b"{" | b"[" => 0,
                    [b'0'..=b'9' | b'"' | b',' | b':', ..] => 1,
                    _ => 2,
                };
                allowed.iter().copied().min_by_key(|token| (rank(token), *token)).unwrap()
            };
            let (tokens, _) = generate(&bench, &grammar, EMBEDDED, most, opens);
            json_of(&bench, &tokens);
        }
    }
}

/// The item that a list has to contain may be one that nothing else leads to.
#[test]
fn lists_get_to_the_items_that_they_have_to_contain() {
    let list = |items: Value, contains: Value, min: u32| json!({"type": "array", "items": items, "contains": contains, "minContains": min, "minItems": 3});
    let object = |properties: Value| json!({"type": "object", "properties": properties, "additionalProperties": false});
    let (integer, string) = (json!({"type": "integer"}), json!({"type": "string"}));
    let schemas = [
        list(integer.clone(), json!({"const": 7}), 2),
        list(integer.clone(), json!({"minimum": 1000}), 1),
        list(json!({"enum": ["a", "ab", "b"]}), json!({"const": "ab"}), 3),
        list(string.clone(), json!({"pattern": "^[A-Z]{3}-[0-9]{4}$"}), 2),
        list(
            object(json!({"a": integer, "b": string})),
            json!({"properties": {"b": {"const": "x"}}, "required": ["b"]}),
            2,
        ),
        json!({"type": "array", "items": {"type": ["object", "string"]}, "contains": {"type": "object", "required": ["role"],
            "properties": {"role": {"const": "admin"}}}}),
        json!({"type": "array", "items": {"type": ["object", "boolean"]}, "contains": {"const": {"a": 1}}, "uniqueItems": true, "minItems": 3}),
        json!({"type": "array", "items": {"type": ["string", "integer"]}, "allOf": [{"contains": {"const": "x"}}, {"contains": {"const": "y"}},
            {"contains": {"type": "integer"}}]}),
    ];
    for bench in [Bench::bytes(), Bench::words()] {
        for value in &schemas {
            let grammar = bench.compile(&schema(&value.to_string()));
            let validator = jsonschema::draft202012::new(value).unwrap();
            let shortest = grammar.way_out().unwrap_or_else(|| panic!("no way out: {value}")).len();
            assert!(shortest < 50, "{shortest} tokens for {value}");
            for most in (shortest..shortest + 5).chain([100]) {
                let (tokens, _) = generate(&bench, &grammar, HOLDING, most, endless(&bench, most));
                let instance = json_of(&bench, &tokens);
                assert!(validator.is_valid(&instance), "{instance} for {value}");
            }
        }
    }
}

/// Nothing tells at its bracket how long a list has to be.
#[test]
fn a_list_that_cannot_be_finished_is_not_begun() {
    let value = json!({"anyOf": [{"type": "array", "items": book(), "minItems": 4}, {"type": "number"}, {"type": "null"}]});
    let validator = jsonschema::draft202012::new(&value).unwrap();
    for bench in [Bench::bytes(), Bench::words()] {
        let grammar = bench.compile(&schema(&value.to_string()));
        let bracket = bench.encode("[")[0];
        for most in (10..300).step_by(10) {
            let mut rest = endless(&bench, most);
            let opens = |allowed: &[TokenId]| {
                if allowed.contains(&bracket) { bracket } else { rest(allowed) }
            };
            let (tokens, _) = generate(&bench, &grammar, EMBEDDED, most, opens);
            assert!(validator.is_valid(&json_of(&bench, &tokens)), "{:?}", bench.decode(&tokens));
        }
    }
}
