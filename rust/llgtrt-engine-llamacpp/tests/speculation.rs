//! Guesses at next tokens: they save forward passes and change no answer.

mod common;

use std::sync::Arc;

use common::*;
use llgtrt_core::{Engine, EngineStats, MaskSource, SamplingParams, SequenceSpec, TokenId};
use llgtrt_engine_llamacpp::{KvCacheType, LlamaCppEngine, LlamaCppModel, Speculation};

const RECORD: &str = "Name: Ada Lovelace. Born: 10 December 1815, London. Died: 27 November 1852, Marylebone. Known for: \
    the first published algorithm for the Analytical Engine of Charles Babbage.";

/// The demo model with guesses and without. `None` where no kernels are there that give a token the same logits in
/// any batch: guesses are off then.
fn models() -> Option<(LlamaCppModel, LlamaCppModel)> {
    #[cfg(target_arch = "x86_64")]
    let kernels = is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni");
    #[cfg(not(target_arch = "x86_64"))]
    let kernels = false;
    if !kernels {
        return None;
    }
    let with = |speculation| model_with(|config| config.speculation = speculation);
    Some((with(Speculation::Auto)?, with(Speculation::Off)?))
}

fn answers(
    model: &LlamaCppModel,
    masks: Arc<dyn MaskSource>,
    specs: &[SequenceSpec],
) -> (Answers, EngineStats) {
    let mut engine = LlamaCppEngine::new(model, masks).unwrap();
    let answers = run(&mut engine, specs.to_vec());
    (answers, engine.stats())
}

/// A prompt that its answer repeats.
fn quoting(model: &LlamaCppModel, id: u64) -> SequenceSpec {
    let prompt = format!(
        "<|im_start|>user\nRepeat this {id} times: {RECORD}<|im_end|>\n<|im_start|>assistant\n{RECORD}\n"
    );
    let sampling = SamplingParams { logprobs: Some(2), ..greedy() };
    SequenceSpec { sampling, ..spec(id, encode(model, &prompt), 60) }
}

#[test]
fn an_answer_takes_fewer_passes() {
    let Some((guessing, plain)) = models() else { return };
    let mut accepted = 0;
    for id in [2, 4, 8] {
        let specs = [quoting(&guessing, id)];
        let none: Arc<dyn MaskSource> = Arc::new(Script::default());
        let (quick, with) = answers(&guessing, Arc::clone(&none), &specs);
        let (slow, without) = answers(&plain, none, &specs);
        assert_eq!(without.draft_tokens, 0);
        assert!(with.accepted_draft_tokens <= with.draft_tokens);
        assert_eq!(quick[&id], slow[&id]);
        let saved = without.forward_passes - with.forward_passes;
        assert_eq!(saved, with.accepted_draft_tokens, "each saves a pass");
        accepted += with.accepted_draft_tokens;
    }
    assert!(accepted > 10, "{accepted}");
}

#[test]
fn a_grammar_is_asked_token_by_token() {
    let Some((guessing, plain)) = models() else { return };
    let text = format!("{{\"a\": \"{RECORD}\", \"b\": \"{RECORD}\"}}");
    let tokens: Vec<TokenId> = encode(&guessing, &text);
    let prompt = encode(&guessing, &format!("{text}\n{text}\n"));
    let limit = tokens.len() as u32;
    // Forced runs at places that no guess knows of, and answers that end in the middle of a guess.
    for (runs, max_tokens) in
        [(vec![], limit), (vec![(3, 5), (20, 7), (40, 1), (41, 12)], limit), (vec![(10, 4)], 33), (vec![], 1)]
    {
        let line = Line { tokens: tokens.clone(), runs: runs.into_iter().collect(), ..Line::default() };
        let one = SequenceSpec { constrained: true, ..spec(1, prompt.clone(), max_tokens) };
        let script = Script::new([(1, line.clone())]);
        let (quick, with) = answers(&guessing, Arc::<Script>::clone(&script), std::slice::from_ref(&one));
        let (slow, without) = answers(&plain, Script::new([(1, line)]), &[one]);
        assert_eq!(quick[&1], slow[&1]);
        assert_eq!(quick[&1].tokens.len() as u32, max_tokens);
        if max_tokens == limit {
            assert!(with.forward_passes * 2 < without.forward_passes, "{with:?} {without:?}");
        }
        let asked: Vec<usize> = script
            .calls
            .lock()
            .unwrap()
            .iter()
            .filter(|call| call.0 == "advance")
            .map(|call| call.2)
            .collect();
        assert!(asked.is_sorted() && asked.len() > 1 || max_tokens == 1, "{asked:?}");
    }
}

#[test]
fn several_sequences_keep_their_cells_apart() {
    let Some((guessing, plain)) = models() else { return };
    let specs: Vec<SequenceSpec> = (1..=6).map(|id| quoting(&guessing, id)).collect();
    let (together, stats) = answers(&guessing, Arc::new(Script::default()), &specs);
    assert!(stats.draft_tokens >= stats.accepted_draft_tokens);
    for one in &specs {
        let (alone, _) = answers(&plain, Arc::new(Script::default()), std::slice::from_ref(one));
        assert_eq!(together[&one.id.0], alone[&one.id.0]);
    }
    // What was guessed wrong has left the cache: the next answer starts from the right cells.
    let mut engine = engine(&guessing);
    let again = quoting(&guessing, 2);
    let first = run(&mut engine, vec![again.clone()]);
    let mut longer = again.prompt.to_vec();
    longer.extend(first[&2].ids());
    let next = spec(7, longer, 8);
    let next = SequenceSpec { sampling: SamplingParams { logprobs: Some(2), ..greedy() }, ..next };
    let reused = run(&mut engine, vec![next.clone()]);
    assert!(reused[&7].cached.is_some_and(|cached| cached as usize >= next.prompt.len() - 2));
    let fresh = run(&mut self::engine(&guessing), vec![next]);
    assert_eq!(reused[&7].tokens, fresh[&7].tokens);
}

#[test]
fn guesses_are_off_where_they_could_change_an_answer() {
    for (cache, speculation, guesses) in [
        (KvCacheType::Q8_0, Speculation::Auto, false),
        (KvCacheType::Q8_0, Speculation::On, true),
        (KvCacheType::F16, Speculation::Off, false),
    ] {
        let model = model_with(|config| {
            config.kv_cache_type = cache;
            config.speculation = speculation;
        });
        let Some(model) = model else { return };
        let (_, stats) = answers(&model, Arc::new(Script::default()), &[quoting(&model, 2)]);
        assert_eq!(stats.draft_tokens > 0, guesses, "{cache:?} {speculation:?}");
    }
}
