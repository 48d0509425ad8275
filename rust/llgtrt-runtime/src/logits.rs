//! Raw rows of logits on their way to who asked for them, and how many bytes of them there may be.
//!
//! A row is as long as the vocabulary: some hundreds of them are as large as a model. So a request has a bound, all requests
//! together have one, and both are checked before anything of the request starts. Rows are shared between the threads, never
//! copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use llgtrt_core::{Capabilities, Error, ErrorKind, Result, SequenceOutput, TokenOutput};

use crate::request::GenerateRequest;

/// Bytes of logits that all requests may hold at a time.
const MOST_HELD: u64 = 1 << 30;

/// One entry per token of the vocabulary.
pub(crate) type Row = Arc<[f32]>;

/// Counts the bytes that requests hold, or may come to hold.
#[derive(Debug, Default)]
pub(crate) struct LogitsGate {
    taken: AtomicU64,
}

impl LogitsGate {
    fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Arc<LogitsPlace>> {
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |taken| {
                taken.checked_add(bytes).filter(|sum| *sum <= MOST_HELD)
            })
            .map_err(|_| {
                Error::new(ErrorKind::Overloaded, "too many logits are on their way; try again later")
            })?;
        Ok(Arc::new(LogitsPlace { gate: Arc::clone(self), bytes }))
    }
}

/// Bytes taken from the gate, until the last row of the request is gone.
#[derive(Debug)]
pub(crate) struct LogitsPlace {
    gate: Arc<LogitsGate>,
    bytes: u64,
}

impl Drop for LogitsPlace {
    fn drop(&mut self) {
        self.gate.taken.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Rows of logits, as the model made them: before biases, masks, penalties and temperature.
#[derive(Debug, Clone)]
pub struct Logits {
    rows: Vec<Row>,
    /// Held for what it gives back at its end.
    _place: Arc<LogitsPlace>,
}

impl Logits {
    /// The rows, in the order of their positions.
    pub fn rows(&self) -> &[Arc<[f32]>] {
        &self.rows
    }
}

impl PartialEq for Logits {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
    }
}

/// New rows of one choice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChoiceLogits {
    /// One row per token of the prompt: what the model expects behind it. All at once.
    pub context: Option<Logits>,
    /// One row per generated token: what it was chosen from.
    pub generation: Option<Logits>,
}

impl ChoiceLogits {
    /// Adds what came later.
    pub(crate) fn append(&mut self, later: Self) {
        self.context = self.context.take().or(later.context);
        match (&mut self.generation, later.generation) {
            (Some(rows), Some(new)) => rows.rows.extend(new.rows),
            (rows @ None, new) => *rows = new,
            (Some(_), None) => {}
        }
    }
}

/// Takes the bytes that a request may come to need, if it asks for any.
///
/// # Errors
/// The engine has no such logits, they are more than the request or all requests may have.
pub(crate) fn reserve(
    gate: &Arc<LogitsGate>,
    request: &GenerateRequest,
    prompts: impl Iterator<Item = usize>,
    capabilities: &Capabilities,
) -> Result<Option<Arc<LogitsPlace>>> {
    if !request.returns_logits() {
        return Ok(None);
    }
    if request.return_context_logits && !capabilities.prompt_logprobs {
        let name = capabilities.name;
        return Err(Error::invalid(
            CONTEXT,
            format!(
                "{CONTEXT}: the {name} engine has no logits of the prompt here (TensorRT-LLM has them where the engine \
                 was built with --gather_context_logits)"
            ),
        ));
    }
    let (mut of_prompts, mut of_answers) = (0_u64, 0_u64);
    for tokens in prompts {
        let left = capabilities.max_sequence_tokens.saturating_sub(tokens as u32).max(1);
        let most = request.max_tokens.unwrap_or(left).clamp(1, left);
        of_prompts += if request.return_context_logits { tokens as u64 } else { 0 };
        of_answers +=
            if request.return_generation_logits { u64::from(most) * u64::from(request.n) } else { 0 };
    }
    let columns = u64::from(capabilities.vocab_size);
    let bytes = (of_prompts + of_answers) * columns * size_of::<f32>() as u64;
    if bytes > request.max_logits_bytes {
        let name = if of_prompts > of_answers { CONTEXT } else { GENERATION };
        let (rows, most) = (of_prompts + of_answers, request.max_logits_bytes);
        return Err(Error::invalid(
            name,
            format!(
                "{name}: {rows} rows of {columns} logits take {bytes} bytes, and a request may ask for {most} here; \
                 use a shorter prompt or a smaller max_tokens"
            ),
        ));
    }
    gate.reserve(bytes).map(Some)
}

const CONTEXT: &str = "return_context_logits";
const GENERATION: &str = "return_generation_logits";

/// Collects the rows of one sequence. Used by the output thread.
#[derive(Debug)]
pub(crate) struct LogitsReport {
    context: Option<Context>,
    generation: bool,
    place: Arc<LogitsPlace>,
}

/// The rows of a prompt until they are complete.
#[derive(Debug)]
struct Context {
    tokens: usize,
    /// All but the last, which predict the prompt's own tokens.
    rows: Option<Vec<Row>>,
    /// The one that the first generated token was chosen from.
    last: Option<Row>,
}

impl LogitsReport {
    /// For a sequence with a prompt of `context` tokens, if its rows are reported.
    pub(crate) fn new(context: Option<usize>, generation: bool, place: Arc<LogitsPlace>) -> Self {
        let context = context.map(|tokens| Context { tokens, rows: None, last: None });
        Self { context, generation, place }
    }

    /// What an output of the engine adds. Of the tokens that it `reported`, `passed` are certain and seen.
    ///
    /// # Errors
    /// A row is missing: it was not finite.
    pub(crate) fn take(
        &mut self,
        output: &SequenceOutput,
        reported: &[TokenOutput],
        passed: &[TokenOutput],
    ) -> Result<Option<Box<ChoiceLogits>>> {
        let context = self.take_context(output, reported)?;
        let generation = if self.generation && !passed.is_empty() {
            let rows: Option<Vec<_>> = passed.iter().map(row_of).collect();
            Some(self.keep(rows.ok_or_else(not_finite)?))
        } else {
            None
        };
        let any = context.is_some() || generation.is_some();
        Ok(any.then(|| Box::new(ChoiceLogits { context, generation })))
    }

    fn take_context(&mut self, output: &SequenceOutput, reported: &[TokenOutput]) -> Result<Option<Logits>> {
        let Some(context) = &mut self.context else { return Ok(None) };
        if let Some(entries) = &output.prompt_logprobs {
            let rows: Vec<_> = entries.iter().flatten().filter_map(|entry| entry.row.clone()).collect();
            if rows.len() + 1 != context.tokens {
                return Err(not_finite());
            }
            context.rows = Some(rows);
        }
        if let (None, Some(first)) = (&context.last, reported.first()) {
            context.last = Some(row_of(first).ok_or_else(not_finite)?);
        }
        // An answer may end without a token, and then nobody looked at the last row.
        if context.rows.is_none() || (context.last.is_none() && output.finish.is_none()) {
            return Ok(None);
        }
        let Some(Context { rows, last, .. }) = self.context.take() else { return Ok(None) };
        Ok(Some(self.keep(rows.into_iter().flatten().chain(last).collect())))
    }

    fn keep(&self, rows: Vec<Row>) -> Logits {
        Logits { rows, _place: Arc::clone(&self.place) }
    }
}

fn row_of(token: &TokenOutput) -> Option<Row> {
    token.logprobs.as_ref()?.row.clone()
}

fn not_finite() -> Error {
    Error::new(ErrorKind::NotFinite, "the model produced logits that are not finite")
}

#[cfg(test)]
mod tests {
    use super::*;
    use llgtrt_core::{SequenceId, StepBatch, TokenLogprobs};

    fn logprobs(value: f32) -> TokenLogprobs {
        TokenLogprobs { logprob: -1.0, top: Vec::new(), row: Some([value, 0.0].into()) }
    }

    fn capabilities() -> Capabilities {
        Capabilities {
            max_batch_size: 1,
            max_sequence_tokens: 100,
            vocab_size: 1000,
            fast_forward: true,
            prompt_logprobs: true,
            allowed_logprobs: true,
            host_logits: true,
            retract: true,
            request_options: false,
            handover: true,
            name: "test",
        }
    }

    fn asked(bytes: u64) -> GenerateRequest {
        GenerateRequest {
            n: 2,
            max_tokens: Some(10),
            return_context_logits: true,
            return_generation_logits: true,
            max_logits_bytes: bytes,
            ..GenerateRequest::default()
        }
    }

    fn values(logits: Option<Logits>) -> Option<Vec<f32>> {
        logits.map(|logits| logits.rows().iter().map(|row| row[0]).collect())
    }

    #[test]
    fn what_is_needed_is_known_before_and_comes_back() {
        let gate = Arc::new(LogitsGate::default());
        // Rows of two prompts, and of two answers to each.
        let needed = (5 + 7 + 4 * 10) * 1000 * 4;
        let prompts = || [5, 7].into_iter();
        let place = reserve(&gate, &asked(needed), prompts(), &capabilities()).unwrap().unwrap();
        assert_eq!(gate.taken.load(Ordering::Relaxed), needed);
        let refused = reserve(&gate, &asked(needed - 1), prompts(), &capabilities()).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some(GENERATION));
        assert!(refused.message.contains(&needed.to_string()), "{}", refused.message);
        drop(place);
        assert_eq!(gate.taken.load(Ordering::Relaxed), 0);
        let silent = GenerateRequest::default();
        assert!(reserve(&gate, &silent, prompts(), &capabilities()).unwrap().is_none());
    }

    #[test]
    fn the_context_bounds_answers_without_a_limit() {
        let gate = Arc::new(LogitsGate::default());
        let open =
            GenerateRequest { n: 1, max_tokens: None, return_context_logits: false, ..asked(95 * 4000) };
        assert!(reserve(&gate, &open, [5].into_iter(), &capabilities()).is_ok());
        assert!(reserve(&gate, &open, [4].into_iter(), &capabilities()).is_err());
    }

    #[test]
    fn all_requests_share_a_bound() {
        let gate = Arc::new(LogitsGate::default());
        let half = gate.reserve(MOST_HELD / 2).unwrap();
        assert_eq!(gate.reserve(MOST_HELD / 2 + 1).unwrap_err().kind, ErrorKind::Overloaded);
        drop(half);
        assert!(gate.reserve(MOST_HELD).is_ok());
    }

    #[test]
    fn an_engine_without_logits_of_prompts_is_named() {
        let gate = Arc::new(LogitsGate::default());
        let without = Capabilities { prompt_logprobs: false, ..capabilities() };
        let refused = reserve(&gate, &asked(u64::MAX), [5].into_iter(), &without).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some(CONTEXT));
        let generated = GenerateRequest { return_context_logits: false, ..asked(u64::MAX) };
        assert!(reserve(&gate, &generated, [5].into_iter(), &without).unwrap().is_some());
    }

    #[test]
    fn rows_of_the_prompt_wait_for_the_one_behind_it() {
        let gate = Arc::new(LogitsGate::default());
        let mut report = LogitsReport::new(Some(3), true, gate.reserve(1).unwrap());
        let mut batch = StepBatch::default();
        batch.begin(SequenceId(1)).prompt_logprobs =
            Some(vec![None, Some(logprobs(1.0)), Some(logprobs(2.0))]);
        batch.begin(SequenceId(1));
        for value in [3.0, 4.0] {
            let logprobs = Some(Box::new(logprobs(value)));
            batch.push_token(TokenOutput { token: 0, forced: false, removed_mass: None, logprobs });
        }
        let outputs: Vec<_> = batch.iter().collect();
        assert!(report.take(outputs[0].0, &[], &[]).unwrap().is_none());
        let (output, tokens) = outputs[1];
        let mut first = *report.take(output, tokens, &tokens[..1]).unwrap().unwrap();
        assert_eq!(values(first.context.clone()), Some(vec![1.0, 2.0, 3.0]));
        assert_eq!(values(first.generation.clone()), Some(vec![3.0]));
        let second = *report.take(output, tokens, &tokens[1..]).unwrap().unwrap();
        assert!(second.context.is_none());
        first.append(second);
        assert_eq!(values(first.context), Some(vec![1.0, 2.0, 3.0]));
        assert_eq!(values(first.generation), Some(vec![3.0, 4.0]));
    }

    #[test]
    fn a_row_that_is_missing_is_an_error() {
        let gate = Arc::new(LogitsGate::default());
        let mut report = LogitsReport::new(Some(3), false, gate.reserve(1).unwrap());
        let mut batch = StepBatch::default();
        batch.begin(SequenceId(1)).prompt_logprobs = Some(vec![None, Some(logprobs(1.0)), None]);
        let (output, _) = batch.iter().next().unwrap();
        assert_eq!(report.take(output, &[], &[]).unwrap_err().kind, ErrorKind::NotFinite);
    }
}
