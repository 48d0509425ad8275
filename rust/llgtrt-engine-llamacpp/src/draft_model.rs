//! A small model that guesses what the served one will say; how long its guesses are is decided in `llgtrt_stepped`.
//!
//! It has a context of its own with as many slots as the engine's, each for the sequence in the slot of the same number. A
//! slot holds a part of what is known of its sequence, and guesses; what does not agree with the sequence leaves it
//! before it is used. It sees the end of a long sequence alone, so that a guess costs the same everywhere. Runs in a poll,
//! on the engine's thread.

use std::time::{Duration, Instant};

use llgtrt_core::sampler::token_logprobs;
use llgtrt_core::{Result, TokenId};
use llgtrt_stepped::{Acceptance, MAX_DRAFT, PassCost, Sequence, Worth};

use crate::cells::Cells;
use crate::config::{KvCacheType, LlamaCppConfig};
use crate::context::{Context, DecodeError};
use crate::model::LlamaCppModel;
use crate::pace::{Came, PrefillPace};
use crate::turns::Turns;

/// Most tokens that it sees of a sequence; it begins anew with half of them.
const WINDOW: u32 = 1024;

/// A sequence that is new to it has taken so many times as long for its answer as what is known of it takes to evaluate. So
/// short answers to long prompts do without.
const PATIENCE: f64 = 4.0;

/// It may lose this share of the time that sequences generate.
const SPARE: f64 = 0.01;

/// And what it has won before, up to so many steps.
const MOST_CREDIT: f64 = 8.0;

/// Tokens that are evaluated without that: those of a step whose guesses came true.
const FEW: usize = MAX_DRAFT + 1;

/// What a slot holds of its sequence, from position `start` on.
#[derive(Debug, Default)]
struct Seen {
    start: usize,
    cells: Cells,
}

impl Seen {
    /// How many of the cells agree with the `len` tokens that `token` gives by position, where there is room for `room`
    /// cells: not the last token's, whose logits are wanted. Before them, `start` may move.
    fn follow(&mut self, len: usize, token: impl Fn(usize) -> TokenId, room: usize) -> usize {
        let fits = |start: usize| len + MAX_DRAFT <= start + room;
        let agrees = |&(position, cell): &(usize, &TokenId)| position + 1 < len && token(position) == *cell;
        let agreeing = (self.start..).zip(self.cells.iter()).take_while(agrees).count();
        if agreeing > 0 && fits(self.start) {
            return agreeing;
        }
        self.start = if fits(0) { 0 } else { len - room / 2 };
        0
    }
}

/// A row of its logits that is wanted: of a slot, at a place in the batch.
struct Wanted {
    slot: usize,
    index: usize,
}

/// What a step of the sequences costs, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Step {
    /// All of it.
    pub(crate) pass: f64,
    /// One more ordinary token in it.
    pub(crate) token: f64,
    /// Sequences that it gives a token each.
    pub(crate) sequences: usize,
}

/// See the module.
pub(crate) struct DraftModel {
    context: Context,
    slots: Vec<Seen>,
    /// Tokens that both models know.
    tokens: usize,
    /// How often its guesses have come true.
    pub(crate) usual: Acceptance,
    cost: PassCost,
    pace: PrefillPace,
    /// Seconds that it may still lose: what it takes is paid from it, and what it saves comes in.
    credit: f64,
    step: Step,
    // Reused between passes.
    wanted: Vec<Wanted>,
    guessed: Vec<(usize, TokenId)>,
}

impl DraftModel {
    /// `config` and `tokens`, the size of the vocabulary, are the engine's.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](llgtrt_core::ErrorKind::Configuration): llama.cpp cannot run the model as configured.
    pub(crate) fn new(
        model: &LlamaCppModel,
        config: &LlamaCppConfig,
        tokens: usize,
        pace: PrefillPace,
    ) -> Result<Self> {
        let most = config.max_sequence_tokens.unwrap_or(WINDOW).min(model.weights.n_ctx_train());
        let room = most.clamp(4 * MAX_DRAFT as u32, WINDOW);
        let kv_cache_type = KvCacheType::F16;
        let own = LlamaCppConfig { max_sequence_tokens: Some(room), kv_cache_type, ..config.clone() };
        let context = Context::new(&model.weights, &own)?;
        let tokens = tokens.min(context.vocab_size());
        let slots = (0..config.max_batch_size).map(|_| Seen::default()).collect();
        let (wanted, guessed) = (Vec::new(), Vec::new());
        let (usual, cost) = (Acceptance::default(), PassCost::default());
        let (credit, step) = (0.0, Step::default());
        Ok(Self { context, slots, tokens, usual, cost, pace, credit, step, wanted, guessed })
    }

    /// Seconds that a guess at one token of each of so many sequences takes; 0 before anything is known.
    pub(crate) fn seconds(&self, sequences: usize) -> f64 {
        self.cost.seconds(sequences as f64)
    }

    /// Replaces what slot `to` holds by a copy of slot `from`.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        let mut cells = std::mem::take(&mut self.slots[to].cells);
        cells.clear();
        if self.context.copy(from, to) {
            cells.extend(&self.slots[from].cells);
        }
        self.slots[to] = Seen { start: self.slots[from].start, cells };
    }

    /// Takes note of what the next step costs. False if it had better not guess: it would lose too much.
    pub(crate) fn may_guess(&mut self, step: Step) -> bool {
        self.step = step;
        self.pace.observe_step(step.sequences, Duration::try_from_secs_f64(step.pass).unwrap_or_default());
        self.credit = (self.credit + SPARE * step.pass).min(MOST_CREDIT * step.pass);
        self.credit > 0.0
    }

    /// Learns what it cost to evaluate a sequence's guesses, in ordinary tokens, how many came true, and how many could have been
    /// expected to without it.
    pub(crate) fn settle(&mut self, work: f64, accepted: usize, without: f32) {
        let Step { pass, token, sequences } = self.step;
        let won = accepted as f64 - f64::from(without);
        self.credit += won * pass / sequences.max(1) as f64 - work * token;
    }

    /// Guesses for the sequences in `slots`, as long as that is worth it. `end` is the longest a sequence can be.
    ///
    /// # Errors
    /// The context is of no further use. Sequences keep what has been guessed.
    pub(crate) fn guess(
        &mut self,
        running: &mut [Option<Box<Sequence>>],
        slots: &[usize],
        worth: Worth,
        end: usize,
        turns: &Turns,
    ) -> Result<(), DecodeError> {
        if slots.is_empty() {
            self.usual.without_model();
            return Ok(());
        }
        self.follow(running, slots);
        while self.evaluate(turns)? {
            self.guessed.clear();
            for &Wanted { slot, index } in &self.wanted {
                let (Some(sequence), Some(logits)) = (&mut running[slot], self.context.logits(index)) else {
                    continue;
                };
                // The first place is all that is looked at.
                let Some(&(token, logprob)) =
                    token_logprobs(logits, 0, 1).ok().as_ref().and_then(|row| row.top.first())
                else {
                    continue;
                };
                if (token as usize) < self.tokens
                    && sequence.guess_more((token, logprob.exp()), worth, &mut self.usual, end)
                {
                    self.guessed.push((slot, token));
                }
            }
            self.begin();
            for index in 0..self.guessed.len() {
                let (slot, token) = self.guessed[index];
                self.push(slot, token, true);
            }
        }
        Ok(())
    }

    /// Begins a pass over what is known of the sequences and was not evaluated yet, as far as a pass goes.
    fn follow(&mut self, running: &[Option<Box<Sequence>>], slots: &[usize]) {
        self.begin();
        let room = self.context.slot_tokens() as usize;
        let mut left = self
            .pace
            .part(slots.len(), self.step.sequences, false, Came::Apart)
            .tokens
            .max(FEW)
            .min(self.context.capacity());
        for &slot in slots {
            let Some(sequence) = &running[slot] else { continue };
            let len = sequence.len();
            let seen = &mut self.slots[slot];
            let kept = seen.follow(len, |position| sequence.token(position), room);
            self.context.keep(slot, &mut seen.cells, kept);
            // A model that cannot forget a part has forgotten all.
            let from = seen.start + seen.cells.len();
            let pending = len - from;
            let answered = sequence.generated.len() as f64 * self.step.pass;
            if pending > FEW && answered < PATIENCE * self.cost.seconds(pending as f64) {
                continue;
            }
            let part = from..from + pending.min(left);
            left -= part.len();
            for position in part {
                if !self.push(slot, sequence.token(position), position + 1 == len) {
                    break;
                }
            }
        }
    }

    fn begin(&mut self) {
        self.context.clear_batch();
        self.wanted.clear();
    }

    /// Adds a token behind those in a slot. False if this model does not know it, or it does not fit.
    fn push(&mut self, slot: usize, token: TokenId, output: bool) -> bool {
        let cells = &mut self.slots[slot].cells;
        let known = (token as usize) < self.tokens;
        let Some(index) = known.then(|| self.context.push(slot, cells.len(), token, output)).flatten() else {
            return false;
        };
        cells.push(token);
        if output {
            self.wanted.push(Wanted { slot, index });
        }
        true
    }

    /// Evaluates the batch. False if there was nothing to evaluate, or llama.cpp did not take it.
    fn evaluate(&mut self, turns: &Turns) -> Result<bool, DecodeError> {
        let tokens = self.context.batch_len();
        if tokens == 0 {
            return Ok(false);
        }
        let turn = turns.take();
        let started = Instant::now();
        let result = self.context.decode();
        let elapsed = started.elapsed();
        drop(turn);
        self.credit -= elapsed.as_secs_f64();
        match result {
            Ok(()) => {
                self.cost.observe(self.wanted.len(), tokens, tokens as f64, elapsed.as_secs_f64());
                self.pace.observe_prompts(tokens, tokens as f64, elapsed);
                Ok(true)
            }
            Err(DecodeError::NoRoom | DecodeError::Refused) => {
                // Nothing changed but what the cells say.
                for slot in 0..self.slots.len() {
                    self.context.truncate(slot, 0);
                    self.slots[slot].cells.clear();
                }
                Ok(false)
            }
            Err(fatal) => Err(fatal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 64;

    fn seen(start: usize, cells: &[TokenId]) -> Seen {
        Seen { start, cells: cells.to_vec().into() }
    }

    fn follow(seen: &mut Seen, tokens: &[TokenId]) -> (usize, usize) {
        let kept = seen.follow(tokens.len(), |position| tokens[position], ROOM);
        (seen.start, kept)
    }

    #[test]
    fn what_agrees_stays() {
        let mut slot = seen(0, &[1, 2, 3, 9]);
        assert_eq!(follow(&mut slot, &[1, 2, 3, 4, 5]), (0, 3));
        assert_eq!(follow(&mut slot, &[1, 2, 3]), (0, 2), "the last token is evaluated for its logits");
        assert_eq!(follow(&mut slot, &[7, 2]), (0, 0), "another sequence begins anew");
        assert_eq!(follow(&mut seen(3, &[1, 2]), &[7, 7]), (0, 0));
        assert_eq!(follow(&mut seen(3, &[1, 2]), &[7, 7, 7, 1, 2, 8]), (3, 2));
    }

    #[test]
    fn a_long_sequence_is_seen_from_the_middle_of_the_room_on() {
        let tokens: Vec<TokenId> = (0..200).collect();
        let mut slot = seen(0, &tokens[..40]);
        assert_eq!(follow(&mut slot, &tokens[..49]), (0, 40));
        assert_eq!(follow(&mut slot, &tokens[..50]), (18, 0), "the guesses would not have room");
        let mut slot = seen(18, &tokens[18..50]);
        assert_eq!(follow(&mut slot, &tokens[..67]), (18, 32));
        assert_eq!(follow(&mut slot, &tokens[..68]), (36, 0));
        assert_eq!(follow(&mut seen(0, &[]), &tokens), (168, 0));
    }
}
