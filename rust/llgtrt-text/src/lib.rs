//! Everything between token ids and the bytes a client reads: tokenizers, the incremental
//! detokenizer, stop strings, log-probability entries and server-sent events.
//!
//! Pure state machines: no threads, no I/O after loading, no clock. The output thread calls them for
//! every token of every stream, so nothing here allocates per token once its buffers have grown;
//! tokenizers are the exception and belong on a worker thread.

mod byte_tokenizer;
mod detokenizer;
mod guard;
mod hf;
mod json;
mod logprobs;
mod pipe;
mod sse;
mod stop;

pub use byte_tokenizer::ByteTokenizer;
pub use detokenizer::{CONTROL_MARKS, Detokenizer, decode_lossy};
pub use guard::{GUARD, GuardedEncoder};
pub use hf::{HfTokenizer, TokenizerOptions};
pub use logprobs::{
    LOGPROB_FLOOR, LogprobEntry, chat_logprobs, completion_logprobs, prompt_logprob_entries,
    prompt_logprobs_by_token, token_logprobs,
};
pub use pipe::{TextOutput, TextPipe};
pub use sse::{ChoiceEnd, ChunkHead, SseEncoder, SseKind};
pub use stop::{MayEnd, StopMatcher};
