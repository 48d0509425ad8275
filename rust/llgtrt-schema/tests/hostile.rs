//! Schemas that are made to be expensive are answered within the budget: steps and bytes by its own count,
//! and live memory by that of the allocator.

mod corpus;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use llgtrt_schema::{NormalizeLimits, Normalized, Reason, ResidualMode, SchemaError, rewrite};
use serde_json::Value;

/// What a normalisation may hold at its peak, in bytes.
const MAX_LIVE: usize = 256 << 20;

/// Counts the bytes that are allocated, and the most that were.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Schemas are dropped there as well, as deep as they are.
fn on_big_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, work);
        thread.expect("a thread").join().expect("no panic")
    })
}

fn limits(residual: ResidualMode) -> NormalizeLimits {
    NormalizeLimits { residual, compose: true, ..NormalizeLimits::default() }
}

type Answer = Result<Normalized, SchemaError>;

/// The answer, and the most bytes that were live beside those from before.
fn measured(schema: &Value, limits: &NormalizeLimits) -> (Answer, usize) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let answer = rewrite(schema, limits);
    (answer, PEAK.load(Ordering::Relaxed) - before)
}

/// Processor time of this thread, where the system tells it: for those who look, no test depends on it.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default())
}

/// What is wrong with the answer to a schema, if anything is.
fn judge(name: &str, schema: &Value, residual: ResidualMode) -> Option<String> {
    let limits = limits(residual);
    let before = processor_time();
    let (answer, live) = measured(schema, &limits);
    let spent = answer.as_ref().map_or_else(|error| error.spent, |normalized| normalized.spent);
    let reason = answer.as_ref().err().map(|error| error.reason);
    if std::env::var_os("LLGTRT_SPENDING").is_some() {
        let time = processor_time().saturating_sub(before);
        let (steps, held, live) = (spent.steps, spent.bytes >> 20, live >> 20);
        println!("{time:>9.1?} {steps:>9} steps {held:>4} MB held {live:>4} MB live {reason:?} {name}");
    }
    let is_bounded = spent.steps <= limits.max_steps + limits.max_steps / 10
        && live <= MAX_LIVE
        && reason != Some(Reason::TimedOut);
    (!is_bounded).then(|| format!("{name}: {} steps, {live} bytes live, {reason:?}", spent.steps))
}

#[test]
fn every_hostile_schema_is_answered_within_its_budget() {
    let failed: Vec<String> = on_big_stack(|| {
        let corpus = corpus::hostile();
        assert!(corpus.len() >= 60, "{}", corpus.len());
        let modes = [ResidualMode::Verify, ResidualMode::Refuse];
        let judged = corpus.iter().zip(modes.iter().cycle());
        judged.filter_map(|((name, schema), mode)| judge(name, schema, *mode)).collect()
    });
    assert!(failed.is_empty(), "{failed:#?}");
}
