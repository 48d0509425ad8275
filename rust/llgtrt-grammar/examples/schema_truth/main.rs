//! Measures how true constrained answers are to their JSON Schemas.
//!
//! Reads JSON lines with `schema` and `tests: [{valid, data}]` (`MaskBench`, or the JSON Schema Test
//! Suite), compiles every schema with this crate and with llguidance alone, walks every instance
//! through the grammar, and prints who is right. Single threaded apart from the compiler's slots.
//!
//! `cargo run --release -p llgtrt-grammar --example schema_truth -- FILE [--json OUT] [--only TEXT]
//! [--no-masks] [--no-plain] [--verbose]`

mod report;
mod truth;
mod words;

use std::process::ExitCode;

/// As the server's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let options = match truth::Options::from_args(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    // llguidance recurses; the walk needs its stack, too.
    let thread = llgtrt_grammar::spawn_big_stack("truth", move || truth::run(&options));
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(true))) => ExitCode::SUCCESS,
        Ok(Ok(Ok(false))) => {
            eprintln!("an invalid instance was accepted");
            ExitCode::FAILURE
        }
        Ok(Ok(Err(message))) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
        _ => {
            eprintln!("the measuring thread failed");
            ExitCode::FAILURE
        }
    }
}
