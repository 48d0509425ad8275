//! One forward pass: builds the batch, evaluates it, and books what came of it. Runs in a poll, on the
//! engine's thread.

use std::iter;
use std::ops::Range;
use std::time::{Duration, Instant};

use llgtrt_core::{Error, ErrorKind, Finish, Pass, Result};
use llgtrt_stepped::{MAX_DRAFT, Output, PassCost, Prices, Sequence, Worth};

use crate::context::DecodeError;
use crate::draft_model::Step;
use crate::engine::LlamaCppEngine;
use crate::pace::Came;
use crate::repack::NeededLogits;
use crate::schedule::{Demand, Limits, Work, level, plan, share_group, tokens_of_prompts, worthy_width};
use crate::slot::Slot;

/// The probability from which on a guess is worth a token that takes no time.
const FREE_WORTH: f32 = 0.05;

/// Guesses behind so many tokens of a slot are left out where slots share a group.
const WIDEST_GUESSES: usize = 2 * MAX_DRAFT;

impl LlamaCppEngine {
    /// Evaluates the next tokens of all running sequences: what took part, and since when. `None` if nothing was
    /// evaluated.
    ///
    /// # Errors
    /// The context is of no further use.
    pub(crate) fn forward(&mut self) -> Result<Option<(Pass, Instant)>> {
        let mut pass = Pass::default();
        let started = Instant::now();
        let answers_only = self.go_on_apart(&mut pass)?;
        let limits = self.collect_demands(answers_only);
        plan(self.work, &self.demands, limits, self.costs, &mut self.shares);
        self.fill_batch();
        if self.cache.context.batch_len() == 0 {
            return Ok((pass != Pass::default()).then_some((pass, started)));
        }
        let turn = self.turns.take();
        let begun = Instant::now();
        let needs_part = self.sequences.needs_part_of_rows(&self.outputs);
        // The masks are made while the pass runs, and are there before the logits are.
        let (sequences, outputs) = (&mut self.sequences, &self.outputs);
        let mut masks_of = |rows: usize, masks: &mut Vec<Option<*const [u32]>>| {
            // The rows of a pass come in the order of its tokens; of a part of one it is not known whose they are.
            if rows == outputs.len() {
                masks.extend(sequences.masks_ahead(outputs).map(|mask| mask.map(std::ptr::from_ref)));
            }
        };
        let logits: Option<NeededLogits<'_>> = if needs_part { Some(&mut masks_of) } else { None };
        let result = self.cache.context.decode_needed(logits, &self.needed);
        drop(turn);
        let elapsed = begun.elapsed();
        self.observe(elapsed);
        self.take_back();
        match result {
            Ok(()) => {}
            Err(DecodeError::NoRoom) => {
                // Every slot has its own cells, so this is not expected; the others can go on without one.
                if let Some(slot) = self.youngest() {
                    self.fail(slot, Error::new(ErrorKind::Overloaded, "the KV cache is full"));
                }
                return Ok(None);
            }
            Err(DecodeError::Refused) => {
                for (demand, &share) in std::mem::take(&mut self.demands).iter().zip(&self.shares.clone()) {
                    if share > 0 {
                        self.fail(demand.slot, Error::internal("llama.cpp refused the batch"));
                    }
                }
                // It may be for what one of these holds: the next batch is not to be refused as well.
                for (slot, _) in std::mem::take(&mut self.padded) {
                    if self.sequences.running[slot].is_none() {
                        self.cache.forget(slot);
                    }
                }
                return Ok(None);
            }
            Err(DecodeError::Fatal(code)) => {
                return Err(DecodeError::fatal(code));
            }
        }
        self.stats.forward_passes += 1;
        for (demand, &share) in self.demands.iter().zip(&self.shares) {
            let Some(sequence) = &mut self.sequences.running[demand.slot] else { continue };
            let cells = &mut self.cache.slots[demand.slot].tokens;
            if share > 0 {
                pass.add(sequence.spec.prompt.len(), cells.len(), share);
            }
            for _ in 0..share {
                cells.push(sequence.token(cells.len()));
            }
            // Guesses that had no room in the pass.
            sequence.draft.truncate(cells.len().saturating_sub(sequence.len()));
            self.cache.save(demand.slot);
        }
        self.read_logprobs();
        for (sequence, slot) in self.sequences.running.iter_mut().zip(&self.cache.slots) {
            if let Some(sequence) = sequence {
                sequence.release(slot.tokens.len());
            }
        }
        Ok(Some((pass, started)))
    }

    /// Learns what passes cost from the one over `demands` and `shares`, which took `elapsed`.
    fn observe(&mut self, elapsed: Duration) {
        let of = |wanted: Work| {
            let shares =
                self.demands.iter().zip(&self.shares).filter(move |(demand, _)| demand.work == wanted);
            shares.fold((0, 0.0), |(tokens, work), (demand, &share)| {
                let behind = self.cache.slots[demand.slot].tokens.len() + share / 2;
                (tokens + share, work + share as f64 * self.costs.token_behind(behind))
            })
        };
        let ((prompts, prompts_work), (answers, answers_work)) = (of(Work::Prompts), of(Work::Answers));
        let generating = self.demands.iter().filter(|demand| demand.work == Work::Answers).count();
        let padding = self.cache.context.batch_len().saturating_sub(prompts + answers);
        let padding = self.costs.of_padding(padding);
        // Prompts may have the longer, the longer a step takes: not for guesses, which are there for what they win.
        let guesses = self.work_of_guesses();
        let without =
            |cost: &PassCost| Duration::from_secs_f64(cost.seconds_without(elapsed.as_secs_f64(), guesses));
        let step = self.pass_cost.as_ref().map_or(elapsed, without);
        match self.work {
            Work::Prompts => self.prefill_pace.observe_prompts(prompts, prompts_work + padding, elapsed),
            Work::Mixed => self.prefill_pace.observe_mixed(prompts, prompts_work, generating, step),
            Work::Answers => {
                self.prefill_pace.observe_step(generating, step);
                if let Some(cost) = &mut self.pass_cost {
                    cost.observe(generating, answers, answers_work + padding, elapsed.as_secs_f64());
                }
            }
        }
    }

    /// How many ordinary tokens the guesses of the pass cost as much as.
    fn work_of_guesses(&self) -> f64 {
        let guesses = self.demands.iter().zip(&self.shares).filter_map(|(demand, &share)| {
            let evaluated = self.cache.slots[demand.slot].tokens.len();
            let known = self.sequences.running[demand.slot].as_ref()?.len().saturating_sub(evaluated);
            Some(share.saturating_sub(known) as f64 * self.costs.token_behind(evaluated))
        });
        guesses.sum()
    }

    /// What the next pass is over, and the demands of that kind. Answers how many tokens it may have: of prompts
    /// as many as the pace says. `answers_only`: none of prompts, if there are answers.
    fn collect_demands(&mut self, answers_only: bool) -> Limits {
        self.demands.clear();
        let came = self.came();
        let of = |wanted: Work| {
            let held = self.sequences.running.iter().zip(&self.cache.slots).enumerate();
            held.filter(move |&(_, held)| work(held) == Some(wanted)).map(|(slot, (sequence, held))| {
                let pending = sequence.as_ref().map_or(0, |sequence| end(sequence, held) - held.tokens.len());
                (slot, pending, self.costs.token_behind(held.tokens.len()))
            })
        };
        let (prompts, answers) = (of(Work::Prompts).count(), of(Work::Answers).count());
        let capacity = self.cache.context.capacity();
        let beside = self.prefill_pace.part(prompts, answers, true, came);
        let shares = of(Work::Prompts).map(|(_, pending, cost)| pending.min(beside.tokens_at(cost)));
        let width = shares.max().unwrap_or(0);
        // A pass over both goes over the slots of all answers and that of the oldest prompt.
        let age =
            |&(slot, ..): &(usize, usize, f64)| self.sequences.running[slot].as_ref().map(|one| one.age);
        let oldest = of(Work::Prompts).min_by_key(age);
        let slots = || of(Work::Answers).chain(oldest).map(|(slot, ..)| slot);
        let span = slots().min().zip(slots().max()).map_or(0, |(first, last)| last + 1 - first);
        let mixes = self.may_pad && self.costs.mixes(span, width, capacity);
        let next = match (prompts > 0, answers > 0, self.work) {
            (_, true, _) if answers_only => Work::Answers,
            (true, true, _) if mixes => Work::Mixed,
            (true, false, _) | (true, true, Work::Answers) => Work::Prompts,
            _ => Work::Answers,
        };
        let part =
            if next == Work::Mixed { beside } else { self.prefill_pace.part(prompts, answers, false, came) };
        let tokens = match next {
            Work::Prompts if answers > 0 => part.tokens.min(capacity),
            Work::Prompts => {
                let dearest = of(Work::Prompts).map(|(.., cost)| cost).fold(1.0, f64::max);
                let most = capacity.min(self.prefill_pace.tokens_alone(dearest));
                tokens_of_prompts(of(Work::Prompts).map(|(_, pending, _)| pending), part.tokens, most)
            }
            Work::Mixed => part.tokens.min(capacity - answers * width - part.least.min(width)),
            Work::Answers => capacity,
        };
        let is_weighed = part.is_weighed && answers > 0;
        let outputs = self.cache.context.max_outputs();
        let limits = Limits { tokens, least: if is_weighed { part.least } else { 0 }, outputs };
        self.work = next;
        if self.work != Work::Prompts {
            self.guess();
        }
        for (slot, sequence) in self.sequences.running.iter().enumerate() {
            let Some(work) = work((sequence, &self.cache.slots[slot])) else { continue };
            if self.work != Work::Mixed && self.work != work {
                continue;
            }
            let Some(sequence) = sequence else { continue };
            let evaluated = self.cache.slots[slot].tokens.len();
            let pending = end(sequence, &self.cache.slots[slot]) - evaluated + sequence.draft.len();
            self.demands.push(Demand {
                slot,
                work,
                pending,
                cost: if is_weighed { self.costs.token_behind(evaluated) } else { 1.0 },
                every_output: sequence.wants_many_outputs(pending),
                age: sequence.age,
            });
        }
        limits
    }

    /// How those that generate came to do so before the oldest of those that wait for their prompt. Notes who begins.
    pub(crate) fn came(&mut self) -> Came {
        let latest = self.sequences.running.iter().flatten().map(|sequence| sequence.age).max();
        for (sequence, slot) in self.sequences.running.iter_mut().zip(&self.cache.slots) {
            if work((sequence, slot)) == Some(Work::Answers)
                && let Some(sequence) = sequence
            {
                sequence.waited_for_by = sequence.waited_for_by.or(latest);
            }
        }
        let held = self.sequences.running.iter().zip(&self.cache.slots);
        let of = |wanted: Work| {
            let held = held.clone().filter(move |&held| work(held) == Some(wanted));
            held.filter_map(|(sequence, _)| sequence.as_deref())
        };
        let apart =
            held.clone().filter(|(_, slot)| slot.is_apart).filter_map(|(sequence, _)| sequence.as_deref());
        let oldest = of(Work::Prompts).chain(apart).map(|sequence| sequence.age).min();
        let generating =
            of(Work::Answers).filter_map(|sequence| Some(sequence.age..=sequence.waited_for_by?));
        Came::of(oldest, generating)
    }

    /// Lets every sequence that generates guess, as far as that pays in a pass of this size.
    fn guess(&mut self) {
        let Some(cost) = &self.pass_cost else { return };
        let held = self.sequences.running.iter().zip(&self.cache.slots);
        let answers = held.filter(|&held| work(held) == Some(Work::Answers));
        let answers = answers.filter_map(|(sequence, slot)| Some((sequence.as_deref()?, slot.tokens.len())));
        let sequences = answers.clone().count();
        if self.most_guesses < MAX_DRAFT && sequences > 1 {
            return;
        }
        let known = answers.clone().map(|(sequence, evaluated)| {
            (sequence.target() - evaluated) as f64 * self.costs.token_behind(evaluated)
        });
        let tokens = known.sum();
        let prices = Prices::among(answers.map(|(sequence, _)| sequence));
        let free = self.costs.guessing_width(self.span.len().max(sequences));
        let there = cost.worth(tokens, sequences, 0.0);
        self.width = free.unwrap_or(1);
        let end = self.sequences.context();
        self.asking.clear();
        let step = Step { pass: cost.seconds(tokens), token: cost.token_seconds(), sequences };
        let worth = self.draft_model.as_mut().and_then(|model| {
            let seconds = model.seconds(sequences) / sequences.max(1) as f64;
            let asked = cost.worth(tokens, sequences, seconds);
            model.may_guess(step).then_some(Worth { there, asked })
        });
        for (index, sequence) in self.sequences.running.iter_mut().enumerate() {
            if work((sequence, &self.cache.slots[index])) == Some(Work::Answers)
                && let Some(sequence) = sequence
            {
                let evaluated = self.cache.slots[index].tokens.len();
                if let Some(width) = free {
                    let known = sequence.target() - evaluated;
                    sequence.guess(FREE_WORTH, 1.0, end);
                    sequence.draft.truncate(width.saturating_sub(known));
                } else {
                    let price = prices.of(sequence, self.costs.token_behind(evaluated));
                    sequence.guess(there, price, end);
                }
                if worth.is_some_and(|worth| sequence.wants_model(worth, end)) {
                    self.asking.push(index);
                }
            }
        }
        if let (Some(model), Some(worth)) = (&mut self.draft_model, worth) {
            let running = &mut self.sequences.running;
            if let Err(error) = model.guess(running, &self.asking, worth, end, &self.turns) {
                tracing::error!("the draft model failed and is not used any more: {error:?}");
                self.draft_model = None;
            }
        }
        for sequence in self.sequences.running.iter_mut().flatten() {
            sequence.draft.truncate(self.most_guesses);
        }
        if self.costs.shares_groups() && sequences > 1 {
            self.limit_guesses(there);
        }
    }

    /// Leaves out guesses that win less than the padding costs that they make of the other slots, where a token in a pass is
    /// worth `there`.
    fn limit_guesses(&mut self, there: f32) {
        let generating = |(sequence, slot): (&Option<Box<Sequence>>, &Slot)| {
            (work((sequence, slot)) == Some(Work::Answers)).then(|| slot.tokens.len())
        };
        // What the guesses at a place of their slots win, and how many slots have a token there.
        let mut places = [(0.0, 0); WIDEST_GUESSES];
        let mut slots = 0;
        for (sequence, slot) in self.sequences.running.iter().zip(&self.cache.slots) {
            let (Some(evaluated), Some(sequence)) = (generating((sequence, slot)), sequence) else {
                continue;
            };
            slots += 1;
            let known = sequence.target() - evaluated;
            let guesses = sequence.chances().map(|chance| chance - there * sequence.price());
            for ((wins, tokens), gain) in places.iter_mut().zip(iter::repeat_n(0.0, known).chain(guesses)) {
                *wins += gain;
                *tokens += 1;
            }
        }
        let width = worthy_width(&places, slots, there * self.costs.of_padding(1) as f32);
        for (sequence, slot) in self.sequences.running.iter_mut().zip(&self.cache.slots) {
            if let (Some(evaluated), Some(sequence)) = (generating((sequence, slot)), sequence) {
                let known = sequence.target() - evaluated;
                sequence.draft.truncate(width.saturating_sub(known));
            }
        }
    }

    fn fill_batch(&mut self) {
        self.cache.context.clear_batch();
        self.outputs.clear();
        self.padded.clear();
        let slots = self.widen();
        let widths = &self.widths[slots.clone()];
        let is_level = self.costs.shares_groups() && widths.windows(2).all(|pair| pair[0] == pair[1]);
        self.needed.clear(if is_level { widths.first().copied().unwrap_or(0) } else { 0 });
        let context = &mut self.cache.context;
        let used: usize = self.shares.iter().sum();
        // The number of rows of logits is part of the shape: one for every slot, needed or not.
        let keeps_rows = self.costs.keeps_shape() && self.work == Work::Answers;
        let every_row = self.width > 1;
        let mut spare_rows = if keeps_rows { context.max_outputs().saturating_sub(used) } else { 0 };
        let mut shares = self.demands.iter().zip(&mut self.shares).peekable();
        for slot in slots {
            let start = self.cache.slots[slot].end();
            while shares.next_if(|(demand, _)| demand.slot < slot).is_some() {}
            let mut known = 0;
            if let Some((_, share)) = shares.next_if(|(demand, _)| demand.slot == slot)
                && let Some(sequence) = &self.sequences.running[slot]
            {
                let end = start + *share;
                for position in start..end {
                    let output = sequence.wants_output(position);
                    let row = output || (keeps_rows && (every_row || position + 1 == end));
                    let Some(index) = context.push(slot, position, sequence.token(position), row) else {
                        *share = position - start;
                        break;
                    };
                    if output {
                        self.outputs.push(Output { slot, position, index });
                    }
                }
                known = *share;
            }
            self.needed.add(known);
            for place in known..self.widths[slot] {
                let row = (every_row || place == 0) && spare_rows > 0;
                // Any token does.
                if context.push(slot, start + place, 0, row).is_none() {
                    break;
                }
                spare_rows -= usize::from(row);
                if place == known {
                    self.padded.push((slot, start + known));
                }
            }
        }
    }

    /// Decides how many tokens each slot has in the pass (`widths`), those included that are taken back afterwards. Answers
    /// the slots that the pass goes over.
    fn widen(&mut self) -> Range<usize> {
        self.widths.clear();
        self.widths.resize(self.cache.slots.len(), 0);
        for (demand, &share) in self.demands.iter().zip(&self.shares) {
            self.widths[demand.slot] = share;
        }
        let busy = |width: &usize| *width > 0;
        let (Some(first), Some(last)) =
            (self.widths.iter().position(busy), self.widths.iter().rposition(busy))
        else {
            return 0..0;
        };
        let mut slots = first..last + 1;
        if !self.may_pad {
            return slots;
        }
        let (held, most) = (&self.cache.slots, self.cache.context.slot_tokens() as usize);
        let fits = |slot: usize, width: usize| held[slot].end() + width <= most;
        let used: usize = self.shares.iter().sum();
        let mut spare = self.cache.context.capacity() - used;
        if self.work == Work::Answers && self.costs.keeps_shape() {
            let needed = slots;
            slots = self.span.cover(needed.clone(), self.costs);
            for slot in slots.clone() {
                // An idle slot in between is left to what follows, if one token is all that the others have.
                let is_outside = slot < needed.start || slot >= needed.end;
                let least = if is_outside || self.width > 1 { self.width } else { 0 };
                let added = least.saturating_sub(self.widths[slot]);
                if added <= spare && fits(slot, least) {
                    self.widths[slot] += added;
                    spare -= added;
                }
            }
        }
        let fits = |index: usize, width: usize| fits(slots.start + index, width);
        let widths = &mut self.widths[slots.clone()];
        if !share_group(widths, self.work, self.costs, spare, fits) {
            level(widths, self.work, self.costs, spare, fits);
        }
        slots
    }

    /// Leaves the cells of slots as they were, but for the tokens that were to be evaluated.
    fn take_back(&mut self) {
        for index in 0..self.padded.len() {
            let (slot, length) = self.padded[index];
            if self.cache.context.truncate(slot, length) {
                continue;
            }
            if self.sequences.running[slot].is_some() {
                self.fail(slot, Error::engine("llama.cpp cannot forget tokens"));
            } else {
                self.cache.forget(slot);
            }
        }
    }

    /// Takes the log-probabilities of prompt tokens and of forced tokens, and leaves in `outputs` what is
    /// to be sampled.
    fn read_logprobs(&mut self) {
        let (running, context) = (&mut self.sequences.running, &self.cache.context);
        self.outputs.retain(|output| {
            let Some(sequence) = &mut running[output.slot] else { return false };
            let next = output.position + 1;
            if next >= sequence.len() {
                return sequence.closing.is_none();
            }
            let Some(logits) = context.logits(output.index) else { return false };
            sequence.read_logprobs(output.position, logits);
            false
        });
    }

    pub(crate) fn fail(&mut self, slot: usize, error: Error) {
        self.sequences.end(slot, Finish::Failed(error), &mut self.cache);
        self.cache.forget(slot);
    }
}

/// Where the next pass over a sequence ends at most.
fn end(sequence: &Sequence, slot: &Slot) -> usize {
    let evaluated = slot.tokens.len();
    let next = slot.save_at.iter().copied().filter(|&tokens| tokens > evaluated).min();
    next.map_or(sequence.target(), |next| next.min(sequence.target()))
}

/// What a sequence has to evaluate next, if anything. A prompt of which one token is left costs nothing beside answers.
pub(crate) fn work((sequence, slot): (&Option<Box<Sequence>>, &Slot)) -> Option<Work> {
    let sequence = sequence.as_ref()?;
    let evaluated = slot.tokens.len();
    let pending = sequence.target().saturating_sub(evaluated);
    if pending == 0 || sequence.is_done() {
        None
    } else if pending > 1 && evaluated < sequence.spec.prompt.len() {
        (!slot.is_apart).then_some(Work::Prompts)
    } else {
        Some(Work::Answers)
    }
}
