//! The Python extension module llgtrt._native; picks the engine
