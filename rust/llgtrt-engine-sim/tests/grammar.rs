//! Random answers under real grammars are valid and come to an end.

use std::sync::Arc;
use std::time::Duration;

use llgtrt_conformance::support::Bytes;
use llgtrt_core::{
    Engine, Finish, GrammarSpec, MaskSource, SamplingParams, SequenceId, SequenceSpec, StepBatch, StopCause,
    TokenId,
};
use llgtrt_engine_sim::{SimConfig, SimEngine};
use llgtrt_grammar::{GrammarCompiler, GrammarConfig, MaskPool};
use prometheus::Registry;

/// Answers to `grammar`, one per seed, and the number of forced tokens.
fn answers(grammar: &GrammarSpec, count: u64, fast_forward: bool) -> (Vec<String>, usize) {
    let tokenizer = Bytes::shared();
    let vocab_size = tokenizer.vocabulary().len();
    let (config, registry) = (GrammarConfig::default(), Registry::new());
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer), vocab_size, config.clone(), &registry)
        .expect("a compiler");
    let ready = compiler.compile(grammar).expect("a valid grammar");
    let pool = MaskPool::new(vocab_size, &config, &registry);
    let sim = SimConfig { max_batch_size: 8, fast_forward, ..SimConfig::default() };
    let masks = Arc::clone(&pool) as Arc<dyn MaskSource>;
    let mut engine = SimEngine::new(sim, tokenizer, masks).expect("a valid configuration");
    for seed in 0..count {
        pool.register(SequenceId(seed), &ready);
        engine
            .submit(SequenceSpec {
                id: SequenceId(seed),
                prompt: Arc::from([TokenId::from(b'?')]),
                max_tokens: 2000,
                sampling: SamplingParams { seed, ..SamplingParams::default() },
                stop_token_ids: Arc::from([]),
                constrained: true,
                prompt_logprobs: false,
                options: None,
                processor: None,
                phase: llgtrt_core::Phase::Whole,
            })
            .expect("accepted");
    }
    let (mut texts, mut forced) = (vec![Vec::new(); count as usize], 0);
    let mut batch = StepBatch::default();
    while engine.has_work() {
        batch.clear();
        engine.poll(Duration::from_millis(100), &mut batch).expect("alive");
        for (output, tokens) in batch.iter() {
            let text = &mut texts[output.id.0 as usize];
            text.extend(tokens.iter().filter(|t| t.token != Bytes::EOS).map(|t| t.token as u8));
            forced += tokens.iter().filter(|t| t.forced).count();
            match &output.finish {
                None | Some(Finish::Stop(StopCause::GrammarComplete | StopCause::EndOfSequence)) => {}
                Some(finish) => panic!("{finish:?} after {:?}", String::from_utf8_lossy(text)),
            }
        }
    }
    (texts.into_iter().map(|text| String::from_utf8(text).expect("readable text")).collect(), forced)
}

#[test]
fn objects_of_a_schema_end() {
    let schema = r#"{
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "height": {"type": "number", "minimum": 0, "maximum": 3},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["red", "green"]}, "minItems": 1},
            "address": {"type": "object", "properties": {"street": {"type": "string"}, "zip": {"type": "string",
                "pattern": "^[0-9]{5}$"}}, "required": ["zip"], "additionalProperties": false}
        },
        "required": ["name", "age", "height", "tags"],
        "additionalProperties": false
    }"#;
    for fast_forward in [true, false] {
        let (texts, forced) = answers(&GrammarSpec::JsonSchema(schema.to_owned()), 40, fast_forward);
        assert_eq!(forced > 0, fast_forward);
        for text in &texts {
            let value: serde_json::Value =
                serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            for key in ["name", "age", "height", "tags"] {
                assert!(value.get(key).is_some(), "{text}");
            }
        }
        assert!(texts.iter().any(|text| *text != texts[0]), "{}", texts[0]);
    }
}

#[test]
fn trees_and_free_objects_end() {
    let tree = r##"{"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
        "value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["value", "children"], "additionalProperties": false}}}"##;
    for grammar in [GrammarSpec::JsonSchema(tree.to_owned()), GrammarSpec::JsonObject] {
        for text in answers(&grammar, 40, true).0 {
            serde_json::from_str::<serde_json::Value>(&text)
                .unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }
}

#[test]
fn other_grammars_end() {
    let (texts, _) = answers(&GrammarSpec::Choice(vec!["yes".to_owned(), "no".to_owned()]), 20, true);
    assert!(texts.iter().all(|text| text == "yes" || text == "no"), "{texts:?}");
    let (texts, _) = answers(&GrammarSpec::Regex("[a-z]{3,40}=[0-9]+;".to_owned()), 20, true);
    assert!(texts.iter().all(|text| text.ends_with(';') && text.contains('=')), "{texts:?}");
}
