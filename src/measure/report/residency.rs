//! Where operations ran, and what it took to get there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use anemeter_base::vocabulary::{Device, KvForm};

/// Which part of the work ran on the Neural Engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Residency {
    /// Cost-weighted share of all functions.
    pub share: f64,
    /// Whether run times confirm what was planned.
    pub verified: bool,
    /// Each function on its own.
    pub functions: Vec<FunctionResidency>,
}

/// Which part of a function ran on the Neural Engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionResidency {
    /// The function.
    pub function: String,
    /// The package: every chunk of a model has functions of the same names.
    pub package: String,
    /// Cost-weighted share; absent if the plan has no costs.
    pub share: Option<f64>,
    /// Share of the operations.
    #[serde(default)]
    pub by_count: Option<f64>,
    /// Cost-weighted share of what could run on the Neural Engine: beyond `share` it is a matter of size, not of form.
    #[serde(default)]
    pub eligible: Option<f64>,
    /// Operations that run, yet have no device in the plan.
    #[serde(default)]
    pub unplanned: usize,
    /// Changes of device in program order.
    pub transitions: usize,
    /// Operations that are planned on another device.
    pub not_on_ane: Vec<OffAneOperation>,
}

/// An operation that is planned on another device than the Neural Engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OffAneOperation {
    /// The name of its first output.
    pub name: String,
    /// Its kind, such as `gather`.
    pub kind: String,
    /// Where it is planned to run.
    pub device: Device,
    /// Whether the Neural Engine could run it: then it is a matter of size, else of form.
    pub eligible: bool,
    /// Rules of the linter that expect it there.
    pub reasons: Vec<String>,
}

/// Where static rules expect the operations of a function to run, at one shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictedResidency {
    /// The package.
    pub package: String,
    /// The function.
    pub function: String,
    /// The shape, where there are several.
    pub shape: Option<String>,
    /// Cost-weighted share expected on the Neural Engine.
    pub share: Option<f64>,
    /// Expected changes of device in program order.
    pub transitions: usize,
}

/// How the form of the KV cache was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvChoice {
    /// The form that was taken.
    pub form: KvForm,
    /// Steps that the probe asked of the form `state`.
    pub steps: usize,
    /// Why the form was chosen.
    pub reason: String,
}

/// What making a model ready took, in milliseconds: compiling, if any, and loading. Medians where there are several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadRegimes {
    /// Launches that had to compile the packages.
    pub first_ms: Option<f64>,
    /// Launches that found them compiled.
    pub cached_ms: Option<f64>,
    /// A second time in the same process.
    pub in_process_ms: Option<f64>,
}
