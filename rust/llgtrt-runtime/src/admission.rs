//! From a request to running sequences: tokenize, check lengths, compile the grammar, submit.
//!
//! Runs on admission threads with big stacks (tokenizers recurse on hostile text) and finishes on a
//! compile thread where there is a grammar to compile. Never on the event loop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};

use llgtrt_core::{
    Capabilities, EncodeOptions, Error, ErrorKind, Phase, RequestOptions, Result, SamplingParams, SequenceId,
    SequenceSpec, TokenId, Tokenizer,
};
use llgtrt_grammar::{CompiledGrammar, GrammarCompiler, MaskPool};
use llgtrt_text::{GUARD, GuardedEncoder, decode_lossy};

use crate::constrained::{receipt, under_param};
use crate::engine_loop::{Command, panic_text};
use crate::gate::Permit;
use crate::live::{NewSequence, Reports};
use crate::logits::{LogitsGate, LogitsPlace, LogitsReport, reserve};
use crate::outbox::RequestState;
use crate::output::Event;
use crate::request::{GenerateRequest, Prompt};
use crate::seeds::Seeds;
use crate::shared::Shared;

/// A request that has a place and waits to be admitted.
pub(crate) struct Job {
    pub state: Arc<RequestState>,
    pub request: Arc<GenerateRequest>,
    pub permit: Permit,
    /// For the logits that it asks for.
    pub logits: Option<Arc<LogitsPlace>>,
}

/// What admission threads share.
pub(crate) struct Admission {
    pub shared: Arc<Shared>,
    pub tokenizer: Arc<dyn Tokenizer>,
    pub encoder: GuardedEncoder,
    pub compiler: Arc<GrammarCompiler>,
    pub masks: Arc<MaskPool>,
    pub capabilities: Capabilities,
    pub commands: Sender<Command>,
    pub events: Sender<Event>,
    pub next_sequence: AtomicU64,
    pub seeds: Seeds,
    pub logits: Arc<LogitsGate>,
    /// The longest token in bytes: bounds how many tokens a text has at least.
    pub max_token_bytes: usize,
}

/// A tokenized prompt and its text where the answer repeats it.
struct PreparedPrompt {
    tokens: Arc<[TokenId]>,
    text: Option<String>,
}

impl Admission {
    /// Serves jobs until the senders are gone.
    pub(crate) fn run(self: &Arc<Self>, jobs: &Receiver<Job>) {
        for job in jobs {
            let state = Arc::clone(&job.state);
            let _within = state.span.enter();
            let outcome = catch_unwind(AssertUnwindSafe(|| self.admit(job)));
            if let Err(error) = outcome.unwrap_or_else(|panic| Err(Error::internal(panic_text(&*panic)))) {
                self.shared.fail(&state, error);
            }
        }
    }

    fn admit(self: &Arc<Self>, mut job: Job) -> Result<()> {
        if job.state.is_closed() {
            return Ok(());
        }
        self.prepare_options(Arc::make_mut(&mut job.request))?;
        let prompts = self.prepare_prompts(&job.request)?;
        let lengths = prompts.iter().map(|prompt| prompt.tokens.len());
        job.logits = reserve(&self.logits, &job.request, lengths, &self.capabilities)?;
        let Some(spec) = job.request.grammar.clone() else {
            return self.launch(job, prompts, None);
        };
        self.shared.metrics.constrained.with_label_values(&[spec.kind()]).inc();
        let this = Arc::clone(self);
        let param = job.request.grammar_param.clone();
        let param_of_compiled = param.clone();
        let state = Arc::clone(&job.state);
        let asked = Instant::now();
        let started = self.compiler.compile_async(
            spec,
            Box::new(move |compiled| {
                let _within = state.span.enter();
                state.note(|times| times.compile = Some((asked, Instant::now())));
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    let grammar =
                        compiled.map_err(|error| under_param(error, param_of_compiled.as_deref()))?;
                    this.launch(job, prompts, Some(&grammar))
                }));
                if let Err(error) = outcome.unwrap_or_else(|panic| Err(Error::internal(panic_text(&*panic))))
                {
                    this.shared.fail(&state, error);
                }
            }),
        );
        started.map_err(|error| under_param(error, param.as_deref()))
    }

    /// Refuses what the engine would ignore, and turns bad words into tokens.
    fn prepare_options(&self, request: &mut GenerateRequest) -> Result<()> {
        if request.sequences() > 1 && !matches!(request.phase(), Phase::Whole) {
            let message = "one answer to one prompt can be divided between servers";
            return Err(Error::invalid("disaggregated_params", message));
        }
        if !request.processors.is_empty() && !self.capabilities.host_logits {
            let name = self.capabilities.name;
            let message =
                format!("the logits of the {name} engine stay on the GPU, where no processor sees them");
            return Err(Error::invalid("logits_processors", message));
        }
        let asked = request.options.as_ref().and_then(|options| options.asks_for());
        let asked = asked.or((!request.bad_words.is_empty()).then_some("bad_words"));
        let Some(asked) = asked else { return Ok(()) };
        if !self.capabilities.request_options {
            let name = self.capabilities.name;
            return Err(Error::invalid(asked, format!("{asked} is not supported by the {name} engine")));
        }
        let no_repeats = |options: &RequestOptions| options.sampling.no_repeat_ngram_size.is_some();
        let bans = [
            ("bad_words", !request.bad_words.is_empty()),
            ("no_repeat_ngram_size", request.options.as_deref().is_some_and(no_repeats)),
        ];
        if request.grammar.is_some()
            && let Some((name, _)) = bans.into_iter().find(|(_, asked)| *asked)
        {
            // Where the grammar allows only what is banned, no token would be left.
            return Err(Error::invalid(name, format!("{name} cannot be combined with a constraint")));
        }
        if request.bad_words.is_empty() {
            return Ok(());
        }
        let options = Arc::make_mut(request.options.get_or_insert_default());
        for word in &request.bad_words {
            options.bad_words.extend(self.bad_word(word)?);
        }
        Ok(())
    }

    /// The tokens of a bad word at the start of a text and, where they are others, after a blank.
    fn bad_word(&self, word: &str) -> Result<Vec<Vec<TokenId>>> {
        let options = EncodeOptions { add_special: false, parse_special: false };
        let word = word.trim_start();
        let plain = self.tokenizer.encode(word, options)?;
        if plain.is_empty() {
            return Err(Error::invalid("bad_words", "a bad word has no tokens"));
        }
        let spaced = self.tokenizer.encode(&format!(" {word}"), options)?;
        Ok(if spaced.ends_with(&plain) { vec![plain] } else { vec![plain, spaced] })
    }

    fn prepare_prompts(&self, request: &GenerateRequest) -> Result<Vec<PreparedPrompt>> {
        let several = request.prompts.len() > 1;
        request
            .prompts
            .iter()
            .enumerate()
            .map(|(index, prompt)| {
                let prepared = self.prepare_prompt(request, prompt)?;
                self.check_prompt(&prepared.tokens, request).map_err(|error| match &error.param {
                    None if several => error.with_param(format!("prompt[{index}]")),
                    None if !request.completion_form() => error.with_param("messages"),
                    None => error.with_param("prompt"),
                    Some(_) => error,
                })?;
                Ok(prepared)
            })
            .collect()
    }

    fn prepare_prompt(&self, request: &GenerateRequest, prompt: &Prompt) -> Result<PreparedPrompt> {
        match prompt {
            Prompt::Text(text) => {
                let text: &str = (**text).as_ref();
                let limit = self.capabilities.max_sequence_tokens as usize;
                let at_least = text.len() / self.max_token_bytes.max(1);
                let text = match request.most_prompt_tokens {
                    Some(most) => self.end_of(text, most),
                    None if at_least > limit => return Err(self.too_long(at_least, request)),
                    None => text,
                };
                let options = EncodeOptions { add_special: request.add_special, parse_special: true };
                let tokens = self.encoder.encode(text, options)?;
                let kept = last(&tokens, request.most_prompt_tokens);
                let text = request.echo.then(|| {
                    if kept.len() == tokens.len() {
                        text.replace(GUARD, "")
                    } else {
                        decode_lossy(self.tokenizer.vocabulary(), kept)
                    }
                });
                Ok(PreparedPrompt { tokens: kept.into(), text })
            }
            Prompt::Tokens(tokens) => {
                let kept = last(tokens, request.most_prompt_tokens);
                let text = request.echo.then(|| decode_lossy(self.tokenizer.vocabulary(), kept));
                Ok(PreparedPrompt { tokens: kept.into(), text })
            }
        }
    }

    /// As much of a text's end as may hold its last `most` tokens. Where a text is cut its first tokens are others:
    /// those are far before what is kept.
    fn end_of<'a>(&self, text: &'a str, most: u32) -> &'a str {
        let bytes = 2 * most as usize * self.max_token_bytes.max(1);
        let mut start = text.len().saturating_sub(bytes);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        &text[start..]
    }

    fn check_prompt(&self, tokens: &[TokenId], request: &GenerateRequest) -> Result<()> {
        // What was generated before comes after a prompt.
        if tokens.len() <= request.generated_tokens as usize {
            return Err(Error::new(ErrorKind::InvalidRequest, "the prompt is empty"));
        }
        let vocab_size = self.capabilities.vocab_size;
        match &request.options {
            Some(options) => options.check_prompt(tokens, vocab_size)?,
            None => RequestOptions::default().check_prompt(tokens, vocab_size)?,
        }
        let limit = self.capabilities.max_sequence_tokens as usize;
        if tokens.len() + request.least_tokens() as usize > limit {
            return Err(self.too_long(tokens.len(), request));
        }
        Ok(())
    }

    fn too_long(&self, prompt_tokens: usize, request: &GenerateRequest) -> Error {
        let limit = self.capabilities.max_sequence_tokens;
        let asked = request.least_tokens() as usize;
        let place = if request.completion_form() { "prompt" } else { "messages" };
        // OpenAI's words: clients look for them.
        Error::new(
            ErrorKind::ContextLength,
            format!(
                "This model's maximum context length is {limit} tokens. However, you requested {} tokens \
                 ({prompt_tokens} in the {place}, {asked} in the completion). Please reduce the length of the \
                 {place} or completion.",
                prompt_tokens + asked
            ),
        )
    }

    /// Creates the sequences. The output thread learns of each before the engine does, so that no
    /// output can come for a sequence it does not know.
    fn launch(
        &self,
        mut job: Job,
        prompts: Vec<PreparedPrompt>,
        grammar: Option<&CompiledGrammar>,
    ) -> Result<()> {
        let request = &job.request;
        if grammar.is_some_and(CompiledGrammar::is_verified) && !self.capabilities.retract {
            let message = format!(
                "`residual: verify` needs an engine that can take tokens back; {} cannot",
                self.capabilities.name
            );
            return Err(under_param(
                Error::new(ErrorKind::Grammar, message),
                request.grammar_param.as_deref(),
            ));
        }
        let limit = self.capabilities.max_sequence_tokens;
        let stop_token_ids: Arc<[TokenId]> = request.stop_token_ids.as_slice().into();
        let stop: Arc<[String]> = request.stop.as_slice().into();
        let removed_mass =
            request.return_removed_mass || (grammar.is_some() && request.sampling.logprobs.is_some());
        let reports = Reports {
            echoed: request.echo_logprobs,
            prompt_top: request.prompt_logprobs,
            top: request.sampling.logprobs.unwrap_or(0) as usize,
            token_ids: request.return_token_ids,
        };
        let prompt_logprobs = reports.echoed || reports.prompt_top.is_some();
        let reports_prompt = prompt_logprobs || reports.token_ids;
        // The engine counts alternatives once, for prompt and answer; what is too many is left out later. Rows come
        // with log-probabilities.
        let logprobs = request.sampling.logprobs.max(reports.prompt_top);
        let logprobs = if job.logits.is_some() { logprobs.max(Some(0)) } else { logprobs };
        let mut specs = Vec::with_capacity(request.sequences());
        let mut news = Vec::with_capacity(request.sequences());
        for (prompt_index, prompt) in prompts.into_iter().enumerate() {
            let remaining = limit - prompt.tokens.len() as u32;
            let max_tokens = request.max_tokens.unwrap_or(remaining).clamp(1, remaining);
            for choice in 0..request.n {
                let id = SequenceId(self.next_sequence.fetch_add(1, Ordering::Relaxed));
                let seed = match request.seed {
                    Some(seed) => seed.wrapping_add(u64::from(choice)),
                    None => self.seeds.next(),
                };
                let permit = job
                    .permit
                    .split_one()
                    .ok_or_else(|| Error::internal("permit is smaller than the request"))?;
                let generated = &prompt.tokens[prompt.tokens.len() - request.generated_tokens as usize..];
                request.phase().check(&self.capabilities, max_tokens)?;
                if let Some(grammar) = grammar {
                    self.register(id, request, grammar, max_tokens, generated, choice)?;
                }
                let context = request.return_context_logits && choice == 0;
                let logits = job.logits.as_ref().map(|place| {
                    let context = context.then_some(prompt.tokens.len());
                    Box::new(LogitsReport::new(context, request.return_generation_logits, Arc::clone(place)))
                });
                news.push(NewSequence {
                    id,
                    request: Arc::clone(&job.state),
                    index: prompt_index as u32 * request.n + choice,
                    echo: prompt.text.clone(),
                    prompt: (reports_prompt || choice == 0).then(|| Arc::clone(&prompt.tokens)),
                    reports,
                    logits,
                    counts_prompt: choice == 0,
                    prompt_only: request.max_tokens == Some(0),
                    stop: Arc::clone(&stop),
                    pipe: self.pipe(request, generated, grammar),
                    receipt: receipt(request, grammar),
                    permit,
                });
                specs.push(SequenceSpec {
                    id,
                    prompt: Arc::clone(&prompt.tokens),
                    max_tokens,
                    sampling: SamplingParams { seed, removed_mass, logprobs, ..sampling(request, context) },
                    stop_token_ids: Arc::clone(&stop_token_ids),
                    constrained: grammar.is_some(),
                    prompt_logprobs: prompt_logprobs || context,
                    options: request.options.clone(),
                    processor: request
                        .processors
                        .get(prompt_index * request.n as usize + choice as usize)
                        .cloned(),
                    phase: request.phase(),
                });
            }
        }
        tracing::debug!(
            sequences = specs.len(),
            prompt_tokens = specs.first().map_or(0, |spec| spec.prompt.len()),
            constraint = grammar.map(CompiledGrammar::kind),
            "admitted"
        );
        let ended = |_| Error::new(ErrorKind::ShuttingDown, "the server is shutting down");
        self.events.send(Event::Admitted(news)).map_err(ended)?;
        for spec in specs {
            if self.commands.send(Command::Submit(Box::new(spec), job.state.span.clone())).is_err() {
                // The output thread was told of the engine's end, or will be, and fails the request.
                break;
            }
        }
        // A reader that left in between found no sequences to end; now there are some.
        if job.state.is_closed() {
            let _ = self.events.send(Event::Closed(Arc::clone(&job.state)));
        }
        Ok(())
    }
}

/// How a sequence is sampled, whose rows of the prompt are reported with `context`.
fn sampling(request: &GenerateRequest, context: bool) -> SamplingParams {
    SamplingParams {
        logits_rows: if request.return_generation_logits { u32::MAX } else { context.into() },
        prompt_logits: context,
        ..request.sampling.clone()
    }
}

/// The last `most` tokens, or all.
fn last(tokens: &[TokenId], most: Option<u32>) -> &[TokenId] {
    let most = most.map_or(usize::MAX, |most| most as usize);
    &tokens[tokens.len().saturating_sub(most)..]
}
