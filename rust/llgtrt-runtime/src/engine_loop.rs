//! The engine's thread: takes commands, polls, hands step batches to the output thread.
//!
//! Owns the engine, and with it the native handle. Takes the GIL in logits processors alone, never waits for a client; it
//! waits for the output thread only when that is several steps behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError};

use llgtrt_core::{Engine, Error, SequenceId, SequenceSpec, StepBatch};

use crate::metrics::Metrics;
use crate::output::Event;
use crate::watchdog::Progress;

/// How long one poll may block while there is work; bounds the latency of commands for engines
/// that own their loop.
const POLL_TIMEOUT: Duration = Duration::from_millis(20);

/// What other threads ask of the engine.
#[derive(Debug)]
pub(crate) enum Command {
    /// Start a sequence that the output thread already knows; its engine's lines of the log belong to the span.
    Submit(Box<SequenceSpec>, tracing::Span),
    /// End a sequence early.
    Cancel(SequenceId),
    /// Drop the engine and end the thread.
    Shutdown,
}

/// Everything the thread works with.
pub(crate) struct EngineLoop {
    pub engine: Box<dyn Engine>,
    pub commands: Receiver<Command>,
    pub events: Sender<Event>,
    /// Empty batches that the output thread gave back.
    pub batches: Receiver<StepBatch>,
    pub progress: Arc<Progress>,
    pub metrics: Arc<Metrics>,
}

impl EngineLoop {
    /// Runs until [`Command::Shutdown`], the engine's death, or the end of all other threads.
    pub(crate) fn run(mut self) {
        let outcome = self.serve();
        self.progress.set_busy(false);
        // The receiver outlives this thread except when everything is being torn down.
        let _ = self.events.send(Event::EngineEnded(outcome.err()));
    }

    fn serve(&mut self) -> Result<(), Error> {
        let mut passes = 0;
        let mut spare = None;
        loop {
            if !self.engine.has_work() {
                self.progress.set_busy(false);
                self.metrics.update(&self.engine.stats());
                match self.commands.recv() {
                    Ok(Command::Shutdown) | Err(_) => return Ok(()),
                    Ok(command) => self.obey(command),
                }
                self.progress.step();
            }
            loop {
                match self.commands.try_recv() {
                    Ok(Command::Shutdown) | Err(TryRecvError::Disconnected) => return Ok(()),
                    Ok(command) => self.obey(command),
                    Err(TryRecvError::Empty) => break,
                }
            }
            if !self.engine.has_work() {
                continue;
            }
            self.progress.set_busy(true);
            let Ok(mut batch) = spare.take().map_or_else(|| self.batches.recv(), Ok) else { return Ok(()) };
            batch.clear();
            catch_unwind(AssertUnwindSafe(|| self.engine.poll(POLL_TIMEOUT, &mut batch)))
                .unwrap_or_else(|panic| Err(Error::engine(panic_text(&*panic))))?;
            let stats = self.engine.stats();
            if !batch.is_empty() || stats.forward_passes != passes {
                passes = stats.forward_passes;
                self.progress.step();
            }
            self.metrics.update(&stats);
            self.metrics.passes.add(batch.passes());
            if batch.is_empty() {
                spare = Some(batch);
            } else if self.events.send(Event::Step(batch)).is_err() {
                return Ok(());
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(spec, span) => {
                let id = spec.id;
                if let Err(error) = span.in_scope(|| self.engine.submit(*spec)) {
                    let _ = self.events.send(Event::Refused(id, error));
                }
            }
            Command::Cancel(id) => self.engine.cancel(id),
            Command::Shutdown => {}
        }
    }
}

/// The message of a caught panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    format!("panic: {text}")
}
