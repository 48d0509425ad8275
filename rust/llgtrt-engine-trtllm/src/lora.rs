//! LoRA adapters: names to files under one folder, files to tensors, names to the ids that the executor knows them
//! by. Runs on the engine's thread; must not open anything outside of the folder.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llgtrt_core::{Adapter, ElementType, Error, HostTensor, LoadWeights, Result};
use safetensors::{Dtype, SafeTensors};

use crate::config::TrtllmSetup;
use crate::engine_dir::EngineInfo;

/// Longest name of an adapter, in bytes.
const MAX_NAME: usize = 128;

/// Weights of an adapter as the executor wants them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Weights {
    /// `[rows, D * Hi + Ho * D]` in the model's type.
    pub(crate) weights: HostTensor,
    /// `[rows, 3]`: module, layer, rank; 32-bit integers.
    pub(crate) config: HostTensor,
}

/// An adapter as it goes into a request.
#[derive(Debug, Clone)]
pub(crate) struct AdapterUse {
    pub(crate) task: u64,
    /// Sent along if present.
    pub(crate) weights: Option<Arc<Weights>>,
    pub(crate) adapter: Adapter,
}

/// What the engine takes of an adapter. TensorRT-LLM looks at most of it too, but only once the request has been queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdapterLimits {
    pub(crate) element: Option<ElementType>,
    pub(crate) max_rank: u32,
    pub(crate) layers: u32,
    /// Modules that the engine was built for, by TensorRT-LLM's numbers; empty: not known.
    pub(crate) modules: Vec<u32>,
}

/// `tensorrt_llm::runtime::LoraModule::ModuleType`, from 0.
const MODULES: [&str; 18] = [
    "attn_qkv",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_dense",
    "mlp_h_to_4h",
    "mlp_4h_to_h",
    "mlp_gate",
    "cross_attn_qkv",
    "cross_attn_q",
    "cross_attn_k",
    "cross_attn_v",
    "cross_attn_dense",
    "moe_h_to_4h",
    "moe_4h_to_h",
    "moe_gate",
    "moe_router",
    "mlp_router",
];

impl AdapterLimits {
    pub(crate) fn new(setup: &TrtllmSetup, info: &EngineInfo) -> Self {
        let numbers = info.lora_modules.iter().map(|name| MODULES.iter().position(|module| module == name));
        // A module of a later version: what it is numbered is not known, so nothing is refused for its module.
        let modules: Option<Vec<_>> = numbers.map(|number| Some(number? as u32)).collect();
        Self {
            element: match info.dtype.as_str() {
                "float16" => Some(ElementType::Fp16),
                "bfloat16" => Some(ElementType::Bf16),
                "float32" => Some(ElementType::Fp32),
                _ => None,
            },
            max_rank: setup.config.lora_max_adapter_size.unwrap_or(info.max_lora_rank),
            layers: info.layers,
            modules: modules.unwrap_or_default(),
        }
    }

    fn check(&self, name: &str, weights: &Weights) -> Result<()> {
        let refuse = |reason: String| {
            Err(Error::invalid(
                "lora_model",
                format!("the LoRA adapter {name} does not fit the engine: {reason}"),
            ))
        };
        if self.element.is_some_and(|element| element != weights.weights.element) {
            return refuse("its weights are of another type than the model's".to_owned());
        }
        for row in weights.rows() {
            let [module, layer, rank] = row;
            if rank == 0 || rank > self.max_rank {
                return refuse(format!("its rank is {rank}, and the engine takes 1 to {}", self.max_rank));
            }
            if layer >= self.layers {
                return refuse(format!("it changes layer {layer}, and the model has {}", self.layers));
            }
            if !self.modules.is_empty() && !self.modules.contains(&module) {
                let name = MODULES.get(module as usize).copied().unwrap_or("an unknown module");
                return refuse(format!("it changes {name}, for which the engine was not built"));
            }
        }
        Ok(())
    }
}

impl Weights {
    /// Module, layer and rank of each row.
    fn rows(&self) -> impl Iterator<Item = [u32; 3]> {
        let width = self.config.shape.last().copied().unwrap_or(0) * size_of::<i32>();
        self.config.bytes.chunks_exact(width.max(1)).map(|row| {
            let number = |index: usize| {
                let bytes = row.get(index * 4..index * 4 + 4).and_then(|bytes| bytes.try_into().ok());
                // A negative number is out of every range that is looked at.
                u32::from_ne_bytes(bytes.unwrap_or([0xff; 4]))
            };
            [number(0), number(1), number(2)]
        })
    }
}

/// The adapters of a server.
pub(crate) struct Adapters {
    root: Option<PathBuf>,
    limits: AdapterLimits,
    ids: HashMap<String, u64>,
    /// Tasks whose weights were sent at least once.
    sent: HashSet<u64>,
}

impl Adapters {
    pub(crate) fn new(root: Option<&Path>, limits: AdapterLimits) -> Self {
        Self { root: root.map(Path::to_path_buf), limits, ids: HashMap::new(), sent: HashSet::new() }
    }

    /// Resolves an adapter for a request. `again`: its weights are not in the cache any more.
    pub(crate) fn resolve(&mut self, adapter: &Adapter, again: bool) -> Result<AdapterUse> {
        let Some(root) = &self.root else {
            return Err(Error::invalid("lora_model", "this server has no LoRA adapters (--lora-root)"));
        };
        check_name(&adapter.name)?;
        let file = root.join(format!("{}.safetensors", adapter.name));
        let known = self.ids.get(&adapter.name).copied();
        let send = match adapter.load {
            LoadWeights::Always => true,
            LoadWeights::Never => false,
            LoadWeights::Auto => again || known.is_none_or(|task| !self.sent.contains(&task)),
        };
        if known.is_none() || send {
            check_inside(root, &file, &adapter.name)?;
        }
        let weights = if send { Some(Arc::new(read(&file, &adapter.name)?)) } else { None };
        if let Some(weights) = &weights {
            self.limits.check(&adapter.name, weights)?;
        }
        let next = self.ids.len() as u64 + 1;
        let task = *self.ids.entry(adapter.name.clone()).or_insert(next);
        if send {
            self.sent.insert(task);
        }
        Ok(AdapterUse { task, weights, adapter: adapter.clone() })
    }
}

/// Names of the adapters in a folder, sorted.
///
/// # Errors
/// The folder cannot be read.
pub fn adapter_names(root: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str());
        if path.extension().is_some_and(|extension| extension == "safetensors")
            && let Some(name) = name.filter(|name| check_name(name).is_ok())
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > MAX_NAME || name.starts_with('.') || !name.chars().all(plain) {
        return Err(Error::invalid("lora_model", "not the name of a LoRA adapter"));
    }
    Ok(())
}

fn unknown(name: &str) -> Error {
    Error::invalid("lora_model", format!("there is no LoRA adapter named {name}"))
}

/// The name is plain, but the file may be a link to somewhere else.
fn check_inside(root: &Path, file: &Path, name: &str) -> Result<()> {
    let (root, file) = (root.canonicalize(), file.canonicalize());
    match (root, file) {
        (Ok(root), Ok(file)) if file.starts_with(&root) => Ok(()),
        _ => Err(unknown(name)),
    }
}

fn read(file: &Path, name: &str) -> Result<Weights> {
    let bytes = std::fs::read(file).map_err(|_| unknown(name))?;
    let damaged = || Error::invalid("lora_model", format!("the file of the LoRA adapter {name} is damaged"));
    let tensors = SafeTensors::deserialize(&bytes).map_err(|_| damaged())?;
    let tensor = |part: &str| {
        let view = tensors.tensor(part).map_err(|_| damaged())?;
        let element = element_type(view.dtype()).ok_or_else(damaged)?;
        let tensor = HostTensor { element, shape: view.shape().to_vec(), bytes: Arc::from(view.data()) };
        if tensor.is_sound() { Ok(tensor) } else { Err(damaged()) }
    };
    let (weights, config) = (tensor("weights")?, tensor("config")?);
    let rows = [weights.shape.first(), config.shape.first()];
    if config.element != ElementType::I32
        || config.shape.len() != 2
        || config.shape[1] < 3
        || rows[0] != rows[1]
    {
        return Err(damaged());
    }
    Ok(Weights { weights, config })
}

fn element_type(dtype: Dtype) -> Option<ElementType> {
    match dtype {
        Dtype::I32 => Some(ElementType::I32),
        Dtype::I64 => Some(ElementType::I64),
        Dtype::BF16 => Some(ElementType::Bf16),
        Dtype::F16 => Some(ElementType::Fp16),
        Dtype::F32 => Some(ElementType::Fp32),
        Dtype::F8_E4M3 => Some(ElementType::Fp8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("llgtrt-lora-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn limits() -> AdapterLimits {
        AdapterLimits { element: Some(ElementType::Fp32), max_rank: 8, layers: 2, modules: vec![0, 4] }
    }

    fn write(file: &Path) {
        write_row(file, [4, 1, 8]);
    }

    fn write_row(file: &Path, row: [i32; 3]) {
        let weights = [0_u8; 16];
        let config: Vec<u8> = row.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let tensors = [
            ("weights", safetensors::tensor::TensorView::new(Dtype::F32, vec![1, 4], &weights).unwrap()),
            ("config", safetensors::tensor::TensorView::new(Dtype::I32, vec![1, 3], &config).unwrap()),
        ];
        std::fs::write(file, safetensors::serialize(tensors, &None).unwrap()).unwrap();
    }

    fn adapter(name: &str, load: LoadWeights) -> Adapter {
        Adapter { name: name.to_owned(), load }
    }

    #[test]
    fn weights_are_sent_once_and_again_on_demand() {
        let root = folder("once");
        write(&root.join("a.safetensors"));
        write(&root.join("b.safetensors"));
        let mut adapters = Adapters::new(Some(&root), limits());
        let auto = adapter("a", LoadWeights::Auto);
        let first = adapters.resolve(&auto, false).unwrap();
        assert!(first.weights.is_some());
        let second = adapters.resolve(&auto, false).unwrap();
        assert!(second.weights.is_none() && second.task == first.task);
        assert!(adapters.resolve(&auto, true).unwrap().weights.is_some());
        assert!(adapters.resolve(&adapter("a", LoadWeights::Always), false).unwrap().weights.is_some());
        assert!(adapters.resolve(&adapter("a", LoadWeights::Never), true).unwrap().weights.is_none());
        let other = adapters.resolve(&adapter("b", LoadWeights::Auto), false).unwrap();
        assert!(other.task != first.task && other.weights.is_some());
        assert_eq!(adapter_names(&root).unwrap(), ["a", "b"]);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_does_not_fit_the_engine_is_refused() {
        let root = folder("limits");
        let mut adapters = Adapters::new(Some(&root), limits());
        let auto = adapter("a", LoadWeights::Auto);
        let cases = [
            ([4, 1, 9], "rank is 9"),
            ([4, 1, 0], "rank is 0"),
            ([4, 1, -1], "rank is"),
            ([4, 2, 8], "layer 2"),
            ([1, 1, 8], "attn_q,"),
            ([99, 1, 8], "an unknown module"),
        ];
        for (row, expected) in cases {
            write_row(&root.join("a.safetensors"), row);
            let error = adapters.resolve(&auto, false).unwrap_err();
            assert!(error.message.contains(expected), "{row:?}: {}", error.message);
        }
        // A refused one was not sent, so the next request sends it.
        write_row(&root.join("a.safetensors"), [4, 1, 8]);
        assert!(adapters.resolve(&auto, false).unwrap().weights.is_some());
        let halves = AdapterLimits { element: Some(ElementType::Fp16), ..limits() };
        let error = Adapters::new(Some(&root), halves).resolve(&auto, false).unwrap_err();
        assert!(error.message.contains("another type"), "{}", error.message);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn nothing_outside_of_the_folder_is_opened() {
        let (root, outside) = (folder("inside"), folder("outside"));
        write(&outside.join("x.safetensors"));
        std::os::unix::fs::symlink(outside.join("x.safetensors"), root.join("link.safetensors")).unwrap();
        std::fs::write(root.join("bad.safetensors"), b"not a tensor file").unwrap();
        let mut adapters = Adapters::new(Some(&root), limits());
        let names =
            ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b", "link", "missing", "bad", ".hidden", "é"];
        for name in names {
            let error = adapters.resolve(&adapter(name, LoadWeights::Auto), false).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("lora_model"), "{name:?}");
            assert!(!error.message.contains(root.to_str().unwrap()), "{}", error.message);
        }
        assert!(Adapters::new(None, limits()).resolve(&adapter("a", LoadWeights::Auto), false).is_err());
        for folder in [root, outside] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}
