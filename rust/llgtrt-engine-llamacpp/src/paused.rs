//! Forward passes over prompts that pause between layers, so that sequences that generate need not wait for their end.
//!
//! A pass over a long prompt attends to all of it, which takes long even for few tokens. Here such a pass is computed by a context of its own
//! over the same cells (`memory/shared.cpp`), on a stack of its own: llama.cpp calls back where a part of a layer is computed, and there the
//! thread leaves the pass and goes back to it later. All is done by the engine's thread, so no two passes compute at once.

#![expect(unsafe_code, reason = "llama.cpp's C API")]

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use llama_cpp_2::model::LlamaModel;
use llama_cpp_sys_2 as sys;
use llgtrt_core::TokenId;

use crate::context::{Context, DecodeError, add_token, raw_model, thread_pool};
use crate::repack;

/// Tokens of a pass at most. With more each costs hardly less.
const MOST_TOKENS: u32 = 512;

/// What is read and unpacked of the weights serves so many tokens at once, or so many.
const GROUP: usize = 16;
const WIDE_GROUP: usize = 128;

/// What llama.cpp calls what is computed where a pass can pause: what attention adds to a layer's input, and what comes out of the layer.
const PAUSES: [&[u8]; 2] = [b"ffn_inp-", b"l_out-"];

/// Parts between two pauses at most, whatever they are thought to take.
const MOST_PARTS: usize = 16;

/// Of a thread of the engine as well; llama.cpp builds graphs by recursion.
const STACK_BYTES: usize = 8 << 20;

/// How a paused pass goes on.
enum Go {
    On,
    /// It ends; nothing more is computed.
    Stop,
}

/// What the callback finds.
#[derive(Default)]
struct Gate {
    /// Of the pass that is begun; null where none can pause.
    yielder: Cell<*const Yielder<Go, ()>>,
    /// Places where it could pause and does not, before the next pause.
    skipped: Cell<usize>,
    stopped: Cell<bool>,
}

/// A pass that is begun.
struct Begun {
    pass: Coroutine<Go, (), i32, DefaultStack>,
    elapsed: Duration,
    parts: Parts,
}

/// How long the parts of a pass take, in seconds.
#[derive(Debug)]
struct Parts {
    /// How many parts of a layer there are, which follow each other in turn.
    kinds: usize,
    done: usize,
    known: [Option<f64>; PAUSES.len()],
}

impl Parts {
    fn new(kinds: usize) -> Self {
        Self { kinds, done: 0, known: [None; PAUSES.len()] }
    }

    /// How many of the next ones take about so long: one at least, and only one until each is known.
    fn fitting(&self, within: f64) -> usize {
        let (mut count, mut seconds) = (0, 0.0);
        while let Some(next) = self.known[(self.done + count) % self.kinds]
            && seconds + next / 2.0 <= within
            && self.known[..self.kinds].iter().all(Option::is_some)
            && count < MOST_PARTS
        {
            (count, seconds) = (count + 1, seconds + next);
        }
        count.max(1)
    }

    /// Whether the next one takes about so long, or is not known and there is time left.
    fn fits(&self, within: f64) -> bool {
        within > self.known[self.done % self.kinds].unwrap_or(0.0) / 2.0
    }

    /// The next ones, so many, took so long.
    fn learn(&mut self, count: usize, seconds: f64) {
        let kind = self.done % self.kinds;
        if count == 1 {
            // At first the graph is made as well.
            self.known[kind] = (self.done > 0).then_some(seconds);
        } else {
            let expected: f64 = (0..count).filter_map(|part| self.known[(kind + part) % self.kinds]).sum();
            for known in self.known.iter_mut().flatten() {
                *known *= seconds / expected;
            }
        }
        self.done += count;
    }
}

/// See the module.
pub(crate) struct PausedPasses {
    raw: NonNull<sys::llama_context>,
    pool: Option<NonNull<sys::ggml_threadpool>>,
    batch: sys::llama_batch,
    capacity: usize,
    slots: usize,
    layers: usize,
    gate: Box<Gate>,
    begun: Option<Begun>,
    stack: Option<DefaultStack>,
    /// Parts of a layer.
    kinds: usize,
    /// The context points into it.
    _weights: Arc<LlamaModel>,
}

// SAFETY: llama.cpp's context, batch and thread pool are not bound to a thread, and a paused pass holds nothing of the thread that computed it but
// the note in `repack/pass.h` that it is begun there, which stays valid. It is not `Sync`.
unsafe impl Send for PausedPasses {}

impl PausedPasses {
    /// For prompts in the slots of `context`, which is empty and outlives it. `None` if its model's passes cannot pause, or there is no memory.
    pub(crate) fn new(context: &mut Context) -> Option<Self> {
        if !cfg!(repack) {
            return None;
        }
        let stack = DefaultStack::new(STACK_BYTES).ok()?;
        let gate = Box::<Gate>::default();
        let mut params = context.params();
        let capacity = params.n_ubatch.min(MOST_TOKENS);
        (params.n_batch, params.n_ubatch, params.n_outputs_max) = (capacity, capacity, params.n_seq_max);
        params.cb_eval = Some(at_node);
        params.cb_eval_user_data = ptr::from_ref(&*gate).cast_mut().cast();
        let weights = Arc::clone(context.weights());
        // SAFETY: the model is alive; llama.cpp answers null on error.
        let raw = NonNull::new(unsafe { sys::llama_init_from_model(raw_model(&weights), params) })?;
        let pool = thread_pool(params.n_threads_batch as u32);
        share_memory(raw, context.raw());
        // SAFETY: context and pool are alive; the batch is freed by `drop`.
        let batch = unsafe {
            if let Some(pool) = pool {
                sys::llama_attach_threadpool(raw.as_ptr(), pool.as_ptr(), pool.as_ptr());
            }
            sys::llama_batch_init(capacity as i32, 0, 1)
        };
        let layers = weights.n_layer() as usize;
        let mut this = Self {
            raw,
            pool,
            batch,
            capacity: capacity as usize,
            slots: params.n_seq_max as usize,
            layers,
            gate,
            begun: None,
            stack: Some(stack),
            kinds: 1,
            _weights: weights,
        };
        this.begin(0, 0, &[0]);
        let mut pauses = 0;
        let ended = loop {
            match this.resume(Duration::ZERO) {
                None => pauses += 1,
                Some((_, result)) => break result,
            }
        };
        context.truncate(0, 0);
        this.kinds = pauses / layers.max(1);
        (ended.is_ok() && (1..=PAUSES.len()).contains(&this.kinds)).then_some(this)
    }

    /// With so many tokens, or a few less, a pass takes so many seconds a layer, where one takes `each` in all.
    pub(crate) fn tokens_of(&self, layer: f64, each: f64) -> usize {
        let tokens = ((layer * self.layers as f64 / each) as usize).clamp(GROUP, self.capacity.max(GROUP));
        tokens - tokens % if tokens > WIDE_GROUP { WIDE_GROUP } else { GROUP }
    }

    /// Begins a pass over as many of `tokens` as it holds, from position `start` of `slot` on, and answers how many these are. None is begun
    /// yet.
    pub(crate) fn begin(&mut self, slot: usize, start: usize, tokens: &[TokenId]) -> usize {
        assert!(slot < self.slots && self.begun.is_none());
        let Some(stack) = self.stack.take() else { return 0 };
        let tokens = &tokens[..tokens.len().min(self.capacity)];
        self.batch.n_tokens = 0;
        for (position, &token) in (start..).zip(tokens) {
            // SAFETY: the batch was made for `capacity` tokens of one sequence each, and has fewer.
            unsafe { add_token(&mut self.batch, slot, position, token, false) };
        }
        self.gate.stopped.set(false);
        let (raw, pool, batch) = (self.raw, self.pool, self.batch);
        let gate: *const Gate = &raw const *self.gate;
        let pass = Coroutine::with_stack(stack, move |yielder, _: Go| {
            repack::computing_in_parts(pool, || {
                // SAFETY: whoever drops `PausedPasses` ends the pass before context, batch and gate go. The batch is filled up to `n_tokens`,
                // within the limits that the context was made with.
                unsafe {
                    (*gate).yielder.set(yielder);
                    let code = sys::llama_decode(raw.as_ptr(), batch);
                    (*gate).yielder.set(ptr::null());
                    code
                }
            })
        });
        self.begun = Some(Begun { pass, elapsed: Duration::ZERO, parts: Parts::new(self.kinds) });
        tokens.len()
    }

    /// Goes on with the pass that is begun: for one part at least, and so many as take about as long as `within`. Answers how long all of it
    /// took, and what came of it, if that ends it.
    pub(crate) fn resume(&mut self, within: Duration) -> Option<(Duration, Result<(), DecodeError>)> {
        let mut left = within.as_secs_f64();
        while let Some(begun) = &mut self.begun {
            let count = begun.parts.fitting(left);
            self.gate.skipped.set(count - 1);
            let started = Instant::now();
            let result = begun.pass.resume(Go::On);
            let elapsed = started.elapsed();
            begun.elapsed += elapsed;
            left -= elapsed.as_secs_f64();
            match result {
                CoroutineResult::Yield(()) => {
                    begun.parts.learn(count, elapsed.as_secs_f64());
                    if !begun.parts.fits(left) {
                        break;
                    }
                }
                CoroutineResult::Return(code) => return self.end(code),
            }
        }
        None
    }

    /// Ends the pass that is begun. Its tokens are to be taken back then.
    pub(crate) fn stop(&mut self) {
        self.gate.skipped.set(0);
        while let Some(begun) = &mut self.begun {
            if let CoroutineResult::Return(code) = begun.pass.resume(Go::Stop) {
                self.end(code);
            }
        }
    }

    /// Takes back the stack of the pass, which has ended.
    fn end(&mut self, code: i32) -> Option<(Duration, Result<(), DecodeError>)> {
        let Begun { pass, elapsed, .. } = self.begun.take()?;
        self.stack = Some(pass.into_stack());
        Some((elapsed, DecodeError::of(code)))
    }
}

impl Drop for PausedPasses {
    fn drop(&mut self) {
        self.stop();
        // SAFETY: each was made by llama.cpp, is freed once, and the context goes before its pool.
        unsafe {
            sys::llama_batch_free(self.batch);
            sys::llama_free(self.raw.as_ptr());
            if let Some(pool) = self.pool {
                sys::ggml_threadpool_free(pool.as_ptr());
            }
        }
    }
}

/// Called for each node of a graph: before it is computed, whether the pass is to pause behind it; and there.
unsafe extern "C" fn at_node(node: *mut sys::ggml_tensor, before: bool, data: *mut c_void) -> bool {
    // SAFETY: llama.cpp calls it with a living tensor, and the gate lives as long as the context.
    let (name, gate) = unsafe { (CStr::from_ptr((*node).name.as_ptr()), &*data.cast::<Gate>()) };
    if before {
        let can = PAUSES.iter().any(|pause| name.to_bytes().starts_with(pause));
        let skips = can && gate.skipped.get() > 0;
        gate.skipped.set(gate.skipped.get() - usize::from(skips));
        return can && !skips;
    }
    let yielder = gate.yielder.get();
    if yielder.is_null() || gate.stopped.get() {
        return !gate.stopped.get();
    }
    // SAFETY: it is that of the pass which calls, on whose stack it lives.
    match unsafe { (*yielder).suspend(()) } {
        Go::On => true,
        Go::Stop => {
            gate.stopped.set(true);
            false
        }
    }
}

/// Gives a context the cells of another one, which lives longer and is of the same model and size.
fn share_memory(context: NonNull<sys::llama_context>, owner: NonNull<sys::llama_context>) {
    #[cfg(repack)]
    {
        unsafe extern "C" {
            #[link_name = "llgtrt_share_memory"]
            fn share(context: *mut sys::llama_context, owner: *mut sys::llama_context);
        }
        // SAFETY: both are alive, and nothing is computed.
        unsafe { share(context.as_ptr(), owner.as_ptr()) }
    }
    #[cfg(not(repack))]
    let _ = (context, owner);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a pass whose parts take so long, in turn: how many are computed at once, and what they are thought to take afterwards.
    fn counts(parts: &mut Parts, lengths: &[f64], within: f64, times: usize) -> Vec<usize> {
        let mut count = || {
            let count = parts.fitting(within);
            let seconds = (0..count).map(|part| lengths[(parts.done + part) % lengths.len()]).sum();
            parts.learn(count, seconds);
            count
        };
        (0..times).map(|_| count()).collect()
    }

    #[test]
    fn as_many_parts_are_computed_at_once_as_take_about_so_long() {
        let mut parts = Parts::new(2);
        // The first one tells nothing, and two more are needed to know both kinds.
        assert_eq!(counts(&mut parts, &[3.0, 1.0], 4.0, 6), [1, 1, 1, 2, 2, 2]);
        assert_eq!(counts(&mut parts, &[3.0, 1.0], 3.0, 2), [2, 2], "it is nearer than one");
        assert_eq!(counts(&mut parts, &[3.0, 1.0], 0.0, 3), [1, 1, 1], "one at least");
        assert_eq!(counts(&mut parts, &[3.0, 1.0], 1000.0, 2), [MOST_PARTS; 2]);
        let mut alike = Parts::new(1);
        assert_eq!(counts(&mut alike, &[2.0], 4.0, 4), [1, 1, 2, 2]);
    }

    #[test]
    fn parts_that_take_longer_than_they_did_are_fewer() {
        let mut parts = Parts::new(2);
        counts(&mut parts, &[1.0, 1.0], 8.0, 4);
        assert_eq!(counts(&mut parts, &[4.0, 4.0], 8.0, 3), [8, 2, 2]);
        assert!(parts.fits(2.1) && !parts.fits(1.9), "half of it");
        assert!(Parts::new(2).fits(0.1) && !Parts::new(2).fits(0.0));
    }
}
