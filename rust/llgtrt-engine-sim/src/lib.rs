//! Deterministic scripted engine with programmable timing and faults
