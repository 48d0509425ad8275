//! Shared types and the [`Engine`] and [`MaskSource`] contracts.
//!
//! Everything the other crates say to each other is defined here, and nothing else: no I/O, no
//! threads, no Python. Runs on whichever thread calls it.

pub mod embedder;
pub mod engine;
pub mod error;
pub mod grammar;
pub mod kv_events;
pub mod mask;
pub mod options;
pub mod pass;
pub mod phase;
pub mod processor;
pub mod receipt;
pub mod sampler;
pub mod sampling;
pub mod sequence;
pub mod step;
pub mod vocabulary;

pub use embedder::{EmbedText, Embedder, EmbedderTraits, room_for_text};
pub use engine::{Batcher, CacheBlocks, Capabilities, Engine, EngineStats, RuntimeMemory};
pub use error::{Error, ErrorKind, Result};
pub use grammar::GrammarSpec;
pub use kv_events::{BlockHash, KvBlocks, KvEvent, KvEventQueue, block_hash};
pub use mask::{AdvanceBatch, AdvanceState, MaskBatch, MaskSlot, MaskSource, MaskVerdict};
pub use options::{
    Adapter, ElementType, EncoderInput, ExtraSampling, HostTensor, LoadWeights, Mrope, PromptTable,
    RequestOptions, Retention,
};
pub use pass::Pass;
pub use phase::{Handover, Phase};
pub use processor::{LogitsProcessor, Processed, ProcessedRows, ProcessorStats};
pub use receipt::{Enforcement, MassSum, Receipt, RemovedMass, StopStrings};
pub use sampler::{Sampled, Sampler, token_logprobs};
pub use sampling::SamplingParams;
pub use sequence::{SequenceId, SequenceSpec, TokenId};
pub use step::{Finish, SequenceOutput, StepBatch, StopCause, TokenLogprobs, TokenOutput};
pub use vocabulary::{EncodeOptions, Tokenizer, Vocabulary, VocabularyBuilder};
