//! Vectors of the demo model: llama.cpp's own, whatever parts a text comes in and whatever runs beside it.

mod common;

use std::mem::ManuallyDrop;
use std::num::NonZeroU32;

use common::*;
use llama_cpp_2::context::params::{LlamaContextParams, LlamaPoolingType};
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use llgtrt_core::{EmbedText, Embedder, ErrorKind, TokenId};
use llgtrt_engine_llamacpp::{EmbedderConfig, LlamaCppEmbedder, LlamaCppModel, Pooling};

const TEXTS: [&str; 4] = [
    "The capital of France is Paris.",
    "a",
    "Once upon a time there was a small village at the foot of a mountain, where nobody had ever seen the sea, \
     and where all the houses had doors that were painted blue.",
    "Die Katze sitzt auf der Matte.",
];

/// llama.cpp's vectors of token lists, pooled by itself, each alone.
fn reference(texts: &[Vec<TokenId>], pooling: LlamaPoolingType) -> Vec<Vec<f32>> {
    // The embedder under test shares the backend, so it must not be freed here.
    let backend = ManuallyDrop::new(LlamaBackend::init().unwrap_or(LlamaBackend {}));
    let model =
        LlamaModel::load_from_file(&backend, model_path().unwrap(), &LlamaModelParams::default()).unwrap();
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(512))
        .with_n_threads(1)
        .with_n_threads_batch(1)
        .with_embeddings(true)
        .with_pooling_type(pooling);
    let mut context = model.new_context(&backend, params).unwrap();
    let mut vectors = Vec::new();
    for text in texts {
        context.clear_kv_cache();
        let mut batch = LlamaBatch::new(512, 1);
        let tokens: Vec<LlamaToken> = text.iter().map(|&token| LlamaToken(token as i32)).collect();
        batch.add_sequence(&tokens, 0, true).unwrap();
        context.decode(&mut batch).unwrap();
        vectors.push(context.embeddings_seq_ith(0).unwrap().to_vec());
    }
    vectors
}

fn embedder(model: &LlamaCppModel, pooling: Pooling, batch_tokens: u32) -> LlamaCppEmbedder {
    let config = EmbedderConfig { pooling, max_tokens: Some(128), batch_tokens };
    LlamaCppEmbedder::new(model, model, &config).unwrap()
}

/// The vectors of texts that are submitted together, and the steps that they took.
fn vectors(embedder: &mut LlamaCppEmbedder, texts: &[Vec<TokenId>]) -> (Vec<Vec<f32>>, usize) {
    let mut answers = vec![None; texts.len()];
    let mut next = 0;
    let mut steps = 0;
    while answers.iter().any(Option::is_none) {
        while next < texts.len() && next - answers.iter().flatten().count() < embedder.traits().max_inputs {
            embedder.submit(next as u64, texts[next].clone(), false);
            next += 1;
        }
        let mut done = Vec::new();
        embedder.step(&mut done).unwrap();
        steps += 1;
        assert!(steps < 10_000, "no end");
        for (id, vector) in done {
            assert!(answers[id as usize].replace(vector.unwrap()).is_none(), "{id} came twice");
        }
    }
    (answers.into_iter().flatten().collect(), steps)
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn tokens(embedder: &LlamaCppEmbedder) -> Vec<Vec<TokenId>> {
    TEXTS
        .iter()
        .map(|text| embedder.tokenize(&EmbedText::Single((*text).to_owned()), None).unwrap())
        .collect()
}

#[test]
fn vectors_are_llama_cpps_own_in_any_parts() {
    let Some(model) = model() else { return };
    let poolings = [
        (Pooling::Mean, LlamaPoolingType::Mean),
        (Pooling::Last, LlamaPoolingType::Last),
        (Pooling::Cls, LlamaPoolingType::Cls),
    ];
    for (pooling, of_llama_cpp) in poolings {
        let mut whole = embedder(model, pooling, 256);
        let texts = tokens(&whole);
        let expected = reference(&texts, of_llama_cpp);
        let (together, few) = vectors(&mut whole, &texts);
        let (in_parts, many) = vectors(&mut embedder(model, pooling, 5), &texts);
        assert_eq!(few, 1);
        assert!(many > 5, "{many}");
        for (text, expected) in expected.iter().enumerate() {
            let alone = |part| vectors(&mut embedder(model, pooling, part), &texts[text..=text]).0.remove(0);
            let close = cosine(expected, &alone(256));
            assert!(close > 0.9999, "{pooling:?} of text {text} alone: {close}");
            for part in [1, 3, 5, 17] {
                assert_eq!(alone(part), alone(256), "{pooling:?} of text {text} alone in parts of {part}");
            }
            let close = cosine(expected, &together[text]);
            assert!(close > 0.9999, "{pooling:?} of text {text}: {close}");
            // Cells of texts that ended are taken by others, whose sums then come in another order; the activations
            // of a quantised model are rounded so coarsely that this shows.
            let close = cosine(expected, &in_parts[text]);
            assert!(close > 0.999, "{pooling:?} of text {text} in parts beside others: {close}");
        }
    }
}

#[test]
fn many_texts_come_in_turn_and_cancelled_ones_not_at_all() {
    let Some(model) = model() else { return };
    let mut embedder = embedder(model, Pooling::Auto, 64);
    assert_eq!(embedder.traits().pooling, "mean");
    let texts: Vec<Vec<TokenId>> = tokens(&embedder).into_iter().cycle().take(40).collect();
    let (all, _) = vectors(&mut embedder, &texts);
    for (index, vector) in all.iter().enumerate() {
        assert!(cosine(vector, &all[index % TEXTS.len()]) > 0.9999, "{index}");
    }
    embedder.submit(7, texts[2].clone(), false);
    embedder.submit(8, texts[0].clone(), false);
    embedder.cancel(7);
    embedder.cancel(99);
    let mut done = Vec::new();
    for _ in 0..10 {
        embedder.step(&mut done).unwrap();
    }
    assert_eq!(done.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [8]);
}

#[test]
fn a_limit_beyond_the_models_is_refused() {
    let Some(model) = model() else { return };
    let config = EmbedderConfig { pooling: Pooling::Auto, max_tokens: Some(1 << 20), batch_tokens: 64 };
    let error = LlamaCppEmbedder::new(model, model, &config).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Configuration);
    assert_eq!(error.param.as_deref(), Some("embedding.max_tokens"));
}
