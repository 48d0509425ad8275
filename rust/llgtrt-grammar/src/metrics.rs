//! Prometheus metrics of compilation and masks. Updated by the thread that did the work.

use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry};

/// Bucket bounds of a compilation, in seconds.
const COMPILE_BUCKETS: [f64; 12] = [1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// Bucket bounds of a mask, in seconds.
const MASK_BUCKETS: [f64; 16] =
    [1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1];

/// Metrics of the grammar compiler.
pub(crate) struct CompilerMetrics {
    pub(crate) compile_seconds: Histogram,
    pub(crate) cache_hits: IntCounter,
    pub(crate) cache_misses: IntCounter,
    pub(crate) cache_bytes: IntGauge,
    /// Compilations past their deadline that go on.
    pub(crate) overrun: IntGauge,
    pub(crate) overruns: IntCounter,
    pub(crate) errors: IntCounter,
}

impl CompilerMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            compile_seconds: histogram(
                registry,
                "llgtrt_grammar_compile_seconds",
                "Time to check and compile one grammar, the first mask included",
                &COMPILE_BUCKETS,
            ),
            cache_hits: counter(
                registry,
                Opts::new("llgtrt_grammar_cache_hits_total", "Grammars found compiled or being compiled"),
            ),
            cache_misses: counter(
                registry,
                Opts::new("llgtrt_grammar_cache_misses_total", "Grammars that had to be compiled"),
            ),
            cache_bytes: gauge(
                registry,
                Opts::new("llgtrt_grammar_cache_bytes", "Estimated memory of the cached grammars"),
            ),
            overrun: gauge(
                registry,
                Opts::new(
                    "llgtrt_grammar_compiles_overrun",
                    "Compilations past their deadline that go on beside the compile slots",
                ),
            ),
            overruns: counter(
                registry,
                Opts::new(
                    "llgtrt_grammar_overruns_total",
                    "Compilations that took longer than their deadline",
                ),
            ),
            errors: errors(registry, "compile"),
        }
    }
}

/// Metrics of the mask pool.
pub(crate) struct MaskMetrics {
    pub(crate) compute_seconds: Histogram,
    pub(crate) wait_seconds: Histogram,
    pub(crate) errors: IntCounter,
    pub(crate) retracted_tokens: IntCounter,
    pub(crate) matchers: IntGauge,
}

impl MaskMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            compute_seconds: histogram(
                registry,
                "llgtrt_mask_compute_seconds",
                "Time to compute one mask",
                &MASK_BUCKETS,
            ),
            wait_seconds: histogram(
                registry,
                "llgtrt_mask_wait_seconds",
                "Time an engine spent getting the masks of one step",
                &MASK_BUCKETS,
            ),
            errors: errors(registry, "mask"),
            retracted_tokens: counter(
                registry,
                Opts::new(
                    "llgtrt_retracted_tokens_total",
                    "Generated tokens taken back because they led to no answer that satisfies the schema",
                ),
            ),
            matchers: gauge(
                registry,
                Opts::new("llgtrt_matchers", "Matchers that are held, one for each sequence under a grammar"),
            ),
        }
    }
}

fn errors(registry: &Registry, stage: &str) -> IntCounter {
    // One family for both stages: the label is constant, so that each registers its own counter.
    let help = "Grammars refused, and sequences whose grammar failed";
    counter(registry, Opts::new("llgtrt_grammar_errors_total", help).const_label("stage", stage))
}

// Metrics fail to build only for a bad name or bad buckets, and these are constants.

fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    register(registry, Histogram::with_opts(opts).expect("a valid histogram"))
}

fn counter(registry: &Registry, opts: Opts) -> IntCounter {
    register(registry, IntCounter::with_opts(opts).expect("a valid counter"))
}

fn gauge(registry: &Registry, opts: Opts) -> IntGauge {
    register(registry, IntGauge::with_opts(opts).expect("a valid gauge"))
}

/// Registers a metric. A name taken by another instance in the same process leaves this one
/// unexported, which is no reason to refuse to start.
fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> C {
    if let Err(error) = registry.register(Box::new(metric.clone())) {
        tracing::warn!(%error, "metric not registered");
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_metrics_are_exported_together() {
        let registry = Registry::new();
        let compiler = CompilerMetrics::new(&registry);
        let masks = MaskMetrics::new(&registry);
        compiler.errors.inc();
        masks.errors.inc_by(2);
        let families = registry.gather();
        let errors = families.iter().find(|family| family.name() == "llgtrt_grammar_errors_total").unwrap();
        assert_eq!(errors.get_metric().len(), 2);
        assert_eq!(families.len(), 11);
        // A second instance is not exported, and no error.
        CompilerMetrics::new(&registry);
    }
}
