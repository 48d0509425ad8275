//! Prints what one streamed token costs in this crate: detokenizing, stop strings, SSE framing.
//!
//! `cargo run --release -p llgtrt-text --example token_cost`

use std::hint::black_box;
use std::time::Instant;

use llgtrt_core::{TokenLogprobs, TokenOutput, Tokenizer};
use llgtrt_text::{
    ByteTokenizer, ChunkHead, LogprobEntry, SseEncoder, SseKind, TextOutput, TextPipe, chat_logprobs,
};

const ROUNDS: u32 = 1_000_000;

fn measure(name: &str, mut work: impl FnMut(u32)) {
    for round in 0..ROUNDS / 10 {
        work(round);
    }
    let start = Instant::now();
    for round in 0..ROUNDS {
        work(round);
    }
    println!("{name:<44} {:>8.1} ns", start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS));
}

fn main() {
    let tokenizer = ByteTokenizer::new();
    let vocabulary = tokenizer.vocabulary();
    let token = TokenOutput { token: u32::from(b'e'), forced: false, removed_mass: None, logprobs: None };

    let mut frame = Vec::new();
    for (name, text) in [("short", " the"), ("escapes", "\"a\": \"\n"), ("é…😀", " é…😀")] {
        for (form, kind) in [("chat", SseKind::Chat), ("completion", SseKind::Completion)] {
            let head = ChunkHead {
                id: "chatcmpl-0123456789abcdef",
                model: "smollm2",
                created: 1_700_000_000,
                system_fingerprint: Some("fp_0123456789"),
            };
            let mut encoder = SseEncoder::new(kind, head, true, None);
            measure(&format!("SSE chunk, {form}, {name}"), |round| {
                frame.clear();
                encoder.chunk(&mut frame, round % 2, black_box(text), None, None);
                black_box(&frame);
            });
        }
    }

    let mut out = TextOutput::default();
    let sixteen: Vec<String> = (0..16).map(|number| format!("{number}th stop")).collect();
    for (name, stops) in
        [("no stop strings", &[][..]), ("1 stop string", &sixteen[..1]), ("16 stop strings", &sixteen)]
    {
        let mut pipe = TextPipe::new(stops, false, false);
        measure(&format!("text pipe, {name}"), |_| {
            out.clear();
            pipe.push(vocabulary, black_box(&token), true, &mut out);
            black_box(&out);
        });
    }

    let top = (0..5).map(|token| (token + 97, -0.5 - token as f32)).collect();
    let entry = LogprobEntry {
        token: 97,
        characters: 1,
        removed_mass: None,
        logprobs: Some(Box::new(TokenLogprobs { logprob: -0.123_456, top, row: None })),
    };
    measure("chat logprobs, 5 alternatives", |_| {
        black_box(chat_logprobs(vocabulary, black_box(std::slice::from_ref(&entry))));
    });
}
