//! What a request may ask of the engines that have it, beyond what every engine does. Plain data.

use std::sync::Arc;

use crate::TokenId;

/// Element type of a [`HostTensor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementType {
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
    /// bfloat16.
    Bf16,
    /// 8-bit float.
    Fp8,
    /// IEEE half.
    Fp16,
    /// IEEE single.
    Fp32,
}

impl ElementType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Fp8 => 1,
            Self::Bf16 | Self::Fp16 => 2,
            Self::I32 | Self::Fp32 => 4,
            Self::I64 => 8,
        }
    }
}

/// A row-major tensor in host memory, of at most four dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTensor {
    /// What the bytes are.
    pub element: ElementType,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// The elements, as this machine lays them out.
    pub bytes: Arc<[u8]>,
}

impl HostTensor {
    /// Whether the bytes are as many as the shape says, and the shape one that can be passed on.
    pub fn is_sound(&self) -> bool {
        let elements = self.shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
        (1..=4).contains(&self.shape.len())
            && elements.and_then(|count| count.checked_mul(self.element.size())) == Some(self.bytes.len())
    }
}

/// When an adapter's weights are sent along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadWeights {
    /// With the first request, and again if the cache has lost them.
    #[default]
    Auto,
    /// With every request.
    Always,
    /// Never: a request whose adapter is not in the cache fails.
    Never,
}

/// A LoRA adapter by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// `NAME.safetensors` in the folder of adapters.
    pub name: String,
    /// When to send its weights.
    pub load: LoadWeights,
}

/// A table of embeddings for tokens past the vocabulary (images and the like).
#[derive(Debug, Clone, PartialEq)]
pub struct PromptTable {
    /// `[virtual tokens, hidden size]` in the model's type.
    pub embeddings: HostTensor,
    /// One number per prompt token that tells equal virtual tokens of different content apart; empty: none.
    pub extra_ids: Vec<u64>,
}

/// Rotary embeddings of a request, for models with mrope.
#[derive(Debug, Clone, PartialEq)]
pub struct Mrope {
    /// Cosines and sines, 32-bit floats.
    pub rotary_cos_sin: HostTensor,
    /// Offset of the answer's positions.
    pub position_deltas: i32,
}

/// The encoder's side of a request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EncoderInput {
    /// Tokens for the encoder.
    pub tokens: Vec<TokenId>,
    /// Features in place of tokens.
    pub features: Option<HostTensor>,
    /// Length of the encoder's output, where it differs from its input.
    pub output_length: Option<u32>,
    /// Which inputs the decoder attends to.
    pub cross_attention_mask: Option<HostTensor>,
    /// Layers without cross attention.
    pub skip_cross_attention: Option<HostTensor>,
}

/// How long a range of the prompt stays in the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// First token.
    pub start: u32,
    /// One past the last; None: to the end.
    pub end: Option<u32>,
    /// 0 to 100, higher stays longer.
    pub priority: u32,
    /// For how long; None: until it has to go.
    pub duration_ms: Option<u64>,
}

/// Everything that a request may ask for. The default asks for nothing. An engine that lacks something refuses it,
/// or is never asked: see its documentation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestOptions {
    /// The LoRA adapter.
    pub adapter: Option<Adapter>,
    /// 0 to 1, higher first; None: 0.5.
    pub priority: Option<f32>,
    /// Prefixes are shared only with requests of the same salt.
    pub cache_salt: Option<u64>,
    /// Most time that the request may take.
    pub allotted_time_ms: Option<u64>,
    /// Runs of tokens that must not be generated.
    pub bad_words: Vec<Vec<TokenId>>,
    /// Runs of tokens that end the answer, beside the stop tokens.
    pub stop_words: Vec<Vec<TokenId>>,
    /// Positions of the prompt's tokens; empty: 0, 1, 2 and so on.
    pub position_ids: Vec<u32>,
    /// Embeddings for tokens past the vocabulary.
    pub prompt_table: Option<PromptTable>,
    /// Rotary embeddings.
    pub mrope: Option<Mrope>,
    /// The encoder's side.
    pub encoder: Option<EncoderInput>,
    /// How long parts of the prompt stay in the KV cache.
    pub retention: Vec<Retention>,
    /// The same for the answer: priority, 0 to 100, and how long.
    pub decode_retention: Option<(u32, Option<u64>)>,
    /// Length of the beams; 1: no beam search. Constrained requests need 1.
    pub beam_width: Option<u32>,
    /// Lookahead decoding: window, n-gram and verification set.
    pub lookahead: Option<[u32; 3]>,
    /// Report for each token how much probability the mask had removed.
    pub report_removed_mass: bool,
}
