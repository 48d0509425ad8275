//! What a normalisation may take, and what it is to do. Plain data.

use std::time::Duration;

/// What to do with a constraint that no grammar can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResidualMode {
    /// Refuse the schema.
    Refuse,
    /// Leave it out of the grammar and name it in [`Normalized::residual`](crate::Normalized::residual). A schema that is not refused
    /// otherwise gives the same grammar in both modes, and no residual.
    Verify,
}

/// Bounds of a normalisation.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "switches that do not depend on each other")]
pub struct NormalizeLimits {
    /// Nodes of the schema that is written.
    pub max_nodes: usize,
    /// Squares of how many properties each object has, all together: what llguidance takes for an object.
    pub max_property_squares: u64,
    /// Ways to go on at one place of an answer, as far as optional properties of one object decide it. Rows of
    /// llguidance's parser have a limit; what is beyond it is refused before it is compiled.
    pub max_ways: usize,
    /// Alternatives of one schema.
    pub max_alternatives: usize,
    /// Elementary steps, about 50 ns each.
    pub max_steps: u64,
    /// Bytes that may be held until the end. The peak of what is allocated is at most about twice that.
    pub max_bytes: u64,
    /// Wall time, as a last resort: what it ends is [`Reason::TimedOut`](crate::Reason::TimedOut), which says nothing about the schema.
    /// All other limits give the same answer on any machine.
    pub max_time: Duration,
    /// Levels of recursion over schemas, references included.
    pub max_depth: usize,
    /// What to do with a constraint that no grammar can hold.
    pub residual: ResidualMode,
    /// May give rules of a grammar ([`Normalized::lark`](crate::Normalized::lark)) where no schema says it.
    pub compose: bool,
    /// Keeps to the letter of the standard: an object that names `properties` and says nothing of others
    /// takes any others, and numbers have any number of digits. Without, the rules `closed` and `digits` apply.
    pub standard: bool,
    /// The rule `closed` applies, whatever `standard` says.
    pub strict: bool,
    /// The engine is to intersect several patterns of one string, and patterns with lengths, as it goes. Without,
    /// they become one pattern each, where that is short enough.
    pub intersects: bool,
}

impl NormalizeLimits {
    /// Whether objects that name properties and say nothing of others take no others.
    pub(crate) fn closes(&self) -> bool {
        self.strict || !self.standard
    }

    /// Whether numbers are kept short where the schema does not bound them, by whoever generates.
    pub(crate) fn bounds_digits(&self) -> bool {
        !self.standard
    }
}

impl Default for NormalizeLimits {
    fn default() -> Self {
        Self {
            max_nodes: 60_000,
            max_property_squares: 5000 * 5000,
            max_ways: usize::MAX,
            max_alternatives: 400,
            max_steps: 12_000_000,
            max_bytes: 96 << 20,
            max_time: Duration::from_secs(60),
            max_depth: 2000,
            residual: ResidualMode::Refuse,
            compose: false,
            standard: false,
            strict: false,
            intersects: true,
        }
    }
}
