//! Compiles `repack/` against the headers of the llama.cpp that the lock file pins.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=repack");
    println!("cargo:rustc-check-cfg=cfg(repack)");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("ARCH") != "x86_64" || target("ENV") == "msvc" {
        return;
    }

    let ggml = llama_cpp_source().join("ggml");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(3).file("repack/buffer.cpp");
    // GCC 12 says it of its own intrinsics (its bug 105593).
    build.flag_if_supported("-Wno-maybe-uninitialized");
    // Headers of others: their warnings are not ours.
    for folder in ["include", "src", "src/ggml-cpu"] {
        build.flag("-isystem").flag(ggml.join(folder));
    }
    // The instructions that llama.cpp itself is compiled for.
    if let Some(cpu) = target_cpu() {
        build.flag(format!("-march={cpu}"));
    }
    build.compile("llgtrt_repack");
    println!("cargo:rustc-cfg=repack");
}

/// Where cargo keeps the source of llama-cpp-sys-2, whose build script does not say.
fn llama_cpp_source() -> PathBuf {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("Cargo.toml"))
        // What other platforms need is not downloaded.
        .other_options(["--filter-platform".to_owned(), std::env::var("TARGET").unwrap()])
        .exec()
        .expect("cargo metadata");
    let package = metadata.packages.iter().find(|package| package.name == "llama-cpp-sys-2");
    let manifest = &package.expect("llama-cpp-sys-2 is a dependency").manifest_path;
    manifest.parent().expect("a manifest is in a folder").join("llama.cpp").into()
}

/// `-C target-cpu` of the flags that Rust code is compiled with.
fn target_cpu() -> Option<String> {
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    flags.split('\x1f').find_map(|flag| flag.split_once("target-cpu=")).map(|(_, cpu)| cpu.to_owned())
}
