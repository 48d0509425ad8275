//! The contract every engine must pass: one check per promise of [`Engine`](llgtrt_core::Engine) and
//! [`MaskSource`](llgtrt_core::MaskSource), run from the engines' own tests.
//!
//! Runs on the thread that calls it and owns no threads. It must not assume a vocabulary, a model or a speed:
//! prompts and tokens come from the fixture's tokenizer, and waiting is bounded only by a generous deadline
//! that turns a hang into a failure.
//!
//! ```ignore
//! #[test]
//! fn conformance() {
//!     llgtrt_conformance::run(&MyFixture);
//! }
//! ```

mod constrained;
mod drive;
mod lifecycle;
mod masks;
mod panics;
mod processors;
mod sampling;
pub mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use llgtrt_core::{Engine, MaskSource, Tokenizer};

pub use panics::silence_panics;

/// An engine under test.
pub trait Fixture {
    /// A fresh engine without sequences, that asks `masks` about constrained ones. A `max_batch_size` of 2 to 8
    /// and a context of at least 256 tokens keep the suite short and let it fill every slot.
    fn engine(&self, masks: Arc<dyn MaskSource>) -> Box<dyn Engine>;

    /// The engine's tokenizer. It needs an end-of-sequence token.
    fn tokenizer(&self) -> Arc<dyn Tokenizer>;

    /// Whether greedy tokens are the same, bit for bit, whatever else is in the batch. An engine whose
    /// kernels add in another order for another batch answers false.
    fn independent_of_batch(&self) -> bool;
}

/// What a check found; the text says which promise was broken.
type Check = fn(&dyn Fixture) -> Result<(), String>;

/// A check that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Name of the check.
    pub check: &'static str,
    /// What was seen.
    pub message: String,
}

macro_rules! checks {
    ($($module:ident: $($name:ident),+;)+) => {
        &[$($((stringify!($name), $module::$name as Check)),+),+]
    };
}

/// Every check by name.
const CHECKS: &[(&str, Check)] = checks! {
    lifecycle:
        every_sequence_finishes_once,
        more_sequences_than_slots_all_finish,
        cancelling_the_unknown_and_the_finished_is_no_error,
        a_waiting_sequence_can_be_cancelled,
        a_sequence_can_be_cancelled_in_prefill,
        a_sequence_can_be_cancelled_while_decoding,
        a_cancelled_slot_is_free_for_the_next,
        an_idle_poll_blocks,
        poll_does_not_spin,
        statistics_are_consistent,
        forward_passes_are_told,
        dropping_an_engine_with_live_sequences_is_clean;
    sampling:
        max_tokens_is_exact,
        an_end_of_sequence_token_is_reported_last,
        ignore_eos_goes_on,
        a_stop_token_is_reported_last,
        min_tokens_delays_the_end,
        the_same_seed_gives_the_same_tokens,
        different_seeds_differ,
        greedy_does_not_depend_on_the_seed,
        neighbours_change_nothing,
        choices_share_a_prompt,
        logprobs_are_sorted_and_finite,
        prompt_logprobs_cover_the_prompt,
        rows_of_logits_are_those_of_the_log_probabilities;
    constrained:
        masks_are_honoured,
        the_removed_mass_is_measured,
        forced_runs_are_appended,
        a_forced_run_stops_at_max_tokens,
        a_complete_grammar_ends_the_sequence,
        a_grammar_may_be_complete_at_the_start,
        a_stop_instead_of_a_mask_ends_the_sequence,
        end_of_sequence_ends_a_constrained_sequence,
        a_failed_grammar_ends_only_its_own_sequence,
        a_constrained_sequence_can_be_cancelled,
        withdrawn_tokens_are_generated_again,
        a_withdrawn_end_is_no_end,
        an_end_that_the_grammar_refuses_is_a_failure;
    processors:
        processors_see_each_row_once,
        a_processor_that_fails_ends_only_its_own_sequence,
        a_mask_wins_over_a_processor;
};

/// Runs every check and reports those that did not hold.
pub fn run_all(fixture: &dyn Fixture) -> Vec<Failure> {
    let outcome = |check: Check| {
        catch_unwind(AssertUnwindSafe(|| check(fixture))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(format!("panic: {}", text.or_else(|| panic.downcast_ref().copied()).unwrap_or("no message")))
        })
    };
    CHECKS
        .iter()
        .filter_map(|(name, check)| {
            let message = outcome(*check).err()?;
            Some(Failure { check: name, message })
        })
        .collect()
}

/// Runs every check.
///
/// # Panics
/// Some did not hold; the message lists all of them.
pub fn run(fixture: &dyn Fixture) {
    let failures = run_all(fixture);
    let lines: Vec<_> = failures.iter().map(|f| format!("  {}: {}", f.check, f.message)).collect();
    assert!(failures.is_empty(), "{} of {} checks failed:\n{}", lines.len(), CHECKS.len(), lines.join("\n"));
}
