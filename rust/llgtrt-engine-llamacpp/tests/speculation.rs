//! Guesses at next tokens: they save forward passes and change no answer.

mod common;
#[path = "common/pair.rs"]
mod pair;
#[path = "common/patch.rs"]
mod patch;
#[path = "common/tensors.rs"]
mod tensors;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::*;
use llgtrt_core::{Engine, EngineStats, MaskSource, SamplingParams, SequenceSpec, TokenId};
use llgtrt_engine_llamacpp::{KvCacheType, LlamaCppConfig, LlamaCppEngine, LlamaCppModel, Speculation};
use patch::{TempFile, value_of};

const RECORD: &str = "Name: Ada Lovelace. Born: 10 December 1815, London. Died: 27 November 1852, Marylebone. Known for: \
    the first published algorithm for the Analytical Engine of Charles Babbage.";

/// Tests that count guesses take turns: how many there are follows from how long passes take.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The demo model with guesses and without. `None` where no kernels are there that give a token the same logits in
/// any batch: guesses are off then.
fn models() -> Option<(LlamaCppModel, LlamaCppModel)> {
    if !has_same_bits() {
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
    let _turn = alone();
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
    let _turn = alone();
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
    let _turn = alone();
    let Some((guessing, plain)) = models() else { return };
    let specs: Vec<SequenceSpec> = (1..=6).map(|id| quoting(&guessing, id)).collect();
    let (together, stats) = answers(&guessing, Arc::new(Script::default()), &specs);
    assert!(stats.draft_tokens > 0 && stats.accepted_draft_tokens <= stats.draft_tokens, "{stats:?}");
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
    let _turn = alone();
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

/// One model: with a small one beside it that says the same, with guesses from the text alone, and without guesses.
fn with_draft_model(change: impl Fn(&mut LlamaCppConfig)) -> Option<[LlamaCppModel; 3]> {
    models()?;
    let gguf = std::fs::read(model_path()?).unwrap();
    let (slow, small) = pair::pair(&gguf, value_of(&gguf, "llama.block_count"));
    let (slow, small) = (TempFile::new("slow", &slow), TempFile::new("small", &small));
    let load = |speculation, draft_model| {
        let mut config = LlamaCppConfig { speculation, draft_model, ..config(slow.path().to_owned()) };
        change(&mut config);
        LlamaCppModel::load(&config).unwrap()
    };
    let draft_model = Some(small.path().to_owned());
    Some([load(Speculation::Auto, draft_model), load(Speculation::Auto, None), load(Speculation::Off, None)])
}

/// A prompt whose answer nothing in the text foretells.
fn telling(model: &LlamaCppModel, id: u64) -> SequenceSpec {
    let words = ["river", "castle", "market", "storm", "garden", "engine"][id as usize % 6];
    spec(id, encode(model, &format!("The {words} was")), 40)
}

#[test]
fn a_small_model_saves_passes_and_changes_no_answer() {
    let _turn = alone();
    let Some([guessing, from_text, plain]) = with_draft_model(|_| {}) else { return };
    let none = || -> Arc<dyn MaskSource> { Arc::new(Script::default()) };
    let saved = || {
        let (mut passes, mut passes_without) = (0, 0);
        for id in 1..=3 {
            let sampling = SamplingParams { logprobs: Some(2), ..greedy() };
            let drawn = SamplingParams { temperature: 0.9, seed: id, ..SamplingParams::default() };
            for sampling in [sampling, drawn] {
                let specs = [SequenceSpec { sampling, ..telling(&guessing, id) }];
                let (quick, with) = answers(&guessing, none(), &specs);
                let (slow, without) = answers(&plain, none(), &specs);
                assert_eq!(quick[&id], slow[&id]);
                assert_eq!(without.forward_passes - with.forward_passes, with.accepted_draft_tokens);
                passes += with.forward_passes;
                passes_without += answers(&from_text, none(), &specs).1.forward_passes;
            }
        }
        passes_without.saturating_sub(passes)
    };
    // These texts soon repeat themselves: until then it is the small model that guesses. It is asked as far as that pays, by what
    // passes take: where others use the machine it may not pay for a while.
    assert!((0..6).any(|_| saved() > 5));
    // More than there are slots: what a slot holds of the sequence before it is of no use to the next one.
    let specs: Vec<SequenceSpec> = (1..=12).map(|id| telling(&guessing, id)).collect();
    let (together, _) = answers(&guessing, none(), &specs);
    for one in &specs {
        let (alone, _) = answers(&plain, none(), std::slice::from_ref(one));
        assert_eq!(together[&one.id.0].tokens, alone[&one.id.0].tokens);
    }
}

#[test]
fn a_small_model_goes_on_where_its_room_ends() {
    let _turn = alone();
    let change = |config: &mut LlamaCppConfig| config.max_sequence_tokens = Some(1400);
    let Some([guessing, _, plain]) = with_draft_model(change) else { return };
    let (engine, other) = (&mut engine(&guessing), &mut engine(&plain));
    let text = encode(&guessing, &"Storms come and go. ".repeat(400));
    for (id, length) in [(1, 990), (2, 1300), (3, 20)] {
        let one = spec(id, text[..length].to_vec(), 60);
        assert_eq!(run(engine, vec![one.clone()]), run(other, vec![one]));
    }
}

#[test]
fn guesses_of_a_small_model_keep_to_the_grammar() {
    let _turn = alone();
    let Some([guessing, _, plain]) = with_draft_model(|_| {}) else { return };
    let tokens =
        encode(&guessing, "{\"a\": \"An answer that the small model would not give\", \"b\": [1, 2, 3]}");
    let limit = tokens.len() as u32;
    let line = Line { tokens, runs: [(3, 2), (9, 1)].into_iter().collect(), ..Line::default() };
    let one = SequenceSpec { constrained: true, ..spec(1, encode(&guessing, "Answer:"), limit) };
    let (quick, _) = answers(&guessing, Script::new([(1, line.clone())]), std::slice::from_ref(&one));
    let (slow, _) = answers(&plain, Script::new([(1, line)]), &[one]);
    assert_eq!(quick[&1], slow[&1]);
}

#[test]
fn a_model_of_other_tokens_does_not_guess() {
    let Some(path) = model_path() else { return };
    let mut gguf = std::fs::read(&path).unwrap();
    let load = |draft: &std::path::Path| {
        let config = LlamaCppConfig {
            draft_model: Some(draft.to_owned()),
            speculation: Speculation::Auto,
            ..config(path.clone())
        };
        LlamaCppModel::load(&config).err().unwrap()
    };
    let missing = load(std::path::Path::new("/nonexistent/small.gguf"));
    assert_eq!(missing.param.as_deref(), Some("llamacpp.draft_model"));
    assert!(missing.message.contains("small.gguf"), "{missing:?}");

    let word = "\u{120}between".as_bytes();
    let at = gguf.windows(word.len()).position(|window| window == word).unwrap();
    gguf[at + word.len() - 1] = b'm';
    let other = TempFile::new("other-tokens", &gguf);
    let error = load(other.path());
    assert_eq!(error.param.as_deref(), Some("llamacpp.draft_model"));
    assert!(error.message.contains("is \" betweem\", not \" between\""), "{error:?}");
}
