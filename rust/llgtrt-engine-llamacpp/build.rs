//! Compiles `memory/` and `repack/` against the headers of the llama.cpp that the lock file pins.

use std::path::PathBuf;
use std::sync::OnceLock;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=memory");
    println!("cargo:rerun-if-changed=repack");
    println!("cargo:rustc-check-cfg=cfg(lazy_memory)");
    println!("cargo:rustc-check-cfg=cfg(repack)");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    // Elsewhere the system does not promise zeros for pages that were given back.
    if target("OS") == "linux" {
        compile("llgtrt_memory", "memory/lazy.cpp", &[]);
        println!("cargo:rustc-cfg=lazy_memory");
    }
    // Which of them runs is decided on the machine that runs it.
    let (avx2, avx512) = (&["-march=x86-64-v3"][..], &["-march=x86-64-v4", "-mavx512vnni"][..]);
    let x86 = [
        ("kernels", "AVX2", avx2),
        ("kernels", "AVX_VNNI", &[avx2, &["-mavxvnni"]].concat()),
        ("kernels", "AVX512", avx512),
        ("kernels", "AMX", &[avx512, &["-mamx-tile", "-mamx-int8"]].concat()),
        ("attention_kernel", "AVX2", avx2),
        ("attention_kernel", "AVX512", avx512),
        ("attention_kernel", "AVX512_BF16", &[avx512, &["-mavx512bf16"]].concat()),
        ("attention_kernel", "AMX", &[avx512, &["-mavx512bf16", "-mamx-tile", "-mamx-bf16"]].concat()),
    ];
    // The compiler is not to mix the instructions of several columns: it runs out of registers then. The processor does that
    // by itself.
    let arm = [
        ("kernels", "DOTPROD", &["-march=armv8.2-a+dotprod", "-fno-schedule-insns"][..]),
        ("kernels", "I8MM", &["-march=armv8.2-a+dotprod+i8mm", "-fno-schedule-insns"]),
        ("attention_kernel", "NEON", &["-march=armv8-a"]),
    ];
    // With a flag that compilers of enough age know.
    let (sets, flag) = match (&*target("ARCH"), &*target("OS"), &*target("ENV")) {
        (_, _, "msvc") => return,
        ("x86_64", ..) => (&x86[..], "-mavxvnni"),
        ("aarch64", "linux", _) => (&arm[..], "-march=armv8.2-a+dotprod+i8mm"),
        _ => return,
    };
    if !cc::Build::new().cpp(true).is_flag_supported(flag).unwrap_or(false) {
        println!(
            "cargo:warning=the C++ compiler is too old for the matrix kernels: llama.cpp's own are used"
        );
        return;
    }

    compile("llgtrt_shared", "memory/shared.cpp", &[]);
    compile("llgtrt_repack", "repack/buffer.cpp", &[]);
    compile("llgtrt_weights", "repack/weights.cpp", &[]);
    compile("llgtrt_attention", "repack/attention.cpp", &[]);
    compile("llgtrt_rows", "repack/rows.cpp", &[]);
    compile("llgtrt_recurrence", "repack/recurrence.cpp", &[]);
    for &(file, set, flags) in sets {
        let name = format!("llgtrt_{file}_{}", set.to_lowercase());
        let table = format!("-DLLGTRT_SET={set}");
        compile(&name, &format!("repack/{file}.cpp"), &[flags, &[&table]].concat());
    }
    println!("cargo:rustc-cfg=repack");
}

/// Compiles a file into a library of its own.
fn compile(name: &str, file: &str, flags: &[&str]) {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(3).file(file);
    // One object per set of instructions from the same source.
    build.out_dir(PathBuf::from(std::env::var_os("OUT_DIR").unwrap()).join(name));
    // GCC 12 says it of its own intrinsics (its bug 105593).
    build.flag_if_supported("-Wno-maybe-uninitialized").flag_if_supported("-Wno-uninitialized");
    // Headers of others: their warnings are not ours.
    for folder in ["ggml/include", "ggml/src", "ggml/src/ggml-cpu", "include", "src"] {
        build.flag("-isystem").flag(llama_cpp_source().join(folder));
    }
    for flag in flags {
        build.flag(flag);
    }
    build.compile(name);
}

/// Where cargo keeps the source of llama-cpp-sys-2, whose build script does not say.
fn llama_cpp_source() -> PathBuf {
    static SOURCE: OnceLock<PathBuf> = OnceLock::new();
    SOURCE.get_or_init(find_llama_cpp_source).clone()
}

fn find_llama_cpp_source() -> PathBuf {
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
