//! A defect on the output thread ends the service in the open: readiness goes, and every request gets an error.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use llgtrt_core::{EncodeOptions, ErrorKind, Result, TokenId, Tokenizer, Vocabulary};
use llgtrt_runtime::{Health, OutputFormat};
use llgtrt_text::ByteTokenizer;
use support::{collect, read_all, request, sim, start_with, submit, wait_until};

const DEFECT: &str = "a defect of the output thread";

/// Panics on the output thread once it is told to.
struct Tripwire {
    inner: ByteTokenizer,
    armed: Arc<AtomicBool>,
}

impl Tokenizer for Tripwire {
    fn vocabulary(&self) -> &Vocabulary {
        let on_output_thread = std::thread::current().name() == Some("llgtrt-output");
        assert!(!(on_output_thread && self.armed.load(Ordering::Relaxed)), "{DEFECT}");
        self.inner.vocabulary()
    }

    fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<TokenId>> {
        self.inner.encode(text, options)
    }
}

#[test]
fn a_panic_of_the_output_thread_ends_readiness_and_its_requests() {
    llgtrt_conformance::silence_panics(DEFECT);
    let armed = Arc::new(AtomicBool::new(false));
    let tokenizer = Tripwire { inner: ByteTokenizer::new(), armed: Arc::clone(&armed) };
    let runtime = start_with(sim(r#"{"step_us": 1000}"#), 8, Arc::new(tokenizer));
    assert_eq!(runtime.health(), Health::Ready);
    let handles: Vec<_> = ["one", "two"]
        .map(|prompt| {
            let mut request = request(prompt, OutputFormat::Deltas);
            request.sampling.ignore_eos = true;
            request.max_tokens = Some(2000);
            submit(&runtime, request)
        })
        .into();
    armed.store(true, Ordering::Relaxed);
    for handle in &handles {
        let error = collect(read_all(&runtime, handle)).1.error.expect("an error");
        assert_eq!(error.kind, ErrorKind::Internal, "{error:?}");
    }
    assert!(matches!(runtime.health(), Health::Failed(_)), "{:?}", runtime.health());
    assert!(runtime.reserve(1).is_err());
    wait_until("nothing is left", || runtime.active_requests() == 0);
    runtime.shutdown();
}
