//! Masks of all running sequences, computed in parallel.
//!
//! The engine's thread and a few `llgtrt-mask-N` threads share the work: whoever locks a slot first
//! computes its mask. Masks are started as soon as tokens are known ([`advance`](MaskSource::advance)),
//! so that they are computed while the forward pass runs; [`fill`](MaskSource::fill) computes what is
//! left on the calling thread, together with the workers. No thread holds two slots at once.

mod entry;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use llgtrt_core::{
    AdvanceBatch, AdvanceState, Error, MaskBatch, MaskSlot, MaskSource, MaskVerdict, SequenceId, TokenId,
};
use parking_lot::{Mutex, RwLock};
use prometheus::Registry;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::big_stack::{STACK_BYTES, mark_big_stack_thread, on_big_stack_thread};
use crate::compiled::CompiledGrammar;
use crate::config::GrammarConfig;
use crate::metrics::MaskMetrics;
use crate::slot::{Slot, TokenLimit};
use crate::verify::Allowance;

pub use self::entry::Tally;
use self::entry::{Entry, Lexers};

/// Expected work for which waking one more thread pays, in nanoseconds. The hand-off takes 10 to
/// 30 us, and masks take half as long again where two threads compute them (measured on 2 cores:
/// 8 masks of 12 us were slower with a second thread, 32 about equal, 128 faster by half).
const WAKE_NANOS: u64 = 150_000;

/// Time between `advance` and `fill` from which on a forward pass runs in between, in nanoseconds.
/// Then masks are always started early.
const FORWARD_NANOS: u64 = 200_000;

/// Masks expected to take longer are computed first, so that none of them is left for the end. The
/// others are computed in an order that gives each thread the same slots at every step: their
/// matchers stay in its cache.
const EXPENSIVE_NANOS: u32 = 100_000;

/// Slots advanced before their masks are started, in a large batch: the workers begin while the
/// calling thread still advances the rest (2 us for each of 128).
const CHUNK: usize = 32;

/// Assumed cost of a mask that was never computed, in nanoseconds.
const FIRST_COST_NANOS: u32 = 20_000;

/// Computes masks for the sequences registered with it.
pub struct MaskPool {
    vocab_size: usize,
    slots: RwLock<HashMap<SequenceId, Arc<Entry>>>,
    /// `None` if the threads could not be started: then the caller computes everything.
    workers: Option<ThreadPool>,
    clock: Instant,
    /// When `advance` returned last, in nanoseconds of `clock`.
    advanced_at: AtomicU64,
    /// Typical time from `advance` to `fill`, in nanoseconds.
    gap: AtomicU64,
    /// Whether workers were woken since the last tokens became known.
    started: AtomicBool,
    /// Memory that the lexers of all sequences have grown to, in bytes, and what it may be.
    lexers: Arc<Lexers>,
    /// The sequence whose check is next, because there was no time for it.
    next_check: Mutex<Option<SequenceId>>,
    metrics: Arc<MaskMetrics>,
}

/// A slot whose mask is to be computed. The cost is read once: workers change it, and sorting by
/// a key that changes panics.
struct Job {
    cost: u32,
    shared: Arc<Entry>,
}

impl Job {
    fn new(shared: Arc<Entry>) -> Self {
        Self { cost: shared.cost.load(Ordering::Relaxed), shared }
    }

    /// Sorts the expensive ones first and keeps the order of the others.
    fn rank(&self) -> Reverse<u32> {
        Reverse(if self.cost < EXPENSIVE_NANOS { 0 } else { self.cost })
    }
}

thread_local! {
    /// Kept between steps so that a step allocates nothing here.
    static SCRATCH: Cell<Vec<Job>> = const { Cell::new(Vec::new()) };
    static ENTRIES: Cell<Vec<Option<Arc<Entry>>>> = const { Cell::new(Vec::new()) };
}

impl MaskPool {
    /// Starts the mask threads. `vocab_size` is the width of a logits row.
    pub fn new(vocab_size: usize, config: &GrammarConfig, registry: &Registry) -> Arc<Self> {
        let workers = ThreadPoolBuilder::new()
            .num_threads(config.mask_workers())
            .stack_size(STACK_BYTES)
            .thread_name(|index| format!("llgtrt-mask-{index}"))
            .start_handler(|_| mark_big_stack_thread())
            .build()
            .inspect_err(|error| tracing::error!(%error, "no mask threads; the engine computes all masks"))
            .ok();
        Arc::new(Self {
            vocab_size,
            slots: RwLock::new(HashMap::new()),
            workers,
            clock: Instant::now(),
            advanced_at: AtomicU64::new(0),
            gap: AtomicU64::new(0),
            started: AtomicBool::new(false),
            lexers: Lexers::new(config.lexer_memory_megabytes << 20),
            next_check: Mutex::new(None),
            metrics: Arc::new(MaskMetrics::new(registry)),
        })
    }

    /// Gives a sequence a matcher at the start of a grammar.
    pub fn register(&self, sequence: SequenceId, grammar: &CompiledGrammar) {
        self.insert(sequence, Slot::new(grammar, None));
    }

    /// As [`register`](Self::register), and sees to it that the answer is complete when it reaches its limit.
    pub fn register_within(&self, sequence: SequenceId, grammar: &CompiledGrammar, limit: TokenLimit) {
        self.insert(sequence, Slot::new(grammar, Some(limit)));
    }

    /// Gives a sequence a matcher that has followed the first tokens of its answer, which were generated elsewhere:
    /// its masks are those that would have come there. The limit counts these tokens; none of them is ever taken
    /// back. Runs on the calling thread if that has a big stack.
    ///
    /// With `is_part` it is one of many short parts of an answer, each of which begins like this: a way to the end is
    /// looked for behind the last token only, because to look behind each of them would take as many times as long
    /// with every part.
    ///
    /// # Errors
    ///
    /// [`Grammar`](llgtrt_core::ErrorKind::Grammar): the tokens do not begin an answer.
    pub fn register_behind(
        &self,
        sequence: SequenceId,
        grammar: &CompiledGrammar,
        limit: Option<TokenLimit>,
        generated: &[TokenId],
        is_part: bool,
    ) -> Result<(), Error> {
        let mut slot = Slot::new(grammar, limit);
        if !generated.is_empty() {
            self.on_big_stack(|| slot.begin_behind(generated, is_part))?;
        }
        self.insert(sequence, slot);
        Ok(())
    }

    fn insert(&self, sequence: SequenceId, slot: Slot) {
        let entry = Entry::new(slot, FIRST_COST_NANOS, &self.lexers);
        let mut slots = self.slots.write();
        let replaced = slots.insert(sequence, Arc::new(entry));
        self.metrics.matchers.set(slots.len() as i64);
        drop(slots);
        drop(replaced);
    }

    /// Forgets a sequence; unknown ones are no error.
    pub fn remove(&self, sequence: SequenceId) {
        // Dropped after the lock is released: freeing a matcher takes a while.
        let mut slots = self.slots.write();
        let removed = slots.remove(&sequence);
        self.metrics.matchers.set(slots.len() as i64);
        drop(slots);
        drop(removed);
    }

    /// What happened to a sequence so far; waits for nobody. Nothing for unknown ones.
    pub fn tally(&self, sequence: SequenceId) -> Tally {
        self.slots.read().get(&sequence).map(|entry| entry.tally()).unwrap_or_default()
    }

    /// Sequences registered.
    pub fn len(&self) -> usize {
        self.slots.read().len()
    }

    /// Whether no sequence is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that the lexers of the sequences have grown to, estimated, in bytes.
    pub fn lexer_bytes(&self) -> u64 {
        self.lexers.bytes()
    }

    /// Runs `f` where there is enough stack for llguidance.
    fn on_big_stack<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        match &self.workers {
            Some(workers) if !on_big_stack_thread() => workers.install(f),
            _ => f(),
        }
    }

    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn advance_all(&self, slots: &[MaskSlot<'_>], fast_forward: bool, out: &mut AdvanceBatch) {
        let mut stale = SCRATCH.take();
        stale.clear();
        let mut begun = 0;
        self.started.store(false, Ordering::Relaxed);
        let forward_pass = self.gap.load(Ordering::Relaxed) > FORWARD_NANOS;
        // All checks together have one bound; whoever did not get a turn is the first at the next.
        let mut allowance = Allowance::turn();
        let first = self.next_check.lock().take();
        let mut reserved = if first.is_some() { allowance.reserve() } else { Allowance::default() };
        let mut entries = ENTRIES.take();
        entries.clear();
        {
            let registered = self.slots.read();
            entries.extend(slots.iter().map(|request| registered.get(&request.sequence).cloned()));
        }
        let together = self.advance_together(slots, &entries, fast_forward);
        for (request, entry) in slots.iter().zip(entries.drain(..)) {
            let Some(shared) = entry else {
                out.push(&[], AdvanceState::Failed(unknown()));
                continue;
            };
            let mut slot = shared.slot.lock();
            if slot.is_checked() {
                let own = if first == Some(request.sequence) { &mut reserved } else { &mut allowance };
                let answer = slot.answer(request.tokens);
                self.advance_slot(&mut slot, &answer, fast_forward, own);
            } else if !together {
                self.advance_unchecked(&mut slot, &shared, request, fast_forward);
            }
            shared.note_advance(&mut slot);
            if slot.is_put_off() {
                self.next_check.lock().get_or_insert(request.sequence);
            }
            let (forced, next) = slot.outcome_here();
            if let AdvanceState::Retract { keep } = next {
                let retracted = (request.tokens.len() - keep) as u64;
                self.metrics.retracted_tokens.inc_by(retracted);
                shared.count_retracted(retracted);
            }
            out.push(forced, next);
            if let Some(certain) = slot.certain() {
                out.hold_after(slot.generated_here(certain));
            }
            let is_stale = slot.is_stale();
            drop(slot);
            if is_stale {
                stale.push(Job::new(shared));
                if stale.len() - begun >= CHUNK {
                    self.start(&mut stale[begun..], forward_pass);
                    begun = stale.len();
                }
            }
        }
        self.start(&mut stale[begun..], forward_pass);
        stale.clear();
        SCRATCH.set(stale);
        ENTRIES.set(entries);
    }

    /// Advances the slots that have no check beside the grammar on several threads, and returns true, if that is worth it.
    /// These depend on nothing but their own tokens; checks share an allowance, and spend from it in order.
    fn advance_together(
        &self,
        slots: &[MaskSlot<'_>],
        entries: &[Option<Arc<Entry>>],
        fast_forward: bool,
    ) -> bool {
        let Some(workers) = &self.workers else { return false };
        let expected =
            entries.iter().flatten().map(|entry| u64::from(entry.advance_cost.load(Ordering::Relaxed)));
        let worth = (expected.sum::<u64>() / WAKE_NANOS) as usize;
        let wake = worth.min(workers.current_num_threads()).min(slots.len().saturating_sub(1));
        if wake == 0 {
            return false;
        }
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let (Some(request), Some(entry)) = (slots.get(index), entries.get(index)) else { return };
                let Some(entry) = entry else { continue };
                let mut slot = entry.slot.lock();
                if !slot.is_checked() {
                    self.advance_unchecked(&mut slot, entry, request, fast_forward);
                }
            }
        };
        workers.in_place_scope(|scope| {
            for _ in 0..wake {
                scope.spawn(|_| work());
            }
            work();
        });
        true
    }

    /// Advances a slot that has no check beside the grammar, and notes how long that takes.
    fn advance_unchecked(&self, slot: &mut Slot, entry: &Entry, request: &MaskSlot<'_>, fast_forward: bool) {
        let started = Instant::now();
        let answer = slot.answer(request.tokens);
        self.advance_slot(slot, &answer, fast_forward, &mut Allowance::default());
        note_cost(&entry.advance_cost, started.elapsed());
    }

    fn advance_slot(
        &self,
        slot: &mut Slot,
        answer: &[TokenId],
        fast_forward: bool,
        allowance: &mut Allowance,
    ) {
        let failed = slot.is_failed();
        slot.advance(answer, fast_forward, allowance);
        if slot.is_failed() && !failed {
            self.metrics.errors.inc();
        }
    }

    /// Wakes workers for these slots, if they are worth it. With `early` nobody waits yet, so
    /// everything is worth it.
    fn start(&self, stale: &mut [Job], early: bool) {
        let Some(workers) = &self.workers else { return };
        let expected: u64 = stale.iter().map(|job| u64::from(job.cost)).sum();
        let threads = workers.current_num_threads().min(stale.len());
        let wake = if early { threads } else { threads.min((expected / WAKE_NANOS) as usize) };
        if wake == 0 {
            return;
        }
        self.started.store(true, Ordering::Relaxed);
        stale.sort_by_key(Job::rank);
        let expensive = stale.iter().take_while(|job| job.cost >= EXPENSIVE_NANOS).count();
        let work: Arc<[Arc<Entry>]> = stale.iter().map(|job| Arc::clone(&job.shared)).collect();
        for worker in 1..=wake {
            let work = Arc::clone(&work);
            let metrics = Arc::clone(&self.metrics);
            workers.spawn(move || {
                // The calling thread begins at the front, each worker at its own share.
                let (first, cheap) = work.split_at(expensive);
                let (others, own) = cheap.split_at(cheap.len() * worker / (wake + 1));
                for shared in first.iter().chain(own).chain(others) {
                    // Somebody else is at it, or was.
                    if let Some(mut slot) = shared.slot.try_lock() {
                        compute(&mut slot, shared, &metrics);
                    }
                }
            });
        }
    }

    fn fill_all(&self, slots: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        let started = self.now();
        let gap = started.saturating_sub(self.advanced_at.load(Ordering::Relaxed));
        let typical = self.gap.load(Ordering::Relaxed);
        self.gap.store((typical * 7 + gap.min(10 * FORWARD_NANOS)) / 8, Ordering::Relaxed);

        let mut open: Vec<Row<'_>> = Vec::with_capacity(slots.len());
        for (request, (words, verdict)) in slots.iter().zip(batch.rows_mut()) {
            let Some(shared) = self.slots.read().get(&request.sequence).cloned() else {
                *verdict = MaskVerdict::Failed(unknown());
                continue;
            };
            open.push(Row { request: *request, job: Job::new(shared), words, verdict });
        }
        // What is ready is copied; the rest is computed, here and by the workers.
        open.retain_mut(|row| {
            let Some(mut slot) = row.job.shared.slot.try_lock() else { return true };
            let answer = slot.answer(row.request.tokens);
            self.catch_up(&mut slot, &answer);
            if slot.is_stale() {
                return true;
            }
            *row.verdict = slot.write(answer.len(), row.words);
            false
        });
        if open.len() > 1 {
            open.sort_by_key(|row| row.job.rank());
            if !self.started.load(Ordering::Relaxed) {
                let mut stale: Vec<Job> =
                    open.iter().map(|row| Job::new(Arc::clone(&row.job.shared))).collect();
                self.start(&mut stale, false);
            }
        }
        open.retain_mut(|row| {
            let shared = Arc::clone(&row.job.shared);
            let Some(mut slot) = shared.slot.try_lock() else { return true };
            self.finish(row, &mut slot);
            false
        });
        // What is left is being computed by a worker.
        for row in &mut open {
            let shared = Arc::clone(&row.job.shared);
            self.finish(row, &mut shared.slot.lock());
        }
        self.metrics.wait_seconds.observe((self.now() - started) as f64 * 1e-9);
    }

    /// Advances over tokens that the slot has not been told of.
    fn catch_up(&self, slot: &mut Slot, answer: &[TokenId]) {
        if slot.knows_fewer_than(answer.len()) {
            self.advance_slot(slot, answer, false, &mut Allowance::check());
        }
    }

    fn finish(&self, row: &mut Row<'_>, slot: &mut Slot) {
        let answer = slot.answer(row.request.tokens);
        self.catch_up(slot, &answer);
        compute(slot, &row.job.shared, &self.metrics);
        *row.verdict = slot.write(answer.len(), row.words);
    }
}

/// A row to be filled.
struct Row<'a> {
    request: MaskSlot<'a>,
    job: Job,
    words: &'a mut [u32],
    verdict: &'a mut MaskVerdict,
}

impl MaskSource for MaskPool {
    fn advance(&self, slots: &[MaskSlot<'_>], fast_forward: bool, out: &mut AdvanceBatch) {
        self.on_big_stack(|| self.advance_all(slots, fast_forward, out));
        self.advanced_at.store(self.now(), Ordering::Relaxed);
    }

    fn fill(&self, slots: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        if batch.rows() != slots.len() || batch.words_per_row() != self.vocab_size.div_ceil(32) {
            for (_, verdict) in batch.rows_mut() {
                *verdict = MaskVerdict::Failed(Error::internal("the mask batch has another shape"));
            }
            return;
        }
        self.on_big_stack(|| self.fill_all(slots, batch));
    }
}

/// Computes a slot's mask if that is still to be done.
fn compute(slot: &mut Slot, entry: &Entry, metrics: &MaskMetrics) {
    if !slot.is_stale() {
        return;
    }
    let started = Instant::now();
    slot.compute();
    entry.account(slot);
    let elapsed = started.elapsed();
    if slot.is_failed() {
        metrics.errors.inc();
    }
    note_cost(&entry.cost, elapsed);
    entry.count_masks(elapsed);
    metrics.compute_seconds.observe(elapsed.as_secs_f64());
}

/// What to expect of the next time: what this one took, or a fading peak.
fn note_cost(cost: &AtomicU32, elapsed: Duration) {
    let now = elapsed.as_nanos().min(u128::from(u32::MAX)) as u32;
    cost.store(now.max(cost.load(Ordering::Relaxed) / 2), Ordering::Relaxed);
}

fn unknown() -> Error {
    Error::internal("the sequence has no grammar")
}
