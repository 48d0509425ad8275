//! Tests of admission, compilation and masks as a client of the crate meets them. One binary: it links once.

mod bounds;
mod closed;
mod compiler;
mod composed;
mod dead_ends;
mod digits;
mod facts;
mod fuzz;
mod generated;
mod hazards;
mod instance;
mod json_schema_test_suite;
mod kinds;
mod limit;
mod numbers;
mod pool;
mod promises;
mod random_schemas;
mod reference;
mod report;
mod residual;
mod rules;
mod support;
mod truth_fuzz;
mod values;
mod verify;
