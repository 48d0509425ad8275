//! The plugin's sources as part of this crate: whoever has llgtrt can build the plugin that fits it, from a wheel as
//! from a checkout. Data only.

macro_rules! sources {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../plugin/", $path)))),+]
    };
}

/// Every file that the plugin is built from, by its path in the plugin's folder.
pub const PLUGIN_SOURCES: &[(&str, &str)] = sources![
    "CMakeLists.txt",
    "cmake/FindTrtllm.cmake",
    "include/llgtrt_trtllm.h",
    "src/api.cpp",
    "src/config.cpp",
    "src/config.h",
    "src/device.h",
    "src/device_cuda.cpp",
    "src/engine.cpp",
    "src/engine.h",
    "src/errors.cpp",
    "src/errors.h",
    "src/float16.h",
    "src/handover.cpp",
    "src/handover.h",
    "src/json.cpp",
    "src/json.h",
    "src/kv_events.cpp",
    "src/kv_events.h",
    "src/lora.cpp",
    "src/lora.h",
    "src/mask_kernel.cu",
    "src/mask_kernel.h",
    "src/places.cpp",
    "src/places.h",
    "src/plain.cpp",
    "src/plain.h",
    "src/pool.h",
    "src/post_processor.cpp",
    "src/post_processor.h",
    "src/request.cpp",
    "src/request.h",
    "src/responses.cpp",
    "src/responses.h",
    "src/row_results.cpp",
    "src/row_results.h",
    "src/stats.cpp",
    "src/stats.h",
    "src/status.cpp",
    "src/status.h",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_forgotten() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("plugin");
        let mut files = vec!["CMakeLists.txt".to_owned()];
        for folder in ["cmake", "include", "src"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                // What runs on the host alone is for the stand-in.
                if !name.ends_with("_host.cpp") {
                    files.push(format!("{folder}/{name}"));
                }
            }
        }
        files.sort();
        let listed: Vec<_> = PLUGIN_SOURCES.iter().map(|(path, _)| *path).collect();
        assert_eq!(listed, files);
    }
}
