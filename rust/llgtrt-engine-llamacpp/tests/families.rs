//! Models of many families: what each is made of differs in attention, norms, gates, experts, windows and states.

mod common;
#[path = "common/family.rs"]
mod family;
#[path = "common/patch.rs"]
mod patch;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::*;
use llgtrt_core::{Engine, SamplingParams, SequenceSpec, TokenId};
use llgtrt_engine_llamacpp::{LlamaCppConfig, LlamaCppEngine, LlamaCppModel, Speculation};
use patch::TempFile;

/// Families of whose answers' passes a part is llama.cpp's own, as far as is known.
const LEFT: &[&str] = &["bloom", "mpt"];

/// Where the process of [`reference`] writes to.
const REFERENCE: &str = "LLGTRT_TEST_REFERENCE";

const TEXT: &str =
    "The lighthouse keeper wrote down every ship that passed, its flag, its course and the hour. ";

fn load(path: &Path, change: impl FnOnce(&mut LlamaCppConfig)) -> LlamaCppModel {
    let mut config = config(path.to_owned());
    change(&mut config);
    LlamaCppModel::load(&config).unwrap()
}

/// The logits behind each token of a prompt but the last.
fn rows(model: &LlamaCppModel, prompt: &[TokenId]) -> Vec<Arc<[f32]>> {
    let mut spec = spec(1, prompt, 1);
    spec.prompt_logprobs = true;
    spec.sampling.logprobs = Some(1);
    spec.sampling.prompt_logits = true;
    spec.sampling.logits_rows = prompt.len() as u32;
    let answers = run(&mut engine(model), vec![spec]);
    let places = answers[&1].prompt_logprobs.clone().unwrap();
    places.into_iter().flatten().map(|place| place.row.unwrap()).collect()
}

/// Sequences that begin alike, with answers of many lengths: a slot's cells are cut and copied for others.
fn specs(model: &LlamaCppModel) -> Vec<SequenceSpec> {
    let spec = |id: u64| {
        let (text, notes) = (TEXT.repeat(1 + id as usize % 3), "more ".repeat(id as usize % 5));
        spec(id, encode(model, &format!("{text}Report {id} says {notes}")), 10 + (id as u32 * 7) % 40)
    };
    (0..16).map(spec).collect()
}

/// How much less likely the tokens of an answer are than the most likely ones, as a part of how much those stand out.
fn distance(model: &LlamaCppModel, prompt: &[TokenId], answer: &[TokenId]) -> f32 {
    let all: Vec<TokenId> = prompt.iter().chain(answer).copied().collect();
    let rows = rows(model, &all);
    let of = |(row, token): (&Arc<[f32]>, &TokenId)| {
        let most = row.iter().copied().fold(f32::MIN, f32::max);
        let mean = row.iter().sum::<f32>() / row.len() as f32;
        (most - row[*token as usize]) / (most - mean)
    };
    rows[prompt.len() - 1..].iter().zip(answer).map(of).fold(0.0, f32::max)
}

#[test]
fn answers_are_the_same_alone_and_beside_others() {
    let Some(tokenizer) = model_path() else { return };
    let mut guesses = 0;
    for (name, own) in family::all() {
        let file = TempFile::new(&name, b"");
        family::write(&name, &own, &tokenizer, file.path());
        let model = load(file.path(), |config| config.speculation = Speculation::Auto);
        let alone = load(file.path(), |config| {
            (config.max_batch_size, config.reuse_prefix) = (1, false);
        });
        let expected = run(&mut engine(&alone), specs(&model));
        let mut together = engine(&model);
        // The second time with what the slots hold of the first.
        for round in 0..2 {
            let answers = run(&mut together, specs(&model));
            for spec in specs(&model) {
                let (found, expected) = (answers[&spec.id.0].ids(), expected[&spec.id.0].ids());
                if found == expected {
                    continue;
                }
                assert!(LEFT.contains(&&*name) || !has_same_bits(), "{name}: answer {} differs", spec.id.0);
                let distance = distance(&alone, &spec.prompt, &found);
                assert!(
                    distance < 0.05,
                    "{name}, round {round}: answer {} is another: {distance}",
                    spec.id.0
                );
            }
        }
        let hits = together.stats().prefix_cache_hits;
        assert!(hits > 0, "{name} reuses nothing");
        let drafts = together.stats().draft_tokens;
        assert!(drafts == 0 || !LEFT.contains(&&*name), "{name} guesses");
        guesses += drafts;
    }
    assert!(guesses > 0 || !has_same_bits(), "no family guesses");
}

/// A model whose tokens cannot be taken back, and one like it that reuses nothing.
fn recurrent(slots: u32) -> Option<[LlamaCppModel; 2]> {
    let (tokenizer, own) = (model_path()?, family::all().remove("qwen35")?);
    let file = TempFile::new(&format!("recurrent-{slots}"), b"");
    family::write("qwen35", &own, &tokenizer, file.path());
    let of = |slots: u32, reuse: bool| {
        load(file.path(), |config| (config.max_batch_size, config.reuse_prefix) = (slots, reuse))
    };
    Some([of(slots, true), of(1, false)])
}

/// Prompts of `start`, of which the first numbers are as they are and the others differ.
fn prompt(same: usize, length: usize, other: u32) -> Vec<TokenId> {
    (0..length as u32)
        .map(|at| 100 + if (at as usize) < same { at } else { (at + other * 37) % 1500 })
        .collect()
}

#[test]
fn a_recurrent_model_goes_on_where_prompts_part() {
    let Some([model, alone]) = recurrent(1) else { return };
    let mut engine = engine(&model);
    let mut cached = |prompt: Vec<TokenId>| {
        let answers = run(&mut engine, vec![spec(1, prompt.clone(), 20)]);
        let expected = run(&mut common::engine(&alone), vec![spec(1, prompt, 20)]);
        assert_eq!(answers[&1].ids(), expected[&1].ids());
        answers[&1].cached.unwrap()
    };
    assert_eq!(cached(prompt(300, 300, 0)), 0);
    // As far as 16 tokens before its end, and no further.
    assert_eq!(cached(prompt(290, 310, 1)), 284);
    assert_eq!(cached(prompt(100, 200, 2)), 0, "nobody knew that they would part there");
    assert_eq!(cached(prompt(100, 210, 3)), 100);
    assert_eq!(cached(prompt(100, 300, 4)), 100);
    // There are two states at most, and this makes a third one: behind 100 tokens, 200, and 284.
    assert_eq!(cached(prompt(200, 300, 5)), 100);
    assert_eq!(cached(prompt(200, 300, 4)), 100);
    assert_eq!(cached(prompt(100, 300, 6)), 0, "that was the oldest");
}

#[test]
fn prompts_that_come_together_wait_for_what_they_share() {
    let Some([model, alone]) = recurrent(4) else { return };
    let mut engine = engine(&model);
    let specs: Vec<SequenceSpec> =
        (0..4).map(|id| spec(id, prompt(150, 200 + id as usize, id as u32), 12)).collect();
    let answers = run(&mut engine, specs.clone());
    for spec in specs {
        let id = spec.id.0;
        assert_eq!(answers[&id].cached, Some(if id == 0 { 0 } else { 150 }), "{id}");
        let expected = run(&mut common::engine(&alone), vec![spec]);
        assert_eq!(answers[&id].ids(), expected[&id].ids(), "{id}");
    }
}

/// Families of which llama.cpp can keep states behind more than the last token.
const KEEPING: [&str; 3] = ["lfm2", "nemotron_h", "qwen35"];

#[test]
fn guesses_leave_the_state_of_a_recurrent_model() {
    let Some(tokenizer) = model_path() else { return };
    if !has_same_bits() {
        return;
    }
    let mut refused = 0;
    for name in KEEPING {
        let file = TempFile::new(&format!("guessing-{name}"), b"");
        // So wide that the states of some tokens are small beside the weights.
        let (key, mut own) = ("feed_forward_length", family::all()[name].clone());
        own[key] = if name == "nemotron_h" { [0, 0, 8192].into() } else { 4096.into() };
        family::write(name, &own, &tokenizer, file.path());
        let with = |speculation| {
            load(file.path(), |config| (config.max_batch_size, config.speculation) = (1, speculation))
        };
        let [guessing, plain] = [Speculation::Auto, Speculation::Off].map(with);
        let text = encode(&guessing, &TEXT.repeat(2));
        // An answer that repeats the prompt, and goes on otherwise at some places; the grammar forces a run at others.
        let mut tokens = text.clone();
        for at in [9, 17, 30, 31] {
            tokens[at] = 100 + at as TokenId;
        }
        let line = || Line { tokens: tokens.clone(), runs: [(5, 6), (20, 3)].into(), ..Line::default() };
        let one = SequenceSpec { constrained: true, ..spec(1, text.clone(), tokens.len() as u32) };
        let logprobs = SamplingParams { logprobs: Some(3), ..greedy() };
        let answer = |model: &LlamaCppModel| {
            let mut engine = LlamaCppEngine::new(model, Script::new([(1, line())])).unwrap();
            let first = run(&mut engine, vec![one.clone()]);
            // Goes on behind what the slot holds.
            let behind = [&one.prompt[..], &first[&1].ids()].concat();
            let second = SequenceSpec { sampling: logprobs.clone(), ..spec(2, behind, 40) };
            let second = run(&mut engine, vec![second]);
            (first[&1].clone(), second[&2].clone(), engine.stats())
        };
        let (found, right) = (answer(&guessing), answer(&plain));
        assert!(found.0 == right.0 && found.1 == right.1, "{name}");
        let (with, without) = (found.2, right.2);
        assert!(with.accepted_draft_tokens > 20, "{name}: {with:?}");
        assert!(
            with.forward_passes + with.accepted_draft_tokens / 2 < without.forward_passes,
            "{name}: {with:?} {without:?}"
        );
        refused += with.draft_tokens - with.accepted_draft_tokens;
    }
    assert!(refused > 0);
}

fn written(folder: &Path, name: &str, kind: &str) -> std::path::PathBuf {
    folder.join(format!("{name}.{kind}"))
}

/// Whether this machine may be one on which attention multiplies numbers of bfloat16.
fn may_attend_in_bfloat16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[test]
fn logits_are_those_of_llama_cpp() {
    let Some(tokenizer) = model_path() else { return };
    let folder = std::env::temp_dir().join(format!("llgtrt-families-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    for (name, own) in family::all() {
        family::write(&name, &own, &tokenizer, &written(&folder, &name, "gguf"));
    }
    // llama.cpp's own kernels compute in a process of which no model uses ours.
    let tests = std::env::current_exe().unwrap();
    let child =
        Command::new(tests).args(["--exact", "reference", "--ignored"]).env(REFERENCE, &folder).output();
    let child = child.unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    for (name, own) in family::all() {
        let model = load(&written(&folder, &name, "gguf"), |_| ());
        let found = rows(&model, &encode(&model, &TEXT.repeat(3)));
        let bytes = std::fs::read(written(&folder, &name, "rows")).unwrap();
        let mut expected = bytes.chunks(4).map(|number| f32::from_le_bytes(number.try_into().unwrap()));
        let mut rows: Vec<(f64, f64)> = Vec::new();
        for row in &found {
            let pairs = row.iter().zip(&mut expected);
            rows.push(pairs.fold((0.0, 0.0), |(error, size), (found, expected)| {
                (error + f64::from(found - expected).powi(2), size + f64::from(expected).powi(2))
            }));
        }
        if own.get("expert_count").is_some() && may_attend_in_bfloat16() {
            // With numbers of eight bits another expert may be chosen: so it may be with two rows of a hundred.
            rows.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
            rows.truncate(rows.len() - rows.len() * 2 / 100);
        }
        let (error, size) = rows.iter().fold((0.0, 0.0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
        println!("{name}: {:.1e}", error / size);
        assert!(error < 1e-3 * size, "{name}: {:.1e}", error / size);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Writes the logits of the models in a folder, by llama.cpp's own kernels.
#[test]
#[ignore = "a part of logits_are_those_of_llama_cpp"]
fn reference() {
    let Some(folder) = std::env::var_os(REFERENCE) else { return };
    let folder = Path::new(&folder);
    for name in family::all().keys() {
        let model = load(&written(folder, name, "gguf"), |config| config.repack = false);
        let rows = rows(&model, &encode(&model, &TEXT.repeat(3)));
        let bytes: Vec<u8> =
            rows.iter().flat_map(|row| row.iter()).flat_map(|logit| logit.to_le_bytes()).collect();
        std::fs::write(written(folder, name, "rows"), bytes).unwrap();
    }
}
