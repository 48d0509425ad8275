//! Small models of random weights, of families that the demo model is none of. llama.cpp itself says which tensors a family has, from
//! its metadata.

#![allow(unreachable_pub, reason = "a module of each test binary")]
#![expect(unsafe_code, reason = "makes models with llama.cpp's own functions")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;

use llama_cpp_sys_2 as sys;
use serde_json::{Value, json};

/// Of the vocabulary. All single bytes are among them, and no kernel takes rows in groups that so many would fill.
const TOKENS: usize = 2045;

/// Each family's own metadata, by its name.
pub fn all() -> BTreeMap<String, Value> {
    serde_json::from_str(include_str!("../families.json")).unwrap()
}

/// What all families have, where their own metadata says nothing else.
fn common() -> Value {
    json!({
        "context_length": 1024,
        "embedding_length": 256,
        "block_count": 2,
        "feed_forward_length": 512,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
    })
}

/// A GGUF file in memory.
struct Gguf(*mut sys::gguf_context);

impl Gguf {
    fn set(&self, key: &str, value: &Value) {
        let key = CString::new(key).unwrap();
        let (file, key) = (self.0, key.as_ptr());
        // SAFETY: file and key are alive, and a list is as long as it says.
        unsafe {
            match value {
                Value::Bool(value) => sys::gguf_set_val_bool(file, key, *value),
                Value::Array(values) => {
                    let values: Vec<u32> =
                        values.iter().map(|value| value.as_u64().unwrap() as u32).collect();
                    let (data, kind) = (values.as_ptr().cast(), sys::GGUF_TYPE_UINT32);
                    sys::gguf_set_arr_data(file, key, kind, data, values.len());
                }
                value => match value.as_u64() {
                    Some(value) => sys::gguf_set_val_u32(file, key, value as u32),
                    None => sys::gguf_set_val_f32(file, key, value.as_f64().unwrap() as f32),
                },
            }
        }
    }

    /// Takes over the metadata of another file, of its vocabulary the first tokens only: with all of them most of a small model would
    /// be embeddings and head.
    fn copy_tokenizer(&self, from: &Self) {
        // SAFETY: both files are alive, keys are in the one that is asked for them, and lists have more elements than are taken.
        unsafe {
            sys::gguf_set_kv(self.0, from.0);
            let key = c"tokenizer.ggml.tokens".as_ptr();
            let place = sys::gguf_find_key(from.0, key);
            let mut texts: Vec<_> =
                (0..TOKENS).map(|token| sys::gguf_get_arr_str(from.0, place, token)).collect();
            sys::gguf_set_arr_str(self.0, key, texts.as_mut_ptr(), TOKENS);
            let key = c"tokenizer.ggml.token_type".as_ptr();
            let place = sys::gguf_find_key(from.0, key);
            let (kind, data) = (sys::gguf_get_arr_type(from.0, place), sys::gguf_get_arr_data(from.0, place));
            sys::gguf_set_arr_data(self.0, key, kind, data, TOKENS);
        }
    }
}

impl Drop for Gguf {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { sys::gguf_free(self.0) }
    }
}

/// A number between -1 and 1, most often near 0.
fn noise(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let parts = (*state >> 16).to_le_bytes();
    parts[..6].iter().map(|&part| f32::from(part) / 255.0 - 0.5).sum::<f32>() / 3.0
}

/// Draws the weights of a tensor, always the same for its name, and adds it to the file.
unsafe extern "C" fn draw(tensor: *mut sys::ggml_tensor, file: *mut c_void) {
    // SAFETY: llama.cpp has made the tensor, of floats, and the file is that of `write`.
    unsafe {
        let name = CStr::from_ptr((*tensor).name.as_ptr());
        let text = name.to_str().unwrap();
        let (inputs, is_list) = ((*tensor).ne[0] as f32, (*tensor).ne[1] == 1);
        let (middle, width) = match text {
            // A recurrent state decays, by the exponential of this.
            _ if text.contains("ssm_a") => (-1.0, 0.5),
            // Sharp attention would make much of the least difference.
            _ if text.contains("attn_q_norm") || text.contains("attn_k_norm") => (0.3, 0.2),
            _ if text.contains("norm") && text.ends_with("weight") => (1.0, 0.5),
            _ if text.contains("rope") => (1.5, 0.5),
            _ if text.starts_with("token_embd") => (0.0, 4.0),
            _ if is_list => (0.0, 0.5),
            _ => (0.0, 6.0 / inputs.sqrt()),
        };
        let mut state = text.bytes().fold(7, |state: u64, byte| state.wrapping_mul(31) + u64::from(byte));
        let count = sys::ggml_nelements(tensor);
        let values: Vec<f32> = (0..count).map(|_| middle + width * noise(&mut state)).collect();
        sys::ggml_backend_tensor_set(tensor, values.as_ptr().cast(), 0, size_of_val(&values[..]));
        let file = file.cast::<sys::gguf_context>();
        if sys::gguf_find_tensor(file, name.as_ptr()) < 0 {
            sys::gguf_add_tensor(file, tensor);
        }
    }
}

unsafe extern "C" fn say_nothing(_: sys::ggml_log_level, _: *const c_char, _: *mut c_void) {}

/// Writes a model of `family` to `target`, with weights of four to six bits and the first tokens of `tokenizer`, a GGUF file.
pub fn write(family: &str, own: &Value, tokenizer: &Path, target: &Path) {
    let text = |path: &Path| CString::new(path.to_str().unwrap()).unwrap();
    let floats = target.with_extension("floats");
    let (tokenizer, target, name) = (text(tokenizer), text(target), CString::new(family).unwrap());
    // SAFETY: texts and files live until the end, the model until the file that has its tensors is written.
    unsafe {
        sys::llama_backend_init();
        let (mut log, mut data) = (None, std::ptr::null_mut());
        sys::llama_log_get(&raw mut log, &raw mut data);
        sys::llama_log_set(Some(say_nothing), std::ptr::null_mut());
        let params = sys::gguf_init_params { no_alloc: true, ctx: std::ptr::null_mut() };
        let source = Gguf(sys::gguf_init_from_file(tokenizer.as_ptr(), params));
        let (metadata, file) = (Gguf(sys::gguf_init_empty()), Gguf(sys::gguf_init_empty()));
        metadata.copy_tokenizer(&source);
        sys::gguf_set_val_str(metadata.0, c"general.architecture".as_ptr(), name.as_ptr());
        for part in [&common(), own] {
            for (key, value) in part.as_object().unwrap() {
                metadata.set(&format!("{family}.{key}"), value);
            }
        }
        sys::gguf_set_kv(file.0, metadata.0);
        let params = sys::llama_model_default_params();
        let model = sys::llama_model_init_from_user(metadata.0, Some(draw), file.0.cast(), params);
        assert!(!model.is_null(), "llama.cpp makes no {family}");
        let full = text(&floats);
        assert!(sys::gguf_write_to_file(file.0, full.as_ptr(), false));
        sys::llama_model_free(model);
        let mut params = sys::llama_model_quantize_default_params();
        params.ftype = sys::LLAMA_FTYPE_MOSTLY_Q4_K_M;
        params.nthread = 1;
        assert_eq!(sys::llama_model_quantize(full.as_ptr(), target.as_ptr(), &raw const params), 0);
        sys::llama_log_set(log, data);
    }
    std::fs::remove_file(floats).unwrap();
}
