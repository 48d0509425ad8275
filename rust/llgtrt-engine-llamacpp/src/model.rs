//! Loads a GGUF model and tells what its metadata says. Runs on the thread that starts the server; the
//! loaded model is immutable and shared.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::{LlamaBackendDeviceType, LlamaCppError};
use llgtrt_core::{Error, Result, TokenId, Tokenizer, Vocabulary};

use crate::config::LlamaCppConfig;
use crate::tokenizer::GgufTokenizer;
use crate::turns::Turns;
use crate::{gguf, log, memory, repack};

/// Loads take turns, so that an error found in the log belongs to this load.
static LOADING: Mutex<()> = Mutex::new(());

/// What a model file says about itself.
#[derive(Debug, Clone, Default)]
pub struct ModelInfo {
    /// Jinja source of the chat template.
    pub chat_template: Option<String>,
    /// Every scalar of the metadata, as text.
    pub metadata: BTreeMap<String, String>,
    /// Tokens the model was trained to attend to.
    pub trained_context: u32,
    /// Text of the beginning-of-sequence token.
    pub bos: Option<String>,
    /// Text of the main end-of-sequence token.
    pub eos: Option<String>,
    /// Texts of the tokens around prefix, suffix and middle of a text to fill in, where the model has them.
    pub fill_in: Option<[String; 3]>,
    /// Every control token with its text.
    pub special_tokens: Vec<(TokenId, String)>,
    /// Columns of a logits row.
    pub vocab_size: u32,
    /// Bytes of all weights.
    pub weight_bytes: u64,
}

/// A loaded model: its weights, its tokenizer and its metadata.
pub struct LlamaCppModel {
    pub(crate) weights: Arc<LlamaModel>,
    pub(crate) config: LlamaCppConfig,
    pub(crate) tokenizer: Arc<GgufTokenizer>,
    /// Of everything that computes beside this model.
    pub(crate) turns: Arc<Turns>,
    /// The small model that guesses at next tokens.
    pub(crate) draft: Option<Box<Self>>,
    info: ModelInfo,
}

/// How many times as long as a multiplication by a weight one in the attention of some tokens takes (two cores of a Zen 4, the demo
/// model: a token behind 7000 cells takes 3.1 ms, one behind none 0.55).
const ATTENTION: f64 = 2.5;

/// Tokens that one of two models of a family may have more: their files are padded to different sizes.
const MOST_PADDING: usize = 1024;

impl LlamaCppModel {
    /// Loads the model that `config` names.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](llgtrt_core::ErrorKind::Configuration): the configuration or the file is
    /// unusable; one sentence says why.
    pub fn load(config: &LlamaCppConfig) -> Result<Self> {
        let mut model = Self::load_one(config)?;
        if let Some(path) = &config.draft_model {
            let config = LlamaCppConfig { model_path: path.clone(), draft_model: None, ..config.clone() };
            let draft = Self::load_one(&config).and_then(|draft| {
                check_same_tokens(model.tokenizer.vocabulary(), draft.tokenizer.vocabulary())?;
                Ok(draft)
            });
            model.draft = Some(Box::new(draft.map_err(|error| error.with_param("llamacpp.draft_model"))?));
        }
        Ok(model)
    }

    fn load_one(config: &LlamaCppConfig) -> Result<Self> {
        config.validate()?;
        log::install();
        let path = model_file(&config.model_path)?;
        gguf::check(&path)?;

        memory::clear_lazily();
        repack::without_amx();
        if config.repack {
            repack::enable();
        }
        if config.gpu_layers.is_some_and(|layers| layers > 0) && !backend()?.supports_gpu_offload() {
            tracing::warn!(
                "llamacpp.gpu_layers has no effect: this build has no GPU backend, or found no device"
            );
        }
        let mut params = LlamaModelParams::default().with_use_mmap(config.mmap).with_use_mlock(config.mlock);
        if let Some(layers) = config.gpu_layers {
            params = params.with_n_gpu_layers(layers.min(i32::MAX as u32));
        }
        let turn = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        log::take_error();
        let model = LlamaModel::load_from_file(backend()?, &path, &params).map_err(|error| {
            let reason = log::take_error().unwrap_or_else(|| error.to_string());
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Error::configuration(format!("model file {name} cannot be loaded: {reason}"))
        })?;
        drop(turn);

        let weights = Arc::new(model);
        let tokenizer = GgufTokenizer::new(Arc::clone(&weights));
        let info = info(&weights, tokenizer.vocabulary());
        if info.vocab_size == 0 {
            return Err(Error::configuration("the model file holds no vocabulary"));
        }
        Ok(Self {
            weights,
            config: config.clone(),
            tokenizer: Arc::new(tokenizer),
            turns: Arc::default(),
            draft: None,
            info,
        })
    }

    /// What computes: `gpu` if a backend of llama.cpp for one is there and may be used.
    pub fn device(&self) -> &'static str {
        if uses_gpu(&self.config) { "gpu" } else { "cpu" }
    }

    /// To how many cells a token attends on a CPU in the time that the rest of it takes: attention multiplies each by the width of
    /// every layer twice, and a multiplication there takes longer than one by a weight ([`ATTENTION`]).
    pub(crate) fn cells_per_token(&self) -> f64 {
        let weights = &self.weights;
        let layers = f64::from(weights.n_layer()) * f64::from(weights.n_embd().max(1));
        let multiplied = weights.n_params() as f64 - idle_weights(&self.info.metadata, layers);
        multiplied.max(1.0) / (ATTENTION * 2.0 * layers.max(1.0))
    }

    /// Whether all of the model is on a GPU.
    pub(crate) fn is_on_gpu(&self) -> bool {
        is_on_gpu(&self.weights, &self.config)
    }

    /// Threads of a forward pass over single tokens.
    pub fn threads(&self) -> u32 {
        self.config.thread_counts(self.is_on_gpu()).0
    }

    /// The tokenizer of the model file.
    pub fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        Arc::<GgufTokenizer>::clone(&self.tokenizer)
    }

    /// What the model file says about itself.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }
}

/// Checks that a model that guesses speaks of the same tokens.
fn check_same_tokens(model: &Vocabulary, draft: &Vocabulary) -> Result<()> {
    let sizes = (model.len(), draft.len());
    if sizes.0.abs_diff(sizes.1) > MOST_PADDING {
        return Err(Error::configuration(format!(
            "the draft model has another vocabulary than the model: {} tokens, not {}",
            sizes.1, sizes.0
        )));
    }
    let same = |token: TokenId| {
        model.bytes(token) == draft.bytes(token) && model.is_special(token) == draft.is_special(token)
    };
    match (0..sizes.0.min(sizes.1) as TokenId).find(|&token| !same(token)) {
        None => Ok(()),
        Some(token) => Err(Error::configuration(format!(
            "the draft model has another vocabulary than the model: token {token} is {:?}, not {:?}",
            String::from_utf8_lossy(draft.bytes(token)),
            String::from_utf8_lossy(model.bytes(token)),
        ))),
    }
}

/// Whether a GPU computes for a model of this configuration.
pub(crate) fn uses_gpu(config: &LlamaCppConfig) -> bool {
    config.gpu_layers != Some(0) && backend().is_ok_and(LlamaBackend::supports_gpu_offload)
}

/// Whether all of a model of this configuration is on a GPU: its layers, and the one that gives the logits.
pub(crate) fn is_on_gpu(weights: &LlamaModel, config: &LlamaCppConfig) -> bool {
    uses_gpu(config) && config.gpu_layers.is_none_or(|layers| layers > weights.n_layer())
}

/// Bytes that are free on the GPUs of this machine, as far as a backend of llama.cpp was built in for them; `None` where there
/// is none. The first call initializes the backend.
pub fn free_gpu_memory() -> Option<u64> {
    if !backend().is_ok_and(LlamaBackend::supports_gpu_offload) {
        return None;
    }
    let free = llama_cpp_2::list_llama_ggml_backend_devices()
        .into_iter()
        .filter(|device| {
            matches!(device.device_type, LlamaBackendDeviceType::Gpu | LlamaBackendDeviceType::IntegratedGpu)
        })
        .map(|device| device.memory_free as u64);
    Some(free.sum())
}

/// llama.cpp's global state, initialized once per process.
pub(crate) fn backend() -> Result<&'static LlamaBackend> {
    static BACKEND: OnceLock<Option<LlamaBackend>> = OnceLock::new();
    let backend = BACKEND.get_or_init(|| match LlamaBackend::init() {
        Ok(backend) => Some(backend),
        Err(LlamaCppError::BackendAlreadyInitialized) => Some(LlamaBackend {}),
        Err(_) => None,
    });
    backend.as_ref().ok_or_else(|| Error::configuration("llama.cpp cannot be initialized"))
}

/// The model file that `path` means: itself, or the only one in the folder.
fn model_file(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let entries =
        fs::read_dir(path).map_err(|error| Error::configuration(format!("the model folder: {error}")))?;
    // The further parts of a split model are found by llama.cpp.
    let first_part = |name: &str| !name.contains("-of-") || name.contains("-00001-of-");
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")))
        .filter(|file| file.file_name().is_some_and(|name| first_part(&name.to_string_lossy())))
        .collect();
    match (files.pop(), files.len()) {
        (Some(file), 0) => Ok(file),
        (None, _) => Err(Error::configuration("the model folder holds no GGUF file")),
        (Some(_), more) => {
            Err(Error::configuration(format!("the model folder holds {} GGUF files: name one", more + 1)))
        }
    }
}

/// Weights of the experts of a mixture that a token does not go to, in `layers` layers, which are counted by their width. Each has three
/// matrices.
fn idle_weights(metadata: &BTreeMap<String, String>, layers: f64) -> f64 {
    let number = |key: &str| {
        let architecture = metadata.get("general.architecture")?;
        metadata.get(&format!("{architecture}.{key}"))?.parse::<f64>().ok()
    };
    let idle = number("expert_count").zip(number("expert_used_count")).map_or(0.0, |(all, used)| all - used);
    let width = number("expert_feed_forward_length").or_else(|| number("feed_forward_length")).unwrap_or(0.0);
    let mixed = number("leading_dense_block_count").zip(number("block_count"));
    layers * mixed.map_or(1.0, |(dense, all)| 1.0 - dense / all) * 3.0 * width * idle.max(0.0)
}

/// The tokens around prefix, suffix and middle of a text to fill in.
fn fill_in(model: &LlamaModel) -> Option<[TokenId; 3]> {
    let vocab = model.vocab();
    let tokens = [vocab.fim_pre(), vocab.fim_suf(), vocab.fim_mid()];
    let known = tokens.iter().all(|token| (0..vocab.n_tokens()).contains(&token.0));
    known.then(|| tokens.map(|token| token.0 as TokenId))
}

fn info(model: &LlamaModel, vocabulary: &Vocabulary) -> ModelInfo {
    let text = |token: TokenId| String::from_utf8_lossy(vocabulary.bytes(token)).into_owned();
    let metadata = (0..model.meta_count())
        .filter_map(|index| {
            Some((model.meta_key_by_index(index).ok()?, model.meta_val_str_by_index(index).ok()?))
        })
        .collect();
    ModelInfo {
        chat_template: model.chat_template(None).ok().and_then(|template| template.to_string().ok()),
        metadata,
        trained_context: model.n_ctx_train(),
        bos: vocabulary.bos().map(text),
        eos: vocabulary.eos().first().copied().map(text),
        fill_in: fill_in(model).map(|tokens| tokens.map(text)),
        special_tokens: (0..vocabulary.len() as TokenId)
            .filter(|&token| vocabulary.is_special(token))
            .map(|token| (token, text(token)))
            .collect(),
        vocab_size: model.n_vocab().max(0) as u32,
        weight_bytes: model.size(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_that_a_token_does_not_go_to_are_idle() {
        let of = |numbers: &[(&str, &str)]| {
            let architecture = [("general.architecture", "moe")];
            let all = architecture.iter().chain(numbers);
            let metadata = all.map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
            idle_weights(&metadata, 48.0 * 2048.0)
        };
        let same = |found: f64, right: f64| (found - right).abs() < 1.0;
        assert!(same(of(&[]), 0.0));
        assert!(same(of(&[("moe.expert_count", "0"), ("moe.expert_used_count", "0")]), 0.0));
        // Qwen3-30B-A3B.
        let counts = [("moe.expert_count", "128"), ("moe.expert_used_count", "8")];
        let width = ("moe.expert_feed_forward_length", "768");
        let whole = of(&[counts[0], counts[1], width, ("moe.feed_forward_length", "6144")]);
        assert!(same(whole, 48.0 * 2048.0 * 3.0 * 768.0 * 120.0), "{whole}");
        // A quarter of the layers have no experts.
        let dense = [("moe.leading_dense_block_count", "12"), ("moe.block_count", "48")];
        let some = of(&[counts[0], counts[1], width, dense[0], dense[1]]);
        assert!(same(some, whole * 0.75), "{some}");
    }
}
