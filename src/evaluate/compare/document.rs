//! What `anemeter compare` leaves behind, by what was compared. `docs/schemas/compare.schema.json` is made from it.

use schemars::JsonSchema;
use serde::Serialize;

use super::bundles::LookOutcome;
use super::runtimes::FunctionOnBoth;
use crate::compare::{Change, Comparison};
use crate::gate::{Arm, Verdict};
use crate::vocabulary::RuntimeName;

/// A comparison: `anemeter.compare/1`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Document {
    /// Two bundles, measured in turns.
    Bundles(Bundles),
    /// Two reports side by side.
    Reports(Comparison),
    /// Two packages side by side.
    Packages(Packages),
    /// One bundle or package on two runtimes.
    Runtimes(Runtimes),
}

/// Two bundles, measured in turns.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bundles {
    /// Format and version.
    #[schemars(extend("const" = "anemeter.compare/1"))]
    pub schema: &'static str,
    /// What was compared.
    #[schemars(extend("const" = "bundles"))]
    pub kind: &'static str,
    /// The bundle that was compared with.
    pub baseline: String,
    /// The bundle that was judged.
    pub candidate: String,
    /// Seed of the order.
    pub seed: u64,
    /// The launches in the order in which they ran.
    pub order: Vec<Arm>,
    /// Every look at the launches.
    pub looks: Vec<LookOutcome>,
    /// What changed, the likeliest cause first.
    pub changes: Vec<Change>,
    /// Whether the candidate is slower.
    pub verdict: Verdict,
}

/// What differs between two packages, or between two Core AI assets.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// Format and version.
    #[schemars(extend("const" = "anemeter.compare/1"))]
    pub schema: &'static str,
    /// What was compared.
    #[schemars(extend("enum" = ["packages", "assets"]))]
    pub kind: &'static str,
    /// The first package.
    pub baseline: String,
    /// The second.
    pub candidate: String,
    /// Sizes in bytes.
    pub sizes: Vec<Differing<u64>>,
    /// Weights by scheme and stored type.
    pub weights: Vec<Differing<WeightClass>>,
    /// Inputs, outputs and states.
    pub interface: Vec<Differing<String>>,
    /// Operations by kind.
    pub operations: Vec<Differing<usize>>,
    /// Of one prediction, from shapes and not measured.
    pub cost: Vec<Differing<u64>>,
    /// Predicted by rules, not measured.
    pub placement: Vec<Differing<PredictedPlacement>>,
}

/// Something that both packages do not have alike.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Differing<V> {
    /// The function and its shape; empty for the whole package.
    pub function: String,
    /// What.
    pub what: String,
    /// In the first package; absent if it has none.
    pub baseline: Option<V>,
    /// In the second.
    pub candidate: Option<V>,
}

/// Weights that are stored alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightClass {
    /// Their number.
    pub tensors: usize,
    /// Parameters of all of them.
    pub parameters: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// Where a function is predicted to run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictedPlacement {
    /// The share of its cost on the Neural Engine; absent if it has none.
    pub share: Option<f64>,
    /// Changes of device.
    pub transitions: usize,
}

/// One bundle or package on two runtimes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Runtimes {
    /// Format and version.
    #[schemars(extend("const" = "anemeter.compare/1"))]
    pub schema: &'static str,
    /// What was compared.
    #[schemars(extend("const" = "runtimes"))]
    pub kind: &'static str,
    /// What both ran.
    pub subject: String,
    /// The runtime that was compared with.
    pub baseline: RuntimeName,
    /// The runtime that was held against it.
    pub candidate: RuntimeName,
    /// Whether both give the same everywhere.
    pub alike: bool,
    /// Every package.
    pub packages: Vec<PackageOnBoth>,
}

/// A package on two runtimes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackageOnBoth {
    /// Its name.
    pub package: String,
    /// Its functions at their default shapes.
    pub functions: Vec<FunctionOnBoth>,
}
