//! Tokenizers, incremental detokenizer, stop strings and the SSE chunk encoder
