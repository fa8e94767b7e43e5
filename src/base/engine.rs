//! What stands behind a runtime whose work another program does.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The program that executes models for a runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// What it is.
    pub kind: EngineKind,
    /// Its version, such as `coreai-core 1.0.0b3`.
    pub version: String,
    /// What it runs on, as it says itself.
    pub platform: String,
    /// What calling it takes without any prediction, of each function that was called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overheads: Vec<CallOverhead>,
}

/// What an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    /// The framework of the system, as apps use it.
    SystemFramework,
    /// An interpreter on the CPU, whose results count and whose times do not.
    CpuInterpreter,
}

/// What a call takes that predicts nothing, with tensors as large as those of a prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallOverhead {
    /// The function whose tensors were passed.
    pub function: String,
    /// Median of several calls, in microseconds.
    pub microseconds: f64,
}

impl Engine {
    /// What everybody who sees a result must know; `None` of a system's framework.
    pub fn caution(&self) -> Option<String> {
        match self.kind {
            EngineKind::SystemFramework => None,
            EngineKind::CpuInterpreter => Some(format!(
                "executed by Apple's CPU interpreter ({}): it is for checking results, and its times say nothing \
                 about a device",
                self.version
            )),
        }
    }
}
