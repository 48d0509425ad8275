//! The mask pool: forced tokens, ends, idempotence, failures, and parallel equal to serial.

use crate::support::{Bench, Greedy, WORDS, allowed, schema};
use llgtrt_core::{
    AdvanceBatch, AdvanceState, GrammarSpec, MaskBatch, MaskSlot, MaskSource, MaskVerdict, SequenceId,
    TokenId,
};
use llgtrt_grammar::{GrammarConfig, spawn_big_stack};

const PERSON: &str = r#"{"type":"object","properties":{"name":{"enum":["Jo","John","日本"]},"value":{"const":"the aaa"}},
    "required":["name","value"],"additionalProperties":false,"x-guidance":{"whitespace_flexible":false}}"#;

/// Generates under masks, taking the allowed token that `pick` names, until the grammar ends.
fn generate(
    bench: &Bench,
    id: u64,
    fast_forward: bool,
    mut pick: impl FnMut(&[TokenId]) -> TokenId,
) -> (Vec<TokenId>, usize) {
    let (mut tokens, mut forced_count) = (Vec::new(), 0);
    for _ in 0..2000 {
        let (forced, state) = bench.advance(id, &tokens, fast_forward);
        forced_count += forced.len();
        tokens.extend_from_slice(&forced);
        match state {
            AdvanceState::Stop | AdvanceState::Limit => return (tokens, forced_count),
            AdvanceState::Failed(_) | AdvanceState::Retract { .. } => panic!("{state:?}"),
            AdvanceState::Sample => {}
        }
        let allowed = bench.fill(id, &tokens).unwrap();
        tokens.push(pick(&allowed));
    }
    panic!("no end");
}

#[test]
fn forced_tokens_are_those_that_masks_force() {
    for bench in [Bench::bytes(), Bench::words()] {
        let grammar = bench.compile(&schema(PERSON));
        let vocabulary_end = bench.tokenizer.vocabulary().len() as TokenId;
        for seed in 0..6 {
            // The same choice wherever there is one.
            let pick = |allowed: &[TokenId]| allowed[seed % allowed.len()];
            bench.pool.register(SequenceId(1), &grammar);
            let (plain, none) = generate(&bench, 1, false, pick);
            bench.pool.register(SequenceId(2), &grammar);
            let (fast, forced) = generate(&bench, 2, true, pick);
            assert_eq!(plain, fast);
            assert_eq!(none, 0);
            assert!(forced > plain.len() / 2, "{forced} of {}", plain.len());
            assert!(plain.iter().all(|&token| token < vocabulary_end));
            serde_json::from_slice::<serde_json::Value>(&bench.decode(&plain)).unwrap();
        }
    }
}

#[test]
fn nothing_is_forced_without_a_canonical_tokenizer() {
    let bench = Bench::new(
        Greedy::new(&WORDS, 1).not_canonical(),
        GrammarConfig { standard: true, ..GrammarConfig::default() },
    );
    let grammar = bench.compile(&schema(PERSON));
    bench.pool.register(SequenceId(1), &grammar);
    let (_, forced) = generate(&bench, 1, true, |allowed| allowed[0]);
    assert_eq!(forced, 0);
}

#[test]
fn long_constants_are_forced_in_runs() {
    let bench = Bench::bytes();
    let text = "abcdefgh".repeat(100);
    let grammar = bench.compile(&GrammarSpec::Choice(vec![text.clone()]));
    bench.pool.register(SequenceId(1), &grammar);
    let mut tokens = Vec::new();
    let mut runs = 0;
    loop {
        let (forced, state) = bench.advance(1, &tokens, true);
        assert!(forced.len() <= 256);
        tokens.extend(forced);
        runs += 1;
        if state == AdvanceState::Stop {
            break;
        }
        assert!(runs < 10);
    }
    assert_eq!(bench.decode(&tokens), text.as_bytes());
    assert!(runs > 1);
}

#[test]
fn every_end_of_sequence_token_ends() {
    let bench = Bench::words();
    let eos = bench.tokenizer.vocabulary().eos().to_vec();
    assert_eq!(eos.len(), 2);
    let grammar = bench.compile(&GrammarSpec::Regex("a+".to_owned()));
    for &end in &eos {
        bench.pool.register(SequenceId(1), &grammar);
        let mut tokens = bench.encode("aaaa");
        assert_eq!(bench.advance(1, &tokens, true), (vec![], AdvanceState::Sample));
        let allowed = bench.fill(1, &tokens).unwrap();
        assert!(eos.iter().all(|token| allowed.contains(token)), "{allowed:?}");
        tokens.push(end);
        assert_eq!(bench.advance(1, &tokens, true), (vec![], AdvanceState::Stop));
        assert_eq!(bench.fill(1, &tokens), Err(MaskVerdict::Stop));
        // Nothing follows the end.
        tokens.push(bench.encode("a")[0]);
        assert!(matches!(bench.advance(1, &tokens, true).1, AdvanceState::Failed(_)));
    }
    // Not before the grammar can end.
    bench.pool.register(SequenceId(1), &grammar);
    assert!(!bench.fill(1, &[]).unwrap().contains(&eos[1]));
    assert!(matches!(bench.advance(1, &[eos[0]], true).1, AdvanceState::Failed(_)));
}

#[test]
fn an_end_token_may_follow_a_complete_grammar() {
    let bench = Bench::words();
    let grammar = bench.compile(&GrammarSpec::Choice(vec!["true".to_owned()]));
    bench.pool.register(SequenceId(1), &grammar);
    let (forced, state) = bench.advance(1, &[], true);
    assert_eq!((bench.decode(&forced), state), (b"true".to_vec(), AdvanceState::Stop));
    let mut tokens = forced;
    tokens.push(bench.eos());
    assert_eq!(bench.advance(1, &tokens, true).1, AdvanceState::Stop);
}

#[test]
fn end_tokens_are_never_forced() {
    let bench = Bench::words();
    let grammar = bench.compile(&GrammarSpec::Lark("start: \"aa\" <|end0|>".to_owned()));
    bench.pool.register(SequenceId(1), &grammar);
    let (forced, state) = bench.advance(1, &[], true);
    assert!(!forced.contains(&bench.eos()));
    assert_eq!(state, AdvanceState::Sample);
    let allowed = bench.fill(1, &forced).unwrap();
    assert_eq!(allowed, vec![bench.eos()]);
    let mut tokens = forced;
    tokens.push(bench.eos());
    assert!(!matches!(bench.advance(1, &tokens, true).1, AdvanceState::Failed(_)));
}

#[test]
fn calls_may_be_repeated() {
    let bench = Bench::words();
    let grammar = bench.compile(&schema(PERSON));
    bench.pool.register(SequenceId(1), &grammar);
    let first = bench.advance(1, &[], true);
    assert!(!first.0.is_empty());
    assert_eq!(bench.advance(1, &[], true), first);
    let mut tokens = first.0;
    let mask = bench.fill(1, &tokens).unwrap();
    assert_eq!(bench.fill(1, &tokens).unwrap(), mask);
    tokens.push(mask[0]);
    let second = bench.advance(1, &tokens, true);
    assert_eq!(bench.advance(1, &tokens, true), second);
    // Without advance, fill takes new tokens itself.
    bench.pool.register(SequenceId(2), &grammar);
    let text = bench.encode(r#"{"name":"J"#);
    for count in 0..=text.len() {
        let row = bench.fill(2, &text[..count]).unwrap();
        assert!(count == text.len() || row.contains(&text[count]));
    }
}

#[test]
fn a_list_that_shrinks_or_lacks_forced_tokens_fails() {
    let bench = Bench::words();
    let grammar = bench.compile(&schema(PERSON));
    bench.pool.register(SequenceId(1), &grammar);
    let text = bench.encode(r#"{"name":"J"#);
    bench.advance(1, &text, false);
    assert!(matches!(bench.fill(1, &text[..2]), Err(MaskVerdict::Failed(_))));
    assert!(matches!(bench.advance(1, &text[..2], false).1, AdvanceState::Failed(_)));
    assert!(matches!(bench.fill(1, &text), Err(MaskVerdict::Failed(_))), "a failure is final");

    bench.pool.register(SequenceId(2), &grammar);
    let (forced, _) = bench.advance(2, &[], true);
    assert!(matches!(bench.fill(2, &[]), Err(MaskVerdict::Failed(_))));
    let mut other = forced.clone();
    other[0] ^= 1;
    assert!(matches!(bench.advance(2, &other, true).1, AdvanceState::Failed(_)));
}

#[test]
fn unknown_sequences_fail() {
    let bench = Bench::bytes();
    assert!(matches!(bench.advance(9, &[], true).1, AdvanceState::Failed(_)));
    assert!(matches!(bench.fill(9, &[]), Err(MaskVerdict::Failed(_))));
    let grammar = bench.compile(&GrammarSpec::JsonObject);
    bench.pool.register(SequenceId(9), &grammar);
    assert!(bench.fill(9, &[]).is_ok());
    bench.pool.remove(SequenceId(9));
    assert!(bench.pool.is_empty());
    assert!(matches!(bench.fill(9, &[]), Err(MaskVerdict::Failed(_))));
}

#[test]
fn a_batch_of_another_shape_fails() {
    let bench = Bench::bytes();
    let grammar = bench.compile(&GrammarSpec::JsonObject);
    bench.pool.register(SequenceId(1), &grammar);
    let mut batch = MaskBatch::default();
    batch.reset(1, bench.vocab_size + 64);
    bench.pool.fill(&[MaskSlot { sequence: SequenceId(1), tokens: &[] }], &mut batch);
    assert!(matches!(batch.verdict(0), MaskVerdict::Failed(_)));
}

/// Grammars and texts of 64 sequences, each at its own position.
fn lanes(bench: &Bench) -> Vec<(llgtrt_grammar::CompiledGrammar, Vec<TokenId>)> {
    let person = bench.compile(&schema(PERSON));
    let object = bench.compile(&GrammarSpec::JsonObject);
    let regex = bench.compile(&GrammarSpec::Regex("[a-z]{2,40}(12|13)*".to_owned()));
    (0..64)
        .map(|lane| match lane % 3 {
            0 => (person.clone(), bench.encode(r#"{"name":"John","value":"the aaa"}"#)),
            1 => (object.clone(), bench.encode(r#"{"a":[1,{"b":"日本 é"},null],"c":[[12],"x"]}"#)),
            _ => (regex.clone(), bench.encode("helloaaathe121312131213")),
        })
        .collect()
}

#[test]
fn parallel_masks_equal_serial_masks() {
    let bench = Bench::words();
    let lanes = lanes(&bench);
    for (lane, (grammar, _)) in lanes.iter().enumerate() {
        bench.pool.register(SequenceId(lane as u64), grammar);
        bench.pool.register(SequenceId(1000 + lane as u64), grammar);
    }
    let compare = move || {
        let (mut batch, mut out) = (MaskBatch::default(), AdvanceBatch::default());
        for step in 0..24 {
            // Lanes are at different positions, and a bad token ends one lane early.
            let tokens: Vec<Vec<TokenId>> = lanes
                .iter()
                .enumerate()
                .map(|(lane, (_, text))| {
                    let mut tokens = text[..step.min(text.len()).saturating_sub(lane % 5)].to_vec();
                    if lane == 10 && step >= 9 {
                        tokens.truncate(8);
                        tokens.push(0);
                    }
                    tokens
                })
                .collect();
            let slots: Vec<MaskSlot<'_>> = tokens
                .iter()
                .enumerate()
                .map(|(lane, tokens)| MaskSlot { sequence: SequenceId(lane as u64), tokens })
                .collect();
            out.clear();
            bench.pool.advance(&slots, false, &mut out);
            batch.reset(slots.len(), bench.vocab_size);
            bench.pool.fill(&slots, &mut batch);
            for (lane, tokens) in tokens.iter().enumerate() {
                let serial = bench.fill(1000 + lane as u64, tokens);
                let parallel = match batch.verdict(lane) {
                    MaskVerdict::Mask => Ok(allowed(batch.row(lane))),
                    other => Err(other.clone()),
                };
                assert_eq!(parallel, serial, "lane {lane}, step {step}");
                assert_eq!(
                    matches!(parallel, Err(MaskVerdict::Failed(_))),
                    lane == 10 && step >= 9,
                    "lane {lane}, step {step}: {parallel:?}"
                );
            }
        }
    };
    // Once on a thread like an engine's, once (inside `fill`) on the pool's threads.
    spawn_big_stack("engine", compare).unwrap().join().unwrap();
}

#[test]
fn a_failed_slot_leaves_its_neighbours_alone() {
    let bench = Bench::words();
    let grammar = bench.compile(&schema(PERSON));
    let good = bench.encode(r#"{"name":"J"#);
    let mut bad = good.clone();
    bad.push(0);
    let expected = {
        bench.pool.register(SequenceId(50), &grammar);
        bench.fill(50, &good).unwrap()
    };
    for id in 0..3 {
        bench.pool.register(SequenceId(id), &grammar);
    }
    let slots = [(0, &good), (1, &bad), (2, &good), (77, &good)]
        .map(|(id, tokens)| MaskSlot { sequence: SequenceId(id), tokens });
    let mut out = AdvanceBatch::default();
    bench.pool.advance(&slots, false, &mut out);
    let failed: Vec<bool> = (0..4).map(|i| matches!(out.get(i).1, AdvanceState::Failed(_))).collect();
    assert_eq!(failed, [false, true, false, true]);
    let mut batch = MaskBatch::default();
    batch.reset(4, bench.vocab_size);
    bench.pool.fill(&slots, &mut batch);
    for index in [0, 2] {
        assert_eq!(*batch.verdict(index), MaskVerdict::Mask);
        assert_eq!(allowed(batch.row(index)), expected);
    }
    for index in [1, 3] {
        assert!(matches!(batch.verdict(index), MaskVerdict::Failed(_)));
    }
}

#[test]
fn grammars_learn_without_changing() {
    let bench = Bench::words();
    let grammar = bench.compile(&GrammarSpec::JsonObject);
    let text = bench.encode(r#"{"a":[1,{"b":"日本 é"},null],"value":-12.5e3}"#);
    let before = grammar.bytes();
    let mut rounds = Vec::new();
    for id in 0..3 {
        bench.pool.register(SequenceId(id), &grammar);
        let masks: Vec<_> = (0..text.len()).map(|count| bench.fill(id, &text[..count]).unwrap()).collect();
        rounds.push(masks);
        bench.pool.remove(SequenceId(id));
    }
    assert!(grammar.bytes() > before);
    assert_eq!(rounds[0], rounds[1]);
    assert_eq!(rounds[1], rounds[2]);
}

/// Masks of one sequence over its tokens.
fn masks(bench: &Bench, spec: &GrammarSpec, id: u64, tokens: &[TokenId]) -> Vec<Vec<TokenId>> {
    bench.pool.register(SequenceId(id), &bench.compile(spec));
    let all = (0..=tokens.len())
        .map(|count| {
            bench.advance(id, &tokens[..count], false);
            bench.fill(id, &tokens[..count]).unwrap()
        })
        .collect();
    bench.pool.remove(SequenceId(id));
    all
}

/// Many states: every position of the text, for every count of words.
fn wordy() -> GrammarSpec {
    schema(r#"{"type":"string","pattern":"^(?:[a-z]+ ){0,40}[a-z]+$","maxLength":400}"#)
}

#[test]
fn lexers_have_a_bound_together_and_masks_stay_the_same() {
    let text = format!("\"{}", "abc de f ".repeat(12));
    let roomy = Bench::new(Greedy::new(&crate::support::WORDS, 1), GrammarConfig::default());
    let tokens = roomy.encode(&text);
    let expected = masks(&roomy, &wordy(), 1, &tokens);
    let config = GrammarConfig { lexer_memory_megabytes: 0, ..GrammarConfig::default() };
    let tight = Bench::new(Greedy::new(&crate::support::WORDS, 1), config);
    assert_eq!(masks(&tight, &wordy(), 1, &tokens), expected);
    tight.pool.register(SequenceId(2), &tight.compile(&wordy()));
    tight.advance(2, &tokens, false);
    tight.fill(2, &tokens).unwrap();
    roomy.pool.register(SequenceId(2), &roomy.compile(&wordy()));
    for count in 0..=tokens.len() {
        roomy.advance(2, &tokens[..count], false);
        roomy.fill(2, &tokens[..count]).unwrap();
    }
    assert!(tight.pool.lexer_bytes() <= roomy.pool.lexer_bytes());
    for bench in [&tight, &roomy] {
        bench.pool.remove(SequenceId(2));
        assert_eq!(bench.pool.lexer_bytes(), 0);
    }
}

#[test]
fn a_lexer_that_is_full_begins_anew() {
    let text = format!("\"{}", "abc de f ".repeat(12));
    let mut config = GrammarConfig::default();
    let roomy = Bench::new(Greedy::new(&crate::support::WORDS, 1), config.clone());
    let tokens = roomy.encode(&text);
    let expected = masks(&roomy, &wordy(), 1, &tokens);
    config.limits.max_lexer_states = 400;
    let full = Bench::new(Greedy::new(&crate::support::WORDS, 1), config);
    assert_eq!(masks(&full, &wordy(), 1, &tokens), expected);
}
