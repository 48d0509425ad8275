//! What a constraint did to an answer, in figures: made once, when the answer ends. Plain data.

use serde::Serialize;

/// The receipt of one constrained answer. Its members are those of the field `constraint` in responses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Receipt {
    /// What the request asked for, such as `json_schema`.
    pub kind: String,
    /// What holds the answer to it.
    pub enforced_by: Enforcement,
    /// Rules of the schema's rewriting that leave out what the standard allows.
    pub rules: Vec<&'static str>,
    /// Paths of the constraints that no grammar holds and that the check judged.
    pub residual: Vec<String>,
    /// What the grammar only approximates, because the request allows it to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether the answer ends where the constraint allows an end. One that was cut does not.
    pub complete: bool,
    /// Completed because its limit of tokens was near.
    pub closed_at_limit: bool,
    /// What the request's stop strings may end; `None` without stop strings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_strings: Option<StopStrings>,
    /// Tokens that the model chose, the one that ended the answer among them.
    pub sampled_tokens: u64,
    /// Tokens that the constraint left no choice for, and that were appended without asking the model.
    pub forced_tokens: u64,
    /// Tokens that were taken back, and are not among the others.
    pub retracted_tokens: u64,
    /// Whether the grammar was found compiled.
    pub grammar_cached: bool,
    /// Time that compiling the grammar took, by whichever request caused it, in milliseconds.
    pub compile_ms: f64,
    /// Time that the masks of this answer took, in milliseconds of one core. Most of it passes while the model
    /// computes.
    pub mask_ms: f64,
    /// How much probability the masks took away from the sampled tokens; `None` if nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed_mass: Option<RemovedMass>,
}

/// What holds an answer to its constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The grammar alone.
    Grammar,
    /// The grammar, and a check of what it leaves open.
    GrammarAndCheck,
}

/// What the stop strings of a constrained request may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopStrings {
    /// The answer, where the grammar allows its end.
    WhereComplete,
    /// Nothing: the grammar alone does not know where the answer may end.
    Never,
}

/// Probability, before penalties and temperature, of the tokens that a mask excluded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RemovedMass {
    /// Over the sampled tokens, 0 to 1.
    pub mean: f64,
    /// Of the sampled token that lost most.
    pub max: f64,
}

/// Adds up removed masses.
#[derive(Debug, Clone, Copy, Default)]
pub struct MassSum {
    count: u64,
    sum: f64,
    max: f64,
}

impl MassSum {
    /// Takes the mass of one more sampled token.
    pub fn add(&mut self, mass: f32) {
        let mass = f64::from(mass);
        self.count += 1;
        self.sum += mass;
        self.max = self.max.max(mass);
    }

    /// Mean and maximum; `None` of nothing.
    pub fn summary(&self) -> Option<RemovedMass> {
        let rounded = |mass: f64| (mass * 1e6).round() / 1e6;
        (self.count > 0)
            .then(|| RemovedMass { mean: rounded(self.sum / self.count as f64), max: rounded(self.max) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masses_have_a_mean_and_a_maximum() {
        let mut sum = MassSum::default();
        assert_eq!(sum.summary(), None);
        for mass in [0.0, 0.5, 0.25] {
            sum.add(mass);
        }
        assert_eq!(sum.summary(), Some(RemovedMass { mean: 0.25, max: 0.5 }));
    }
}
