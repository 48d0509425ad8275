//! Random schemas over all keywords against the `jsonschema` crate: verdicts on instances, and random answers.
//!
//! The suite runs a short form with a fixed seed; the example `truth_fuzz` runs as many pairs as it is told.

#![allow(dead_code, unreachable_pub, reason = "shared by the suite and an example that use a part each")]

pub mod construct;
pub mod random;
pub mod schemas;
pub mod shrink;
pub mod tables;
pub mod trial;
pub mod walk;
