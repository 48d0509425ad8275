//! What a caller asks for, and what it gets back: plain data, no threads.
//!
//! A request crosses from Python as JSON that is read into [`GenerateRequest`], and its field names are those of the API
//! where the API has the field: there it is declared once, here once, and nowhere else.

use std::fmt::Debug;
use std::sync::Arc;

use llgtrt_core::{
    Error, GrammarSpec, Handover, LogitsProcessor, Phase, Receipt, RequestOptions, SamplingParams, TokenId,
};
use serde::{Deserialize, Deserializer};

use crate::logits::ChoiceLogits;
use crate::times::Times;

/// A text, whoever holds it: a Python string is read where it is.
pub trait Text: AsRef<str> + Debug + Send + Sync {}

impl<T: AsRef<str> + Debug + Send + Sync> Text for T {}

/// A prompt as text (tokenized on an admission thread) or as tokens.
#[derive(Debug, Clone)]
pub enum Prompt {
    /// Text. The names of control tokens in it are control tokens, unless they carry U+FDD0 guards (see
    /// `llgtrt_text::GuardedEncoder`).
    Text(Arc<dyn Text>),
    /// Token ids.
    Tokens(Vec<TokenId>),
}

/// The shape in which output is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// One delta, when every choice is done.
    #[default]
    Final,
    /// Deltas as they come.
    Deltas,
    /// Server-sent events with `chat.completion.chunk` objects.
    ChatSse,
    /// Server-sent events with `text_completion` objects.
    CompletionSse,
}

impl OutputFormat {
    /// Whether output is encoded as server-sent events.
    pub const fn is_sse(self) -> bool {
        matches!(self, Self::ChatSse | Self::CompletionSse)
    }
}

/// The form of the log-probabilities in structured output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogprobsForm {
    /// `content` of OpenAI's chat.
    #[default]
    Chat,
    /// Columns, as `/v1/completions` has them.
    Completion,
    /// By token ids (see `llgtrt_text::token_logprobs`).
    Tokens,
}

/// What happens to a constrained answer at its limit of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtLimit {
    /// It is completed in time and stays valid.
    #[default]
    Close,
    /// It ends wherever it is.
    Cut,
}

/// One HTTP request's worth of generation: `prompts.len() * n` sequences; choice `c` of prompt `p`
/// has index `p * n + c`.
///
/// The default asks for nothing in particular of no prompt.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, named as the API names them")]
pub struct GenerateRequest {
    /// At least one. They cross beside the JSON.
    #[serde(skip)]
    pub prompts: Vec<Prompt>,
    /// Add what the tokenizer adds by itself.
    pub add_special: bool,
    /// Only the last so many tokens of a longer prompt are used; `None`: one that does not fit is an error.
    pub most_prompt_tokens: Option<u32>,
    /// Choices per prompt, at least 1.
    pub n: u32,
    /// Most tokens per choice; `None` is what is left of the context. 0 evaluates the prompt only, for its text
    /// and its log-probabilities.
    pub max_tokens: Option<u32>,
    /// Where `max_tokens` is more than what is left of the context: take what is left, instead of refusing.
    pub clamp_max_tokens: bool,
    /// Sampling; the seed field is ignored in favour of [`Self::seed`].
    pub sampling: SamplingParams,
    /// Choice `c` uses `seed + c`; `None` draws fresh entropy per sequence.
    #[serde(deserialize_with = "seed")]
    pub seed: Option<u64>,
    /// Measure how much probability the masks remove, also without log-probabilities. Constrained requests with
    /// log-probabilities do in any case.
    pub return_removed_mass: bool,
    /// What the receipts of constrained answers call the constraint; `None`: no receipts.
    pub receipt: Option<String>,
    /// The id under which the log shows the request; may be empty.
    pub request_id: String,
    /// Report the prompt's log-probabilities with those of the answer, whose text begins with it ([`Self::echo`]).
    pub echo_logprobs: bool,
    /// Report the prompt's log-probabilities by themselves, with so many alternatives each.
    pub prompt_logprobs: Option<u32>,
    /// Report the logits behind each token of a prompt, with its first choice.
    pub return_context_logits: bool,
    /// Report the logits that each token of an answer was chosen from.
    pub return_generation_logits: bool,
    /// Bytes of logits that the request may come to have; more is an error before it starts.
    pub max_logits_bytes: u64,
    /// Report token ids: those of the prompt with the first piece of an answer, and those of each piece.
    pub return_token_ids: bool,
    /// What only some engines have.
    pub options: Option<Arc<RequestOptions>>,
    /// What changes rows of logits: one for each sequence, by its index, or none at all. They cross beside the JSON.
    #[serde(skip)]
    pub processors: Vec<Arc<dyn LogitsProcessor>>,
    /// Texts that must not be generated, with or without a blank before; they join
    /// [`RequestOptions::bad_words`] as tokens.
    pub bad_words: Vec<String>,
    /// Stop strings.
    pub stop: Vec<String>,
    /// Stop tokens.
    pub stop_token_ids: Vec<TokenId>,
    /// Keep the stop string in the text.
    pub include_stop_str_in_output: bool,
    /// Put the prompt's text before the answer.
    pub echo: bool,
    /// Constraint. It crosses beside the JSON.
    #[serde(skip)]
    pub grammar: Option<GrammarSpec>,
    /// The request field that grammar errors name.
    pub grammar_param: Option<String>,
    /// What becomes of a constrained answer when its limit of tokens is near.
    pub at_limit: AtLimit,
    /// Delivery.
    pub output: OutputFormat,
    /// Show control tokens of the answer by name (see `llgtrt_text::CONTROL_MARKS`).
    pub control_text: bool,
    /// Of structured output; SSE outputs imply theirs.
    pub logprobs_form: LogprobsForm,
    /// Name the tokens whose text structured output has (see [`ChoiceDelta::text_token_ids`]).
    pub text_token_ids: bool,
    /// So many tokens at the end of each prompt are the beginning of the answer: the constraint goes on behind
    /// them. `max_tokens` does not count them.
    pub generated_tokens: u32,
    /// Most tokens of the answer of which this request makes a part, what is generated before included: a constraint
    /// counts on them. `None`: this request makes the rest of it. A beginning that cannot be completed within them is an
    /// error.
    pub answer_tokens: Option<u32>,
    /// Only the prompt is evaluated and what comes right behind it; another server goes on with the
    /// [`ChoiceDelta::handover`]. `max_tokens` is that of the whole answer.
    pub context_only: bool,
    /// What another server handed over: its tokens are the beginning of this answer's text, and `max_tokens` counts
    /// them. The state crosses beside the JSON.
    pub handover: Option<Handover>,
    /// `id` of SSE chunks.
    pub response_id: String,
    /// `model` of SSE chunks.
    pub model: String,
    /// `created` of SSE chunks, Unix seconds.
    pub created: u64,
    /// `system_fingerprint` of SSE chunks.
    pub system_fingerprint: Option<String>,
    /// Add the usage chunk.
    pub include_usage: bool,
    /// Raw JSON members merged into the first SSE chunk.
    pub first_chunk_fields: Option<String>,
}

impl Default for GenerateRequest {
    fn default() -> Self {
        Self {
            prompts: Vec::new(),
            add_special: true,
            most_prompt_tokens: None,
            n: 1,
            max_tokens: None,
            clamp_max_tokens: false,
            sampling: SamplingParams::default(),
            seed: None,
            return_removed_mass: false,
            receipt: None,
            request_id: String::new(),
            echo_logprobs: false,
            prompt_logprobs: None,
            return_context_logits: false,
            return_generation_logits: false,
            max_logits_bytes: 0,
            return_token_ids: false,
            options: None,
            processors: Vec::new(),
            bad_words: Vec::new(),
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            include_stop_str_in_output: false,
            echo: false,
            grammar: None,
            grammar_param: None,
            at_limit: AtLimit::default(),
            output: OutputFormat::default(),
            control_text: false,
            logprobs_form: LogprobsForm::default(),
            text_token_ids: false,
            generated_tokens: 0,
            answer_tokens: None,
            context_only: false,
            handover: None,
            response_id: String::new(),
            model: String::new(),
            created: 0,
            system_fingerprint: None,
            include_usage: false,
            first_chunk_fields: None,
        }
    }
}

/// Seeds count from 0; a negative one is another name for one of those.
fn seed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let given: Option<i64> = Option::deserialize(deserializer)?;
    Ok(given.map(|seed| seed.cast_unsigned() & i64::MAX.cast_unsigned()))
}

impl GenerateRequest {
    /// Sequences the request stands for.
    pub fn sequences(&self) -> usize {
        self.prompts.len() * self.n as usize
    }

    /// Which part of its sequence the request is for.
    pub fn phase(&self) -> Phase {
        match &self.handover {
            Some(handover) => Phase::Generation(Arc::new(handover.clone())),
            None if self.context_only => Phase::Context,
            None => Phase::Whole,
        }
    }

    /// Whether any logits are reported.
    pub fn returns_logits(&self) -> bool {
        self.return_context_logits || self.return_generation_logits
    }

    /// Tokens of an answer for which the context must have room, or the request is refused.
    pub fn least_tokens(&self) -> u32 {
        let rest = self.answer_tokens.map(|tokens| tokens.saturating_sub(self.generated_tokens));
        match rest.or(self.max_tokens) {
            Some(tokens) if !self.clamp_max_tokens => tokens.max(1),
            _ => 1,
        }
    }

    /// Whether log-probabilities take the form of `/v1/completions`.
    pub fn completion_form(&self) -> bool {
        match self.output {
            OutputFormat::ChatSse => false,
            OutputFormat::CompletionSse => true,
            OutputFormat::Final | OutputFormat::Deltas => self.logprobs_form == LogprobsForm::Completion,
        }
    }

    /// Whether output names its tokens.
    pub fn names_text_tokens(&self) -> bool {
        self.text_token_ids && !self.output.is_sse()
    }
}

/// Token counts of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Each prompt counted once.
    pub prompt_tokens: u64,
    /// Summed over choices, end-of-sequence tokens included.
    pub completion_tokens: u64,
    /// Prompt tokens found in the engine's cache.
    pub cached_tokens: u64,
    /// Completion tokens forced by the grammar rather than sampled.
    pub forced_tokens: u64,
}

/// Why a choice ended, as the API words it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChoiceFinish {
    /// By itself: end of sequence or a complete grammar.
    Stop,
    /// At a stop string.
    StopString(String),
    /// At a stop token.
    StopToken(TokenId),
    /// At `max_tokens` or the end of the context.
    Length,
    /// Another server goes on.
    HandedOver,
}

impl ChoiceFinish {
    /// OpenAI's `finish_reason`; that of trtllm-serve where OpenAI has none.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::HandedOver => "not_finished",
            _ => "stop",
        }
    }
}

/// What is known of a request when it is over, or so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Token counts.
    pub usage: Usage,
    /// The reasons of the choices that have ended, in the order of their ends.
    pub finish_reasons: Vec<&'static str>,
    /// When it got how far.
    pub times: Times,
}

/// New output of one choice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChoiceDelta {
    /// `p * n + c`.
    pub index: u32,
    /// New text.
    pub text: String,
    /// Tokens behind it.
    pub token_count: u64,
    /// The tokens themselves, if asked for. Of tokens whose text is held back they come early.
    pub token_ids: Vec<TokenId>,
    /// The prompt's tokens, if asked for, on the choice's first delta.
    pub prompt_token_ids: Option<Arc<[TokenId]>>,
    /// The prompt's log-probabilities as JSON, if asked for by themselves, on the choice's first delta.
    pub prompt_logprobs: Option<String>,
    /// The tokens that the new text completes, if they are asked for: whatever came after them is not in the
    /// text yet. The token that ends a sequence is not among them.
    pub text_token_ids: Option<Vec<TokenId>>,
    /// Log-probabilities of the new tokens as JSON in the request's form.
    pub logprobs: Option<String>,
    /// New rows of logits, if asked for.
    pub logits: Option<Box<ChoiceLogits>>,
    /// Set on the choice's last delta.
    pub finish: Option<ChoiceFinish>,
    /// With [`ChoiceFinish::HandedOver`].
    pub handover: Option<Arc<Handover>>,
    /// With `finish`, if the answer is constrained and receipts are wanted.
    pub receipt: Option<Box<Receipt>>,
}

/// What happened to a request since the last delivery.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// Choices with news.
    pub choices: Vec<ChoiceDelta>,
    /// Counted so far.
    pub so_far: Usage,
    /// On the last delta of a request that did not fail.
    pub usage: Option<Usage>,
    /// On the last delta of a failed request.
    pub error: Option<Error>,
}

/// The answer to an request for vectors or scores.
#[derive(Debug, Clone, PartialEq)]
pub struct Embeddings {
    /// One per input, in order: a vector of length 1 in the geometrical sense, or the scores of a pair.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all inputs, with those that the model wants around them.
    pub tokens: u64,
}

/// One delivery.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// Complete SSE frames.
    Sse(Vec<u8>),
    /// The end of a chunk that the connection of `RequestHandle::write_to` did not take at once.
    Unsent(Vec<u8>),
    /// Structured output, or the error of any request.
    Delta(Delta),
    /// The answer to a request for vectors.
    Embeddings(Result<Embeddings, Error>),
}
