//! Grammar admission, compilation, matchers and the parallel mask pool.
//!
//! A request's [`GrammarSpec`](llgtrt_core::GrammarSpec) goes through three stages:
//! 1. *admission*: cheap checks that refuse what could exhaust a stack, the memory or the CPU;
//! 2. *compilation* by llguidance on a few threads with large stacks, with a deadline and a cache
//!    ([`GrammarCompiler`]);
//! 3. *masks*: one matcher per sequence in the [`MaskPool`], which implements
//!    [`MaskSource`](llgtrt_core::MaskSource).
//!
//! Threads: `llgtrt-compile-N` compile, `llgtrt-deadline` answers requests whose deadline passed and replaces
//! compile threads that are late, `llgtrt-mask-N` compute masks together with the engine's own thread. None of them takes a lock while it runs
//! somebody else's callback, and none of them calls into Python.

mod admission;
mod big_stack;
mod cache;
mod compiled;
mod compiler;
mod config;
mod ends;
mod instance;
mod lexer_guard;
mod matcher;
mod metrics;
mod pool;
mod refusal;
mod report;
mod slot;
mod sync;
mod text;
mod token_env;
mod verify;
mod way_out;

pub use big_stack::{on_big_stack_thread, spawn_big_stack};
pub use compiled::{CompiledGrammar, GrammarFacts};
pub use compiler::GrammarCompiler;
pub use config::{DEFAULT_WHITESPACE_PATTERN, GrammarConfig, GrammarLimits, Residual};
pub use ends::EndCheck;
pub use instance::{Instance, Judgement, judge};
pub use matcher::Matcher;
pub use pool::{MaskPool, Tally};
pub use report::{Problem, Report, ReportRequest, ResidualConstraint, RuleCount, Verdict};
pub use slot::TokenLimit;
pub use token_env::TokenEnv;
