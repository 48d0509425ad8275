//! Links cuBLAS as a shared library where CUDA came from NVIDIA's wheels, which have no static one: see
//! `build_backend/llgtrt_cuda.py`, which sets `LLGTRT_CUBLAS` to the folder that holds it. Does nothing otherwise.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LLGTRT_CUBLAS");
    let Ok(folder) = env::var("LLGTRT_CUBLAS") else { return };
    if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        println!("cargo:rustc-link-search=native={folder}");
        // An argument, not a library of this crate: it stands after llama.cpp, which needs it. The linker passes over
        // libraries that nothing before them needs.
        println!("cargo:rustc-link-arg-cdylib=-lcublas");
    }
}
