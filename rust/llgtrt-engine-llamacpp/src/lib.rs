//! The embedded engine: GGUF models through llama.cpp with continuous batching
