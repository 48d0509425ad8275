//! The core's metrics, with the names that dashboards of other servers use, under `llgtrt_`.
//!
//! Written by the output and engine threads, read by whoever renders the registry. Never blocks.

use prometheus::{
    Counter, Encoder, Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};

use llgtrt_core::{EngineStats, Error, ProcessorStats, Result};

use crate::passes::Passes;

const LATENCY_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0, 160.0,
];
const TOKEN_GAP_SECONDS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5,
];
/// Buckets of counts of tokens.
const TOKENS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6];

/// Handles to every metric of the runtime.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// The last forward passes.
    pub(crate) passes: Passes,
    running: IntGauge,
    waiting: IntGauge,
    pub(crate) kv_cache_usage: Gauge,
    reported: Reported,
    prefix_queries: IntCounter,
    prefix_hits: IntCounter,
    forward_passes: IntCounter,
    draft_tokens: IntCounter,
    accepted_draft_tokens: IntCounter,
    processors: ProcessorCounters,
    /// Prompt tokens of admitted sequences.
    pub(crate) prompt_tokens: IntCounter,
    /// Texts and pairs that vectors or scores were asked of.
    pub(crate) embedding_inputs: IntCounter,
    /// Tokens of those that were answered.
    pub(crate) embedding_tokens: IntCounter,
    /// Generated tokens, sampled and forced.
    pub(crate) generation_tokens: IntCounter,
    /// Generated tokens that were sampled.
    pub(crate) sampled_tokens: IntCounter,
    /// Generated tokens that the grammar forced.
    pub(crate) forced_tokens: IntCounter,
    /// Submission to first token of each request.
    pub(crate) time_to_first_token: Histogram,
    /// Gap between two outputs of a sequence.
    pub(crate) inter_token_latency: Histogram,
    /// Submission to end of each request.
    pub e2e_latency: Histogram,
    /// Submission to the start of prefill of each sequence.
    pub(crate) queue_time: Histogram,
    /// Start of prefill to first token of each sequence.
    pub(crate) prefill_time: Histogram,
    /// First to last token of each sequence.
    pub(crate) decode_time: Histogram,
    /// Prompt tokens of each finished sequence.
    pub(crate) prompt_lengths: Histogram,
    /// Generated tokens of each finished sequence.
    pub(crate) generation_lengths: Histogram,
    /// Finished sequences by `finished_reason`: stop, length, `handed_over`, abort, error.
    pub(crate) finished: IntCounterVec,
    /// Requests with a grammar by kind.
    pub(crate) constrained: IntCounterVec,
    /// Requests refused because the queue was full.
    pub(crate) rejected: IntCounter,
}

/// What logits processors have done.
#[derive(Debug)]
struct ProcessorCounters {
    rows: IntCounter,
    failures: IntCounter,
    seconds: Counter,
}

impl ProcessorCounters {
    fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counters = Self {
            rows: IntCounter::new(
                "llgtrt_logits_processor_rows_total",
                "Rows of logits that processors were given",
            )?,
            failures: IntCounter::new(
                "llgtrt_logits_processor_failures_total",
                "Of those, rows that ended their sequence: the processor failed or was too slow",
            )?,
            seconds: Counter::new(
                "llgtrt_logits_processor_seconds_total",
                "Time of the engine's thread with logits processors, waiting for Python's lock included",
            )?,
        };
        registry.register(Box::new(counters.rows.clone()))?;
        registry.register(Box::new(counters.failures.clone()))?;
        registry.register(Box::new(counters.seconds.clone()))?;
        Ok(counters)
    }

    fn update(&self, stats: ProcessorStats) {
        self.rows.inc_by(stats.rows.saturating_sub(self.rows.get()));
        self.failures.inc_by(stats.failures.saturating_sub(self.failures.get()));
        self.seconds.inc_by((stats.micros as f64 * 1e-6 - self.seconds.get()).max(0.0));
    }
}

/// What only some engines say. Without a sample before one does.
#[derive(Debug)]
struct Reported {
    cache_blocks: IntGaugeVec,
    cache_block_tokens: IntGaugeVec,
    memory: IntGaugeVec,
    batch_sequences: IntGaugeVec,
    context_tokens: IntGaugeVec,
    micro_batch: IntGaugeVec,
}

impl Reported {
    fn register(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str, labels: &[&str]| -> prometheus::Result<IntGaugeVec> {
            let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        Ok(Self {
            cache_blocks: gauge(
                "llgtrt_kv_cache_blocks",
                "Blocks of the KV cache: max, used, free",
                &["kind"],
            )?,
            cache_block_tokens: gauge(
                "llgtrt_kv_cache_block_tokens",
                "Tokens of a block of the KV cache",
                &[],
            )?,
            memory: gauge(
                "llgtrt_runtime_memory_bytes",
                "Memory of the engine's runtime: gpu, cpu, pinned",
                &["kind"],
            )?,
            batch_sequences: gauge(
                "llgtrt_batch_sequences",
                "Sequences of the last forward pass: scheduled (all), context, generation; and those that were paused",
                &["phase"],
            )?,
            micro_batch: gauge(
                "llgtrt_micro_batch_id",
                "Which of the batches that take turns the last forward pass was",
                &[],
            )?,
            context_tokens: gauge(
                "llgtrt_context_tokens",
                "Prompt tokens that took part in the last forward pass",
                &[],
            )?,
        })
    }

    fn update(&self, stats: &EngineStats) {
        if let Some(blocks) = stats.cache_blocks {
            for (kind, count) in [("max", blocks.max), ("used", blocks.used), ("free", blocks.free)] {
                self.cache_blocks.with_label_values(&[kind]).set(i64::from(count));
            }
            self.cache_block_tokens.with_label_values::<&str>(&[]).set(i64::from(blocks.tokens));
        }
        if let Some(memory) = stats.memory {
            for (kind, bytes) in [("gpu", memory.gpu), ("cpu", memory.cpu), ("pinned", memory.pinned)] {
                self.memory.with_label_values(&[kind]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
        }
        if let Some(batcher) = stats.batcher {
            let phases = [
                ("scheduled", batcher.scheduled),
                ("context", batcher.context),
                ("generation", batcher.generation),
                ("paused", batcher.paused),
            ];
            for (phase, count) in phases {
                self.batch_sequences.with_label_values(&[phase]).set(i64::from(count));
            }
            self.context_tokens.with_label_values::<&str>(&[]).set(i64::from(batcher.context_tokens));
            self.micro_batch.with_label_values::<&str>(&[]).set(i64::from(batcher.micro_batch));
        }
    }
}

impl Metrics {
    /// Registers everything in `registry`.
    pub(crate) fn new(registry: &Registry) -> Result<Self> {
        Self::register(registry).map_err(|e| Error::internal(format!("metric registration failed: {e}")))
    }

    fn register(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| -> prometheus::Result<IntGauge> {
            let metric = IntGauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let counter = |name: &str, help: &str| -> prometheus::Result<IntCounter> {
            let metric = IntCounter::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let histogram = |name: &str, help: &str, buckets: &[f64]| -> prometheus::Result<Histogram> {
            let metric = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let labelled = |name: &str, help: &str, label: &str| -> prometheus::Result<IntCounterVec> {
            let metric = IntCounterVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let kv_cache_usage = Gauge::new("llgtrt_kv_cache_usage_perc", "KV cache in use, 0 to 1")?;
        registry.register(Box::new(kv_cache_usage.clone()))?;
        let seconds = LATENCY_SECONDS;
        Ok(Self {
            running: gauge("llgtrt_num_requests_running", "Sequences that hold a slot of the engine")?,
            waiting: gauge("llgtrt_num_requests_waiting", "Sequences admitted and waiting for a slot")?,
            kv_cache_usage,
            reported: Reported::register(registry)?,
            prefix_queries: counter(
                "llgtrt_prefix_cache_queries",
                "Prompt tokens looked up in the prefix cache",
            )?,
            prefix_hits: counter("llgtrt_prefix_cache_hits", "Prompt tokens found in the prefix cache")?,
            forward_passes: counter("llgtrt_forward_passes_total", "Forward passes of the model")?,
            draft_tokens: counter("llgtrt_draft_tokens_total", "Guesses at next tokens that were evaluated")?,
            accepted_draft_tokens: counter("llgtrt_accepted_draft_tokens_total", "Guesses that came true")?,
            processors: ProcessorCounters::register(registry)?,
            prompt_tokens: counter("llgtrt_prompt_tokens_total", "Prompt tokens")?,
            embedding_inputs: counter(
                "llgtrt_embedding_inputs_total",
                "Texts and pairs that vectors or scores were asked of",
            )?,
            embedding_tokens: counter("llgtrt_embedding_tokens_total", "Tokens of those that were answered")?,
            generation_tokens: counter(
                "llgtrt_generation_tokens_total",
                "Generated tokens, sampled and forced",
            )?,
            sampled_tokens: counter("llgtrt_sampled_tokens_total", "Generated tokens that were sampled")?,
            forced_tokens: counter("llgtrt_forced_tokens_total", "Generated tokens that the grammar forced")?,
            time_to_first_token: histogram(
                "llgtrt_time_to_first_token_seconds",
                "Time to first token",
                seconds,
            )?,
            inter_token_latency: histogram(
                "llgtrt_inter_token_latency_seconds",
                "Gap between two outputs of a sequence",
                TOKEN_GAP_SECONDS,
            )?,
            e2e_latency: histogram("llgtrt_e2e_request_latency_seconds", "Submission to end", seconds)?,
            queue_time: histogram("llgtrt_request_queue_time_seconds", "Submission to prefill", seconds)?,
            prefill_time: histogram(
                "llgtrt_request_prefill_time_seconds",
                "Prefill to first token",
                seconds,
            )?,
            decode_time: histogram("llgtrt_request_decode_time_seconds", "First to last token", seconds)?,
            prompt_lengths: histogram(
                "llgtrt_request_prompt_tokens",
                "Prompt tokens of a finished sequence",
                TOKENS,
            )?,
            generation_lengths: histogram(
                "llgtrt_request_generation_tokens",
                "Generated tokens of a finished sequence",
                TOKENS,
            )?,
            finished: labelled("llgtrt_request_success_total", "Finished sequences", "finished_reason")?,
            constrained: labelled("llgtrt_constrained_requests_total", "Requests with a grammar", "kind")?,
            rejected: counter(
                "llgtrt_requests_rejected_total",
                "Requests refused because the queue was full",
            )?,
            registry: registry.clone(),
            passes: Passes::default(),
        })
    }

    /// Takes over the engine's snapshot.
    pub(crate) fn update(&self, stats: &EngineStats) {
        self.running.set(i64::from(stats.running));
        self.waiting.set(i64::from(stats.waiting));
        self.kv_cache_usage.set(stats.kv_cache_usage);
        self.reported.update(stats);
        let raise = |counter: &IntCounter, total: u64| counter.inc_by(total.saturating_sub(counter.get()));
        raise(&self.prefix_queries, stats.prefix_cache_queries);
        raise(&self.prefix_hits, stats.prefix_cache_hits);
        raise(&self.forward_passes, stats.forward_passes);
        raise(&self.draft_tokens, stats.draft_tokens);
        raise(&self.accepted_draft_tokens, stats.accepted_draft_tokens);
        self.processors.update(stats.processors);
    }

    /// Prometheus text of the whole registry.
    pub(crate) fn render(&self) -> Result<String> {
        let mut buffer = Vec::with_capacity(16 * 1024);
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut buffer)
            .map_err(|e| Error::internal(format!("metrics cannot be rendered: {e}")))?;
        String::from_utf8(buffer).map_err(|e| Error::internal(format!("metrics are not UTF-8: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llgtrt_core::{Batcher, CacheBlocks, RuntimeMemory};

    #[test]
    fn counters_follow_the_engine_and_never_fall() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).expect("metrics");
        let stats = EngineStats { running: 2, prefix_cache_hits: 7, ..EngineStats::default() };
        metrics.update(&stats);
        metrics.update(&EngineStats { prefix_cache_hits: 5, ..stats });
        let text = metrics.render().expect("text");
        assert!(text.contains("llgtrt_num_requests_running 2\n"));
        assert!(text.contains("llgtrt_prefix_cache_hits 7\n"));
        assert!(text.contains("llgtrt_time_to_first_token_seconds_bucket"));
    }

    #[test]
    fn what_the_engine_does_not_say_has_no_sample() {
        let metrics = Metrics::new(&Registry::new()).expect("metrics");
        let samples = |metrics: &Metrics| {
            let text = metrics.render().expect("text");
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            let names = ["kv_cache_block", "runtime_memory", "batch_", "context_tokens"];
            lines
                .filter(|line| names.iter().any(|name| line.contains(name)))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        metrics.update(&EngineStats::default());
        assert_eq!(samples(&metrics), [""; 0]);
        metrics.update(&EngineStats {
            cache_blocks: Some(CacheBlocks { max: 9, used: 4, free: 5, tokens: 16 }),
            memory: Some(RuntimeMemory { gpu: 3, cpu: 2, pinned: 1 }),
            batcher: Some(Batcher {
                scheduled: 5,
                context: 2,
                generation: 3,
                micro_batch: 1,
                ..Batcher::default()
            }),
            ..EngineStats::default()
        });
        assert_eq!(
            samples(&metrics),
            [
                "llgtrt_batch_sequences{phase=\"context\"} 2",
                "llgtrt_batch_sequences{phase=\"generation\"} 3",
                "llgtrt_batch_sequences{phase=\"paused\"} 0",
                "llgtrt_batch_sequences{phase=\"scheduled\"} 5",
                "llgtrt_context_tokens 0",
                "llgtrt_kv_cache_block_tokens 16",
                "llgtrt_kv_cache_blocks{kind=\"free\"} 5",
                "llgtrt_kv_cache_blocks{kind=\"max\"} 9",
                "llgtrt_kv_cache_blocks{kind=\"used\"} 4",
                "llgtrt_micro_batch_id 1",
                "llgtrt_runtime_memory_bytes{kind=\"cpu\"} 2",
                "llgtrt_runtime_memory_bytes{kind=\"gpu\"} 3",
                "llgtrt_runtime_memory_bytes{kind=\"pinned\"} 1",
            ]
        );
    }
}
