//! The conformance suite notices engines that break the contract.

use std::sync::Arc;
use std::time::Duration;

use llgtrt_conformance::{Fixture, run_all, support::Bytes};
use llgtrt_core::{
    Capabilities, Engine, EngineStats, Finish, MaskSource, Result, SequenceId, SequenceSpec, StepBatch,
    StopCause, TokenOutput, Tokenizer,
};
use llgtrt_engine_sim::{SimConfig, SimEngine};

/// What a broken engine does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Defect {
    None,
    FinishTwice,
    ReportAfterCancel,
    IgnoreCancel,
    IdleReturnsAtOnce,
    LoseOneToken,
    ForgetForced,
    HideWithdrawals,
    IgnoreMinTokens,
    IgnoreSeed,
    OtherTokensInBatch,
    UnmaskedSampling,
    WrongStats,
    FailTheNeighbour,
    StopIsLength,
    AlwaysBusy,
    EndWhateverTheGrammarSays,
    RemovedMassOfOne,
    LosePasses,
    ForgetProcessor,
}

struct Broken {
    inner: SimEngine,
    defect: Defect,
    cancelled: Vec<SequenceId>,
    capabilities: Capabilities,
}

impl Engine for Broken {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, mut spec: SequenceSpec) -> Result<()> {
        match self.defect {
            Defect::IgnoreMinTokens => spec.sampling.min_tokens = 0,
            Defect::IgnoreSeed => spec.sampling.seed = 0,
            Defect::ForgetProcessor => spec.processor = None,
            Defect::UnmaskedSampling => spec.constrained = false,
            Defect::OtherTokensInBatch if self.inner.has_work() => {
                spec.sampling.temperature = 1.0;
                spec.sampling.seed = 1234;
            }
            _ => {}
        }
        self.inner.submit(spec)
    }

    fn cancel(&mut self, id: SequenceId) {
        if self.defect != Defect::IgnoreCancel {
            self.inner.cancel(id);
            self.cancelled.push(id);
        }
    }

    fn poll(&mut self, timeout: Duration, batch: &mut StepBatch) -> Result<()> {
        if self.defect == Defect::IdleReturnsAtOnce && !self.inner.has_work() {
            return Ok(());
        }
        let mut inner = StepBatch::default();
        self.inner.poll(timeout, &mut inner)?;
        for (id, _) in inner.started() {
            batch.start(*id);
        }
        if self.defect != Defect::LosePasses {
            inner.passes().iter().for_each(|pass| batch.pass(*pass));
        }
        let mut failing = false;
        for (output, tokens) in inner.iter() {
            let new = batch.begin(output.id);
            new.cached_prompt_tokens = output.cached_prompt_tokens;
            new.prompt_logprobs.clone_from(&output.prompt_logprobs);
            new.retract_to = output.retract_to.filter(|_| self.defect != Defect::HideWithdrawals);
            new.certain = output.certain;
            let lost = usize::from(self.defect == Defect::LoseOneToken && output.finish.is_some());
            for token in &tokens[..tokens.len().saturating_sub(lost)] {
                let forced = token.forced && self.defect != Defect::ForgetForced;
                let certain = |mass| if self.defect == Defect::RemovedMassOfOne { 1.0 } else { mass };
                let removed_mass = token.removed_mass.map(certain);
                batch.push_token(TokenOutput { forced, removed_mass, ..token.clone() });
            }
            if let Some(finish) = &output.finish {
                let finish = match (self.defect, finish) {
                    (Defect::StopIsLength, Finish::Stop(_)) => Finish::Length,
                    (Defect::EndWhateverTheGrammarSays, Finish::Failed(_))
                        if tokens.last().is_some_and(|last| last.token == Bytes::EOS) =>
                    {
                        Finish::Stop(StopCause::EndOfSequence)
                    }
                    _ => finish.clone(),
                };
                failing |= matches!(finish, Finish::Failed(_));
                batch.finish(finish.clone());
                if self.defect == Defect::FinishTwice
                    || (self.defect == Defect::ReportAfterCancel && self.cancelled.contains(&output.id))
                {
                    batch.begin(output.id);
                    batch.finish(finish);
                }
            } else if failing && self.defect == Defect::FailTheNeighbour {
                batch.finish(Finish::Length);
                let id = output.id;
                self.inner.cancel(id);
            }
        }
        Ok(())
    }

    fn has_work(&self) -> bool {
        self.inner.has_work() || self.defect == Defect::AlwaysBusy
    }

    fn stats(&self) -> EngineStats {
        let wrong = u32::from(self.defect == Defect::WrongStats);
        let stats = self.inner.stats();
        EngineStats { running: stats.running + wrong, ..stats }
    }
}

struct Suspect(Defect);

impl Fixture for Suspect {
    fn engine(&self, masks: Arc<dyn MaskSource>) -> Box<dyn Engine> {
        let config = SimConfig { max_batch_size: 3, max_sequence_tokens: 300, ..SimConfig::default() };
        let inner = SimEngine::new(config, Bytes::shared(), masks).expect("a valid configuration");
        let capabilities = inner.capabilities().clone();
        Box::new(Broken { inner, defect: self.0, cancelled: Vec::new(), capabilities })
    }

    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        Bytes::shared()
    }

    fn independent_of_batch(&self) -> bool {
        true
    }
}

/// The names of the checks that fail.
fn broken(defect: Defect) -> Vec<&'static str> {
    run_all(&Suspect(defect)).into_iter().map(|failure| failure.check).collect()
}

#[test]
fn a_sound_engine_passes() {
    assert_eq!(broken(Defect::None), [""; 0]);
}

#[test]
fn every_defect_is_found() {
    let cases = [
        (Defect::FinishTwice, "every_sequence_finishes_once"),
        (Defect::HideWithdrawals, "withdrawn_tokens_are_generated_again"),
        (Defect::ReportAfterCancel, "a_sequence_can_be_cancelled_while_decoding"),
        (Defect::IgnoreCancel, "a_waiting_sequence_can_be_cancelled"),
        (Defect::IdleReturnsAtOnce, "an_idle_poll_blocks"),
        (Defect::LoseOneToken, "max_tokens_is_exact"),
        (Defect::ForgetForced, "forced_runs_are_appended"),
        (Defect::IgnoreMinTokens, "min_tokens_delays_the_end"),
        (Defect::IgnoreSeed, "different_seeds_differ"),
        (Defect::OtherTokensInBatch, "neighbours_change_nothing"),
        (Defect::UnmaskedSampling, "masks_are_honoured"),
        (Defect::WrongStats, "statistics_are_consistent"),
        (Defect::FailTheNeighbour, "a_failed_grammar_ends_only_its_own_sequence"),
        (Defect::StopIsLength, "a_stop_token_is_reported_last"),
        (Defect::AlwaysBusy, "every_sequence_finishes_once"),
        (Defect::LosePasses, "forward_passes_are_told"),
        (Defect::ForgetProcessor, "processors_see_each_row_once"),
        (Defect::RemovedMassOfOne, "the_removed_mass_is_measured"),
        (Defect::EndWhateverTheGrammarSays, "an_end_that_the_grammar_refuses_is_a_failure"),
    ];
    for (defect, check) in cases {
        let found = broken(defect);
        assert!(found.contains(&check), "{check} did not fail; these did: {found:?}");
    }
}
