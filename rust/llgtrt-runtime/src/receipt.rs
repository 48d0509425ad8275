//! Follows one constrained sequence, for the receipt of its answer. One value per sequence, on the output thread.

use llgtrt_core::{Enforcement, MassSum, Receipt, StopStrings, TokenOutput};
use llgtrt_grammar::{CompiledGrammar, Tally};

use crate::request::Usage;

/// What a receipt is made of.
#[derive(Debug)]
pub(crate) struct ReceiptDraft {
    kind: String,
    grammar: CompiledGrammar,
    has_stop_strings: bool,
    masses: MassSum,
}

impl ReceiptDraft {
    /// `kind` is what the request calls its constraint.
    pub(crate) fn new(kind: String, grammar: &CompiledGrammar, has_stop_strings: bool) -> Self {
        Self { kind, grammar: grammar.clone(), has_stop_strings, masses: MassSum::default() }
    }

    /// Takes note of tokens that stay.
    pub(crate) fn observe(&mut self, tokens: &[TokenOutput]) {
        // Of forced tokens it is known only with log-probabilities, and how they are split says little.
        for token in tokens.iter().filter(|token| !token.forced) {
            if let Some(mass) = token.removed_mass {
                self.masses.add(mass);
            }
        }
    }

    /// The receipt of an answer of these tokens. `complete`: it ends where its grammar allows that.
    pub(crate) fn finish(&self, usage: &Usage, tally: &Tally, complete: bool) -> Receipt {
        let facts = self.grammar.facts();
        let verified = self.grammar.is_verified();
        Receipt {
            kind: self.kind.clone(),
            enforced_by: if verified { Enforcement::GrammarAndCheck } else { Enforcement::Grammar },
            rules: facts.narrowing.clone(),
            residual: facts.residual.clone(),
            warnings: self.grammar.warnings().to_vec(),
            complete,
            closed_at_limit: tally.closed,
            stop_strings: self.has_stop_strings.then_some(if verified {
                StopStrings::Never
            } else {
                StopStrings::WhereComplete
            }),
            sampled_tokens: usage.completion_tokens - usage.forced_tokens,
            forced_tokens: usage.forced_tokens,
            retracted_tokens: tally.retracted,
            grammar_cached: self.grammar.is_cached(),
            compile_ms: milliseconds(facts.compile_time),
            mask_ms: milliseconds(tally.mask_time),
            removed_mass: self.masses.summary(),
        }
    }
}

/// To the microsecond.
fn milliseconds(time: std::time::Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
