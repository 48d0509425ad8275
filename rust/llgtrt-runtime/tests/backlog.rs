//! A reader that comes late finds much: in parts, so that whoever takes them can do something else in between.

mod support;

use llgtrt_runtime::{OutputFormat, Payload};
use support::{request, sim, start, submit, wait_until};

const CHOICES: u32 = 4;
const TOKENS: u32 = 2000;

#[test]
fn what_waits_for_a_late_reader_comes_in_parts() {
    let runtime = start(sim("{}"), 8);
    let mut streamed = request("much", OutputFormat::ChatSse);
    (streamed.n, streamed.max_tokens) = (CHOICES, Some(TOKENS));
    (streamed.sampling.logprobs, streamed.sampling.ignore_eos) = (Some(5), true);
    let handle = submit(&runtime, streamed);
    wait_until("all is generated", || handle.summary().finish_reasons.len() == CHOICES as usize);

    let mut parts = Vec::new();
    loop {
        let (payload, last) = handle.take().expect("something waits");
        let Payload::Sse(frames) = payload else { panic!("not frames: {payload:?}") };
        parts.push(String::from_utf8(frames).expect("text"));
        if last {
            break;
        }
    }
    assert!(handle.take().is_none(), "the last one is the end");
    assert!(parts.len() > 4, "{} parts", parts.len());
    assert!(parts.iter().all(|part| part.ends_with("\n\n")), "only whole frames");
    let longest = parts.iter().map(String::len).max();
    assert!(longest < Some(300 << 10), "{longest:?} bytes at once");
    let whole = parts.concat();
    assert_eq!(whole.matches("\"top_logprobs\":").count(), (CHOICES * TOKENS) as usize);
    assert_eq!(whole.matches("\"finish_reason\":\"length\"").count(), CHOICES as usize);
    assert!(whole.ends_with("data: [DONE]\n\n"));
}

#[test]
fn so_does_structured_output() {
    let runtime = start(sim("{}"), 8);
    let mut streamed = request("much", OutputFormat::Deltas);
    (streamed.n, streamed.max_tokens) = (CHOICES, Some(TOKENS));
    (streamed.sampling.logprobs, streamed.sampling.ignore_eos) = (Some(5), true);
    let handle = submit(&runtime, streamed);
    wait_until("all is generated", || handle.summary().finish_reasons.len() == CHOICES as usize);

    let (mut deltas, mut tokens, mut entries, mut ends) = (0, 0, 0, 0);
    loop {
        let (payload, last) = handle.take().expect("something waits");
        let Payload::Delta(delta) = payload else { panic!("no delta: {payload:?}") };
        deltas += 1;
        let waited: usize = delta.choices.iter().flat_map(|choice| &choice.logprobs).map(String::len).sum();
        assert!(waited < 300 << 10, "{waited} bytes at once");
        for choice in &delta.choices {
            tokens += choice.token_count;
            ends += usize::from(choice.finish.is_some());
            entries += choice.logprobs.as_ref().map_or(0, |text| text.matches("\"top_logprobs\":").count());
        }
        assert_eq!(delta.usage.is_some(), last);
        if last {
            break;
        }
    }
    assert!(handle.take().is_none(), "the last one is the end");
    assert!(deltas > 4, "{deltas} deltas");
    assert_eq!(tokens, u64::from(CHOICES * TOKENS));
    assert_eq!((entries, ends), ((CHOICES * TOKENS) as usize, CHOICES as usize));
}
