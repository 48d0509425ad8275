//! The plugin as a shared library: opened at run time, its version checked, its functions looked up. Runs on the
//! thread that starts the engine; must say plainly what is missing, because a plugin that does not load is the
//! first thing that goes wrong on a new machine.

use std::collections::HashSet;
use std::ffi::{CStr, c_char};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Shared, RTLD_LOCAL, RTLD_NOW};
use llgtrt_core::{Error, Result};

use crate::abi::{self, ABI_VERSION};

/// An engine of the plugin, of which only pointers exist on this side.
#[repr(C)]
pub(crate) struct Handle {
    _opaque: [u8; 0],
}

/// `llgtrt_trtllm_kv_events`.
pub(crate) type KvEvents =
    unsafe extern "C" fn(*mut Handle, i64, *mut *const abi::KvEvent, *mut usize) -> i32;

/// The plugin's functions.
pub(crate) struct Library {
    pub(crate) version: unsafe extern "C" fn() -> *const c_char,
    pub(crate) last_error: unsafe extern "C" fn() -> *const c_char,
    pub(crate) create: unsafe extern "C" fn(*const abi::Config, *mut *mut Handle) -> i32,
    pub(crate) destroy: unsafe extern "C" fn(*mut Handle),
    pub(crate) is_leader: unsafe extern "C" fn(*const Handle) -> i32,
    pub(crate) submit: unsafe extern "C" fn(*mut Handle, *const abi::Request, *mut u64) -> i32,
    pub(crate) cancel: unsafe extern "C" fn(*mut Handle, u64) -> i32,
    pub(crate) wait: unsafe extern "C" fn(*mut Handle, i64, *mut *const abi::Response, *mut usize) -> i32,
    pub(crate) health: unsafe extern "C" fn(*mut Handle) -> i32,
    pub(crate) row_results: unsafe extern "C" fn(*mut Handle, u64, usize, *mut abi::RowResult) -> i32,
    pub(crate) forget: unsafe extern "C" fn(*mut Handle, u64),
    pub(crate) stats: unsafe extern "C" fn(*mut Handle, *mut abi::Stats) -> i32,
    pub(crate) stats_json: unsafe extern "C" fn(*mut Handle) -> *const c_char,
    pub(crate) kv_events: KvEvents,
    // Never closed: TensorRT-LLM, CUDA and MPI leave threads and exit handlers behind that would run into nothing.
    _opened: ManuallyDrop<Shared>,
}

impl Library {
    /// Opens the plugin. What it needs and the linker does not find is looked for in `folders`.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](llgtrt_core::ErrorKind::Configuration), with what is missing and what to do.
    pub(crate) fn open(path: &Path, folders: &[PathBuf]) -> Result<Self> {
        if !path.exists() {
            return Err(Error::configuration(format!(
                "the TensorRT-LLM plugin {} does not exist; build it with: llgtrt build-trtllm",
                path.display()
            ))
            .with_param("trtllm.plugin_path"));
        }
        let library = load(path, folders, &mut HashSet::new()).map_err(|reason| explain(path, &reason))?;
        // SAFETY: the function has this type since the first version of the interface.
        let abi_version = unsafe { symbol::<unsafe extern "C" fn() -> u32>(&library, path, "abi_version")? };
        // SAFETY: it takes nothing and returns a number.
        let found = unsafe { abi_version() };
        if found != ABI_VERSION {
            return Err(Error::configuration(format!(
                "the TensorRT-LLM plugin {} speaks version {found} of the interface and this llgtrt version \
                 {ABI_VERSION}; build it again with: llgtrt build-trtllm",
                path.display()
            ))
            .with_param("trtllm.plugin_path"));
        }
        // SAFETY: the version is this one, so each name has the type that the header gives it.
        unsafe {
            Ok(Self {
                version: symbol(&library, path, "version")?,
                last_error: symbol(&library, path, "last_error")?,
                create: symbol(&library, path, "create")?,
                destroy: symbol(&library, path, "destroy")?,
                is_leader: symbol(&library, path, "is_leader")?,
                submit: symbol(&library, path, "submit")?,
                cancel: symbol(&library, path, "cancel")?,
                wait: symbol(&library, path, "await")?,
                health: symbol(&library, path, "health")?,
                row_results: symbol(&library, path, "row_results")?,
                forget: symbol(&library, path, "forget")?,
                stats: symbol(&library, path, "get_stats")?,
                stats_json: symbol(&library, path, "stats_json")?,
                kv_events: symbol(&library, path, "kv_events")?,
                _opened: ManuallyDrop::new(library),
            })
        }
    }

    /// Text of the last failure on this thread.
    pub(crate) fn last_error(&self) -> String {
        // SAFETY: the function takes nothing; see `text`.
        text(unsafe { (self.last_error)() })
    }

    /// Version of TensorRT-LLM.
    pub(crate) fn version(&self) -> String {
        // SAFETY: the function takes nothing; see `text`.
        text(unsafe { (self.version)() })
    }
}

/// Loads a library, and before it each of those that the linker misses and `folders` have: it takes one that is loaded
/// already for the one that is needed. Each file is tried once.
fn load(
    path: &Path,
    folders: &[PathBuf],
    tried: &mut HashSet<PathBuf>,
) -> std::result::Result<Shared, String> {
    loop {
        // SAFETY: opening a library runs its initialisers: the plugin's and TensorRT-LLM's, which the
        // configuration names on purpose.
        let reason = match unsafe { Shared::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return Ok(library),
            Err(error) => error.to_string(),
        };
        let needed = missing(&reason).and_then(|name| {
            folders
                .iter()
                .map(|folder| folder.join(name))
                .find(|file| file.is_file() && !tried.contains(file))
        });
        let Some(needed) = needed else { return Err(reason) };
        tried.insert(needed.clone());
        // Never closed: the plugin needs it for as long as the process lives.
        std::mem::forget(load(&needed, folders, tried)?);
        tracing::debug!(library = %needed.display(), "found beside the Python packages");
    }
}

/// The library that glibc's linker says it does not find. It has no other way to say it.
fn missing(reason: &str) -> Option<&str> {
    let name = reason
        .strip_suffix(": No such file or directory")?
        .strip_suffix(": cannot open shared object file")?;
    Some(name.rsplit([' ', ':']).next().unwrap_or(name)).filter(|name| !name.contains('/'))
}

/// A copy of a text of the plugin, which is valid until the next call.
pub(crate) fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: every text of the plugin ends with a zero byte and outlives this call.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// Looks up `llgtrt_trtllm_NAME`.
///
/// # Safety
/// `T` is the function's type.
unsafe fn symbol<T: Copy>(library: &Shared, path: &Path, name: &str) -> Result<T> {
    let full = format!("llgtrt_trtllm_{name}");
    // SAFETY: the caller knows the type.
    let symbol = unsafe { library.get::<T>(full.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| {
        Error::configuration(format!("{} is no TensorRT-LLM plugin: it has no {full}", path.display()))
            .with_param("trtllm.plugin_path")
    })
}

/// Says in the user's terms why the dynamic linker refused the plugin.
fn explain(path: &Path, reason: &str) -> Error {
    let has = |part: &str| reason.contains(part);
    let missing = missing(reason).is_some();
    let advice = if has("undefined symbol") && (has("tensorrt_llm") || has("initTrtLlmPlugins")) {
        "the installed TensorRT-LLM has no C++ executor, or another one than the plugin was built with. Versions \
         from 1.3 on do not have it: install TensorRT-LLM 1.2, then run: llgtrt build-trtllm"
    } else if missing && ["libcuda.so", "libnvidia-"].iter().any(|name| has(name)) {
        "there is no NVIDIA driver here. In a container, start it with GPUs (docker run --gpus all)"
    } else if missing && ["libcudart", "libcublas", "libnccl", "libcurand"].iter().any(|name| has(name)) {
        "a library of CUDA is missing: use TensorRT-LLM's container, or put CUDA's folder on LD_LIBRARY_PATH"
    } else if missing && ["tensorrt_llm", "libnvinfer"].iter().any(|name| has(name)) {
        "TensorRT-LLM's libraries are not where they were when the plugin was built: run llgtrt build-trtllm \
         again, or put their folder on LD_LIBRARY_PATH"
    } else if missing && ["libtorch", "libc10", "libpython", "libpg_utils"].iter().any(|name| has(name)) {
        "TensorRT-LLM is linked to PyTorch and to the Python that it was built for (3.12 in its container): run llgtrt \
         with that Python, in the environment that has torch and tensorrt_llm"
    } else if missing && has("libmpi") {
        "TensorRT-LLM needs MPI: install Open MPI"
    } else if has("version `GLIBCXX") || has("version `GLIBC") {
        "it was built on a newer system: run llgtrt build-trtllm on this one"
    } else {
        "the dynamic linker refused it"
    };
    Error::configuration(format!(
        "the TensorRT-LLM plugin {} cannot be loaded: {advice} ({reason})",
        path.display()
    ))
    .with_param("trtllm.plugin_path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_that_is_missing_is_known() {
        let reason =
            |name: &str| format!("{name}: cannot open shared object file: No such file or directory");
        assert_eq!(missing(&reason("libnvinfer.so.10")), Some("libnvinfer.so.10"));
        assert_eq!(missing(&reason("/a/libx.so")), None);
        assert_eq!(missing("x.so: file too short"), None);
    }

    #[test]
    fn the_linkers_reasons_are_explained() {
        let cases = [
            ("libcuda.so.1: cannot open shared object file: No such file or directory", "NVIDIA driver"),
            ("libcudart.so.13: cannot open shared object file: No such file or directory", "of CUDA"),
            ("libtensorrt_llm.so: cannot open shared object file: No such file or directory", "not where"),
            ("libnvinfer.so.10: cannot open shared object file: No such file or directory", "not where"),
            ("libtorch_python.so: cannot open shared object file: No such file or directory", "PyTorch"),
            ("libpython3.12.so.1.0: cannot open shared object file: No such file or directory", "3.12"),
            ("libpg_utils.so: cannot open shared object file: No such file or directory", "PyTorch"),
            ("x.so: undefined symbol: _ZN12tensorrt_llm8executor8Executor8shutdownEv", "no C++ executor"),
            ("/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by x.so)", "newer system"),
            ("libmpi.so.40: cannot open shared object file: No such file or directory", "Open MPI"),
            ("x.so: file too short", "refused"),
        ];
        for (reason, expected) in cases {
            let message = explain(Path::new("/a/plugin.so"), reason).message;
            assert!(message.contains(expected) && message.contains(reason), "{message}");
        }
    }
}
