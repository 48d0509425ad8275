//! Answers with a limit of tokens: complete and valid when they reach it, for every kind of grammar.

mod lists;
mod objects;

use llgtrt_core::{AdvanceBatch, AdvanceState, GrammarSpec, MaskSlot, MaskSource, SequenceId, TokenId};
use llgtrt_grammar::{CompiledGrammar, TokenLimit};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::random_schemas::arbitrary_schema;
use crate::support::{Bench, schema};

/// What an engine does.
#[derive(Clone, Copy, PartialEq)]
struct Engine {
    fast_forward: bool,
    retract: bool,
    /// Tokens are shown only once they are certain.
    holds_back: bool,
}

const EMBEDDED: Engine = Engine { fast_forward: true, retract: true, holds_back: false };
const HOLDING: Engine = Engine { holds_back: true, ..EMBEDDED };
const STEPPED: Engine = Engine { fast_forward: false, retract: true, holds_back: false };

/// An answer of at most `most` tokens, and whether it was completed because of the limit. `pick` chooses among the
/// allowed tokens.
fn generate(
    bench: &Bench,
    grammar: &CompiledGrammar,
    engine: Engine,
    most: usize,
    mut pick: impl FnMut(&[TokenId]) -> TokenId,
) -> (Vec<TokenId>, bool) {
    let id = SequenceId(7);
    bench.pool.register_within(id, grammar, TokenLimit { tokens: most, retract: engine.retract, turn: 0 });
    let mut tokens: Vec<TokenId> = Vec::new();
    let mut steps = 0;
    let closed = loop {
        steps += 1;
        assert!(steps < 20 * most + 100, "no end: {:?}", String::from_utf8_lossy(&bench.decode(&tokens)));
        let before = tokens.len();
        let (forced, state) = bench.advance(7, &tokens, engine.fast_forward);
        tokens.extend_from_slice(&forced);
        assert!(tokens.len() <= most, "{} tokens of {most}", tokens.len());
        match state {
            AdvanceState::Stop => break false,
            AdvanceState::Limit => break true,
            AdvanceState::Failed(error) => panic!("{error:?}"),
            AdvanceState::Retract { keep } => {
                let unseen = keep + 1 >= before || engine.holds_back;
                assert!(engine.retract && unseen, "only the last token, which nobody saw");
                tokens.truncate(keep);
            }
            AdvanceState::Sample => {}
        }
        assert!(tokens.len() < most, "cut at {most}: {:?}", String::from_utf8_lossy(&bench.decode(&tokens)));
        let allowed = bench.fill(7, &tokens).unwrap();
        let token = pick(&allowed);
        if token == bench.eos() {
            break false;
        }
        tokens.push(token);
    };
    bench.pool.remove(id);
    (tokens, closed)
}

fn json_of(bench: &Bench, tokens: &[TokenId]) -> Value {
    let text = String::from_utf8(bench.decode(tokens)).expect("whole characters");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

/// Prefers what goes on: text, digits, commas; never an end if anything else is allowed.
fn endless(bench: &Bench, seed: usize) -> impl FnMut(&[TokenId]) -> TokenId {
    let mut step = seed;
    move |allowed: &[TokenId]| {
        step = step.wrapping_mul(31).wrapping_add(7);
        let ends = |token: &TokenId| {
            *token == bench.eos() || bench.decode(&[*token]).iter().any(|byte| b"\"]}".contains(byte))
        };
        let open: Vec<TokenId> = allowed.iter().copied().filter(|token| !ends(token)).collect();
        if open.is_empty() { allowed[step % allowed.len()] } else { open[step % open.len()] }
    }
}

/// An item that takes several choices to write.
fn book() -> Value {
    json!({"type": "object", "properties": {"title": {"type": "string", "minLength": 12, "maxLength": 60},
        "year": {"type": "integer", "minimum": 1800, "maximum": 2030}, "kind": {"enum": ["adventure", "mystery"]}},
        "required": ["title", "year", "kind"], "additionalProperties": false})
}

#[test]
fn endless_answers_end_valid_at_every_limit_from_the_shortest_up() {
    let schemas = [
        json!({"type": "string"}),
        json!({"type": "string", "minLength": 12, "maxLength": 40}),
        json!({"type": "array", "items": {"type": "string"}}),
        json!({"type": "object", "additionalProperties": {"type": "array", "items":
            {"type": "integer", "minimum": -9, "maximum": 99999}}}),
        json!({"type": "object", "properties": {
            "name": {"type": "string"}, "value": {"type": "integer", "minimum": 100},
            "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 2},
            "child": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
            "required": ["name", "value", "tags", "child"], "additionalProperties": false}),
        json!({"type": "object", "properties": {"mail": {"type": "string", "format": "email"},
            "net": {"type": "string", "format": "ipv4"}, "day": {"type": "string", "format": "date"}},
            "required": ["mail", "net", "day"], "additionalProperties": false}),
        json!({"type": "string", "pattern": "^[a-z.]+@([a-z]+\\.)+[a-z]{2,}$"}),
        json!({"type": "object", "properties": {"id": {"type": "string", "format": "uuid"},
            "at": {"type": "string", "format": "date-time"}}, "required": ["id", "at"],
            "additionalProperties": false}),
        json!({"type": "array", "items": book(), "minItems": 2}),
        // What need not be begun takes more tokens than there may be.
        json!({"type": "object", "properties": {"deployment": {"type": "object", "properties": {
            "processors": {"type": "number", "minimum": 1}, "group": {"type": "string"},
            "instances": {"type": "integer"}, "maximum-over-capacity": {"type": "number", "minimum": 0},
            "megabytes-of-memory": {"type": "number", "minimum": 256}, "name": {"type": "string"}},
            "required": ["processors", "megabytes-of-memory", "maximum-over-capacity", "instances", "name"],
            "additionalProperties": false}}, "additionalProperties": false}),
    ];
    for bench in [Bench::bytes(), Bench::words()] {
        for value in &schemas {
            let grammar = bench.compile(&schema(&value.to_string()));
            let shortest = grammar.way_out().unwrap_or_else(|| panic!("no way out: {value}")).len();
            let validator = jsonschema::draft202012::new(value).unwrap();
            for engine in [EMBEDDED, STEPPED] {
                let more = [45, 80, 120, 200, 700, 1500].map(|more| shortest + more);
                for most in (shortest..shortest + 24).chain(more) {
                    let (tokens, _) = generate(&bench, &grammar, engine, most, endless(&bench, most));
                    let instance = json_of(&bench, &tokens);
                    assert!(validator.is_valid(&instance), "{instance} for {value}");
                }
            }
        }
    }
}

/// What fills a text up to its shortest length is dots or letters and few tokens, not escapes.
#[test]
fn short_texts_are_filled_readably() {
    let value = json!({"type": "object", "properties": {"name": {"type": "string", "minLength": 9, "maxLength": 24},
        "tags": {"type": "array", "items": {"type": "string", "minLength": 4, "maxLength": 12}, "minItems": 3}},
        "required": ["name", "tags"], "additionalProperties": false});
    for bench in [Bench::bytes(), Bench::words()] {
        let grammar = bench.compile(&schema(&value.to_string()));
        let shortest = grammar.way_out().expect("a way out");
        let text = String::from_utf8(bench.decode(shortest)).unwrap();
        let instance: Value = serde_json::from_str(&text).unwrap();
        assert!(jsonschema::is_valid(&value, &instance), "{text}");
        assert!(!text.contains('\\'), "{text}");
        assert_eq!(text.len(), instance.to_string().len(), "{text}");
        assert!(text.len() < r#"{"name":"","tags":["","",""]}"#.len() + 24 + 3 * 12, "{text}");
    }
}

/// What a check beside the grammar asks for, the end keeps to.
#[test]
fn ends_are_right_by_the_check_beside_the_grammar() {
    let many: serde_json::Map<_, _> =
        (0..200).map(|i| (format!("k{i}"), json!({"type": "integer"}))).collect();
    let schemas = [
        json!({"type": "object", "properties": many, "minProperties": 1}),
        json!({"type": "object", "properties": many, "minProperties": 3, "maxProperties": 4}),
        json!({"type": "object", "minProperties": 4, "additionalProperties": {"type": "string", "minLength": 2}}),
        json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "minItems": 4}),
        json!({"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string", "minLength": 3},
            "uniqueItems": true, "minItems": 3}}, "required": ["tags"], "additionalProperties": false}),
        json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true, "minItems": 13}),
        json!({"type": "array", "items": {"type": ["boolean", "null", "integer"]}, "uniqueItems": true, "minItems": 7}),
        json!({"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}, "uniqueItems": true, "minItems": 4}),
        json!({"type": "array", "items": {"type": "object", "properties": {"k": {"enum": ["a", "b", "c"]}, "v": {"type": "integer"}},
            "required": ["k", "v"], "additionalProperties": false}, "contains": {"properties": {"k": {"const": "c"}}},
            "minContains": 2, "minItems": 3, "uniqueItems": true}),
        json!({"type": "object", "properties": {"system-root-source": {"type": "string"}, "parts": {"type": "array",
            "items": {"type": "string"}, "uniqueItems": true}}, "required": ["parts"], "additionalProperties": false}),
    ];
    for bench in [Bench::bytes(), Bench::words()] {
        for value in &schemas {
            let grammar = bench.compile(&schema(&value.to_string()));
            let validator = jsonschema::draft202012::new(value).unwrap();
            let shortest = grammar.way_out().unwrap_or_else(|| panic!("no way out: {value}")).len();
            for most in (shortest..shortest + 24).chain([200, 700]) {
                let (tokens, _) = generate(&bench, &grammar, HOLDING, most, endless(&bench, most));
                let instance = json_of(&bench, &tokens);
                assert!(validator.is_valid(&instance), "{instance} for {value}");
            }
        }
    }
}

/// What is wrong may show many tokens later, near the limit; then there is no way out but from before it.
#[test]
fn messages_of_many_kinds_end_right_at_any_limit() {
    let (empty, text) =
        (json!({"type": "string", "maxLength": 0}), json!({"type": "string", "minLength": 1}));
    let (id, whole) =
        (json!({"type": "integer", "minimum": 1}), json!({"type": "number", "multipleOf": 1, "minimum": 1}));
    // Some key of many is missing: always so, but more ways to be one of the messages than are written out, so that
    // which one it has to be is left open.
    let lacks_one: Vec<Value> = (0..40).map(|i| json!({"properties": {format!("x{i}"): false}})).collect();
    let message = |kind: &str, argument: &Value, more: Value, required: Value| {
        let mut properties = json!({"msg": {"enum": [kind]}, "argument": argument});
        properties.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        json!({"properties": properties, "required": required, "anyOf": lacks_one})
    };
    let none = || json!([]);
    let data = json!({"type": "object", "patternProperties": {".": {"type": "number", "multipleOf": 1}}});
    let digits = json!({"minLength": 1, "pattern": "^[0-9]+$"});
    let (flag, time) = (json!({"type": "boolean"}), json!({"type": "string", "pattern": "^[0-9]*$"}));
    let kinds = [
        message("open", &empty, json!({"space": id, "host": text, "user": text}), json!(["space", "host"])),
        message("close", &empty, json!({}), none()),
        message("saveEnvironment", &empty, json!({}), none()),
        message(
            "execScript",
            &text,
            json!({"queryId": whole, "watch": flag, "at": time}),
            json!(["queryId"]),
        ),
        message(
            "execAndReturn",
            &text,
            json!({"queryId": whole, "contextId": id, "at": time}),
            json!(["queryId"]),
        ),
        message("execFile", &digits, json!({"queryId": whole, "at": time, "data": data}), json!(["queryId"])),
        message("help", &text, json!({}), none()),
        message("listVariables", &empty, json!({"delta": flag, "contextId": id}), json!(["delta"])),
        message("getVariable", &text, json!({"data": data, "contextId": id}), none()),
        message("clearEnvironment", &empty, json!({"contextId": id}), none()),
        message("createEnvironment", &text, json!({}), none()),
    ];
    let names: Vec<&Value> = kinds.iter().map(|kind| &kind["properties"]["msg"]["enum"][0]).collect();
    let value = json!({"type": "object", "minProperties": 2, "required": ["msg", "argument"], "oneOf": kinds,
        "properties": {"msg": {"type": "string", "enum": names}, "argument": {"type": "string"}}});
    let validator = jsonschema::draft202012::new(&value).unwrap();
    let bench = Bench::bytes();
    let grammar = bench.compile(&schema(&value.to_string()));
    assert!(grammar.is_verified());
    for most in [50, 60, 72, 78, 90, 120] {
        for seed in 0..12_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + most as u64;
            let any = |allowed: &[TokenId]| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // No exponents: the judge reads numbers as doubles.
                let is_exponent = |token: &&TokenId| b"eE".contains(&bench.decode(&[**token])[0]);
                let plain: Vec<TokenId> = allowed
                    .iter()
                    .filter(|token| **token == bench.eos() || !is_exponent(token))
                    .copied()
                    .collect();
                let from = if plain.is_empty() { allowed } else { &plain };
                from[(state >> 33) as usize % from.len()]
            };
            let (tokens, _) = generate(&bench, &grammar, HOLDING, most, any);
            let instance = json_of(&bench, &tokens);
            assert!(validator.is_valid(&instance), "{instance}");
        }
    }
}

#[test]
fn addresses_are_completed_shortly() {
    let value = json!({"type": "object", "properties": {"mail": {"type": "string", "format": "email"},
        "site": {"type": "string", "format": "uri"}}, "required": ["mail", "site"], "additionalProperties": false});
    for bench in [Bench::bytes(), Bench::words()] {
        let grammar = bench.compile(&schema(&value.to_string()));
        let shortest = grammar.way_out().expect("a way out");
        let instance: Value = serde_json::from_slice(&bench.decode(shortest)).unwrap();
        assert_eq!(instance, json!({"mail": "a@a.co", "site": "https://a.co"}));
    }
}

#[test]
fn other_kinds_of_grammar_end_complete_as_well() {
    let bench = Bench::words();
    let specs = [
        GrammarSpec::Regex("(ab)*c".to_owned()),
        GrammarSpec::Regex("[0-9]{3}-[a-z]+!".to_owned()),
        GrammarSpec::Choice(vec!["one".to_owned(), "twentyfive".to_owned()]),
        GrammarSpec::Lark("start: \"<\" /[a-z ]*/ \">\" (\"[\" /[0-9]+/ \"]\")*".to_owned()),
        GrammarSpec::Lark("start: \"“\" TEXT \"!\"\nTEXT: /[^!]+/".to_owned()),
        GrammarSpec::JsonObject,
    ];
    for spec in &specs {
        let grammar = bench.compile(spec);
        let shortest = grammar.way_out().unwrap_or_else(|| panic!("no way out: {spec:?}")).len();
        for most in (shortest.max(1)..shortest + 12).chain([120]) {
            let (tokens, _) = generate(&bench, &grammar, EMBEDDED, most, endless(&bench, most));
            let text = String::from_utf8(bench.decode(&tokens)).expect("whole characters");
            assert!(bench.takes(&grammar, &text), "{text:?} of {spec:?}");
        }
    }
}

#[test]
fn texts_that_only_end_behind_something_certain_get_there() {
    let schemas = [
        json!({"type": "string", "pattern": ".*\\.x$"}),
        json!({"type": "string", "pattern": "mid", "minLength": 30}),
        json!({"type": "string", "pattern": "^(?=.*[A-Z])(?=.*[0-9])(?=.*[#$]).{8,40}$"}),
        json!({"type": "string", "pattern": "^[a-z]+(?:, [a-z]+)* and [a-z]+\\.$"}),
        json!({"type": "array", "items": {"type": "string", "pattern": "^<a>[^>]*</a>$"}, "minItems": 2}),
        json!({"type": "object", "patternProperties": {"^k.*-end$": {"type": "integer"}},
            "additionalProperties": false, "minProperties": 1}),
    ];
    for bench in [Bench::bytes(), Bench::words()] {
        for value in &schemas {
            let grammar = bench.compile(&schema(&value.to_string()));
            assert!(!grammar.is_verified(), "{value}");
            let shortest = grammar.way_out().unwrap_or_else(|| panic!("no way out: {value}")).len();
            let validator = jsonschema::draft202012::new(value).unwrap();
            for most in (shortest..shortest + 10).chain([200]) {
                let (tokens, _) = generate(&bench, &grammar, STEPPED, most, endless(&bench, most));
                let instance = json_of(&bench, &tokens);
                assert!(validator.is_valid(&instance), "{instance} for {value}");
            }
        }
    }
}

#[test]
fn terminals_are_completed_whole() {
    let bench = Bench::words();
    let specs = [
        GrammarSpec::Regex(r".*\.tar\.gz".to_owned()),
        GrammarSpec::Lark(
            "start: \"SELECT \" NAME (\", \" NAME)* \" FROM \" NAME (\" WHERE \" NAME \" = \" VALUE)? \";\"\n\
             NAME: /[a-z][a-z0-9]*/\nVALUE: /'[^']*'/"
                .to_owned(),
        ),
        GrammarSpec::Lark("start: line{3} \"done\"\nline: /[a-z]+: [0-9]{4}-[0-9]{2}\\n/".to_owned()),
        GrammarSpec::Lark("start: /[0-9a-f]{300}/".to_owned()),
    ];
    for spec in &specs {
        let grammar = bench.compile(spec);
        let shortest = grammar.way_out().unwrap_or_else(|| panic!("no way out: {spec:?}")).len();
        for most in (shortest..shortest + 6).chain([400]) {
            let (tokens, _) = generate(&bench, &grammar, EMBEDDED, most, endless(&bench, most));
            let text = String::from_utf8(bench.decode(&tokens)).expect("whole characters");
            assert!(bench.takes(&grammar, &text), "{text:?} of {spec:?}");
        }
    }
}

/// Sequences that are near their limits are advanced by several threads at once, those with a check beside the grammar one after
/// the other.
#[test]
fn many_answers_at_once_end_as_each_does_alone() {
    let bench = Bench::words();
    let schemas = [
        r#"{"type": "array", "items": {"type": "string"}}"#,
        r#"{"type": "object", "properties": {"name": {"type": "string"}, "mail": {"type": "string", "format": "email"}},
            "required": ["name", "mail"]}"#,
        r#"{"type": "array", "items": {"type": "string"}, "uniqueItems": true, "minItems": 2}"#,
    ];
    let grammars = schemas.map(|source| bench.compile(&schema(source)));
    let pick = |allowed: &[TokenId], lane: usize| endless(&bench, lane)(allowed);
    let lanes = 0..64_usize;
    let alone: Vec<(Vec<TokenId>, bool)> = lanes
        .clone()
        .map(|lane| {
            let grammar = &grammars[lane % grammars.len()];
            generate(&bench, grammar, HOLDING, 40 + lane, |allowed| pick(allowed, lane))
        })
        .collect();
    for lane in lanes.clone() {
        let limit = TokenLimit { tokens: 40 + lane, retract: true, turn: 0 };
        bench.pool.register_within(SequenceId(lane as u64), &grammars[lane % grammars.len()], limit);
    }
    let mut open: Vec<(usize, Vec<TokenId>)> = lanes.map(|lane| (lane, Vec::new())).collect();
    let (mut out, mut ended) = (AdvanceBatch::default(), 0);
    while !open.is_empty() {
        let slots: Vec<MaskSlot<'_>> = open
            .iter()
            .map(|(lane, tokens)| MaskSlot { sequence: SequenceId(*lane as u64), tokens })
            .collect();
        out.clear();
        bench.pool.advance(&slots, true, &mut out);
        let mut index = 0;
        open.retain_mut(|(lane, tokens)| {
            let (forced, state) = out.get(index);
            index += 1;
            tokens.extend_from_slice(forced);
            match state {
                AdvanceState::Stop | AdvanceState::Limit => {
                    let (expected, closed) = &alone[*lane];
                    assert_eq!(*tokens, *expected, "{:?}", String::from_utf8_lossy(&bench.decode(tokens)));
                    assert_eq!(*state == AdvanceState::Limit, *closed, "lane {lane}");
                    ended += 1;
                    return false;
                }
                AdvanceState::Retract { keep } => tokens.truncate(*keep),
                AdvanceState::Sample => {}
                AdvanceState::Failed(error) => panic!("{error:?}"),
            }
            let allowed = bench.fill(*lane as u64, tokens).unwrap();
            tokens.push(pick(&allowed, *lane));
            true
        });
    }
    assert_eq!(ended, 64);
    assert!(alone.iter().filter(|(_, closed)| *closed).count() > 32, "most reach their limit");
}

#[test]
fn an_answer_that_ends_by_itself_is_left_alone() {
    let bench = Bench::words();
    let grammar = bench.compile(&schema(r#"{"enum": ["a", "b"]}"#));
    let (tokens, closed) = generate(&bench, &grammar, EMBEDDED, 50, |allowed| allowed[0]);
    assert!(!closed);
    assert!(json_of(&bench, &tokens).is_string());
}

#[test]
fn an_answer_without_a_known_way_out_goes_on_to_its_limit() {
    let bench = Bench::bytes();
    let grammar = bench.compile(&GrammarSpec::Regex("[0-9]{5000}".to_owned()));
    assert_eq!(grammar.way_out(), None, "it is longer than any search");
    for most in [1, 2, 9] {
        bench.pool.register_within(
            SequenceId(7),
            &grammar,
            TokenLimit { tokens: most, retract: true, turn: 0 },
        );
        let mut tokens = Vec::new();
        while tokens.len() < most {
            let (forced, state) = bench.advance(7, &tokens, true);
            assert!(forced.is_empty() && state == AdvanceState::Sample, "{state:?} after {}", tokens.len());
            tokens.push(bench.fill(7, &tokens).unwrap()[0]);
        }
        // Here the engine stops; a token that was taken back instead would be sampled again for ever.
        assert_eq!(bench.advance(7, &tokens, true).1, AdvanceState::Sample);
        bench.pool.remove(SequenceId(7));
    }
}

#[test]
fn without_withdrawing_it_closes_earlier() {
    let bench = Bench::words();
    let grammar = bench.compile(&schema(r#"{"type": "string"}"#));
    let letters = |allowed: &[TokenId]| if allowed.contains(&97) { 97 } else { allowed[0] };
    let engine = Engine { fast_forward: false, retract: false, holds_back: false };
    for most in [20, 60, 150] {
        let (tokens, closed) = generate(&bench, &grammar, engine, most, letters);
        assert!(closed && tokens.len() <= most);
        assert!(json_of(&bench, &tokens).is_string());
    }
}

#[test]
fn random_schemas_and_limits() {
    let bench = Bench::words();
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let input = (arbitrary_schema(), 0_usize..60, any::<u16>(), any::<bool>());
    runner
        .run(&input, |(value, more, seed, fast_forward)| {
            let grammar = bench.compile(&schema(&value.to_string()));
            let shortest = grammar.way_out().expect("a way out").len();
            let engine = Engine { fast_forward, retract: true, holds_back: false };
            let most = shortest.max(1) + more;
            let (tokens, _) = generate(&bench, &grammar, engine, most, endless(&bench, usize::from(seed)));
            let instance = json_of(&bench, &tokens);
            let validator = jsonschema::draft202012::new(&value).unwrap();
            prop_assert!(validator.is_valid(&instance), "{instance} for {value}");
            Ok(())
        })
        .unwrap();
}

#[test]
fn who_always_takes_what_leads_too_far_comes_to_the_end() {
    // Ten more may follow each ten, or nothing.
    for bench in [Bench::bytes(), Bench::words()] {
        let grammar = bench.compile(&GrammarSpec::Regex("([a-z]{10})+".to_owned()));
        for engine in [EMBEDDED, STEPPED] {
            for most in 10..35 {
                let goes_on = |allowed: &[TokenId]| {
                    *allowed.iter().find(|token| **token != bench.eos()).unwrap_or(&allowed[0])
                };
                let (tokens, _) = generate(&bench, &grammar, engine, most, goes_on);
                let length = bench.decode(&tokens).len();
                assert!(length > 0 && length % 10 == 0, "{length} letters within {most} tokens");
            }
        }
    }
}
