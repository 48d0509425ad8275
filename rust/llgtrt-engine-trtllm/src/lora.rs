//! LoRA adapters: names to files under one folder, files to tensors, names to the ids that the executor knows them
//! by. Runs on the engine's thread; must not open anything outside of the folder.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llgtrt_core::{Adapter, ElementType, Error, HostTensor, LoadWeights, Result};
use safetensors::{Dtype, SafeTensors};

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

/// The adapters of a server.
pub(crate) struct Adapters {
    root: Option<PathBuf>,
    ids: HashMap<String, u64>,
    /// Tasks whose weights were sent at least once.
    sent: HashSet<u64>,
}

impl Adapters {
    pub(crate) fn new(root: Option<&Path>) -> Self {
        Self { root: root.map(Path::to_path_buf), ids: HashMap::new(), sent: HashSet::new() }
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
    if config.element != ElementType::I32 {
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

    fn write(file: &Path) {
        let (weights, config) = ([0_u8; 16], [0_u8; 12]);
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
        let mut adapters = Adapters::new(Some(&root));
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
    fn nothing_outside_of_the_folder_is_opened() {
        let (root, outside) = (folder("inside"), folder("outside"));
        write(&outside.join("x.safetensors"));
        std::os::unix::fs::symlink(outside.join("x.safetensors"), root.join("link.safetensors")).unwrap();
        std::fs::write(root.join("bad.safetensors"), b"not a tensor file").unwrap();
        let mut adapters = Adapters::new(Some(&root));
        let names =
            ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b", "link", "missing", "bad", ".hidden", "é"];
        for name in names {
            let error = adapters.resolve(&adapter(name, LoadWeights::Auto), false).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("lora_model"), "{name:?}");
            assert!(!error.message.contains(root.to_str().unwrap()), "{}", error.message);
        }
        assert!(Adapters::new(None).resolve(&adapter("a", LoadWeights::Auto), false).is_err());
        for folder in [root, outside] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}
