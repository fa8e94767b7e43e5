//! A long run in one process: does memory grow, does speed fall, does anything stop being a number?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Outcome, Place};
use crate::stats::{Interval, Slope};

/// What a long run came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Soak {
    /// Steps that were asked for.
    pub steps_asked: usize,
    /// Steps that were done.
    pub steps: usize,
    /// The sequence length that ran; 0 if a case did.
    pub seq_len: usize,
    /// The case of the workload `predict` that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// One point per request.
    pub points: Vec<SoakPoint>,
    /// What memory did; absent if the system does not tell or there were too few points.
    pub memory: Option<MemoryTrend>,
    /// What speed did; absent if there were too few points.
    pub latency: Option<LatencyDrift>,
    /// The first output that was not a number, if there was one.
    pub not_finite: Option<String>,
}

impl Soak {
    /// Where it ran.
    pub fn place(&self) -> Place {
        self.case.clone().map_or(Place::SeqLen(self.seq_len), Place::Case)
    }
}

/// The state after a request of a long run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SoakPoint {
    /// Steps done so far.
    pub steps: usize,
    /// Milliseconds since the run began.
    pub elapsed_ms: f64,
    /// The median step of the request.
    pub step_ms: f64,
    /// Memory that no file backs.
    pub private_bytes: Option<u64>,
}

/// What memory did over a long run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryTrend {
    /// Bytes per step, after the first tenth.
    pub bytes_per_step: Slope,
    /// Growth over the run that the slope amounts to.
    pub growth_bytes: f64,
    /// Whether it leaks.
    pub verdict: LeakVerdict,
}

/// Whether memory leaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeakVerdict {
    /// Memory grows steadily.
    Leak,
    /// Memory does not grow beyond chance.
    Steady,
}

/// What speed did over a long run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencyDrift {
    /// Step time of the last quarter over that of the first.
    pub late_over_early: f64,
    /// Its confidence interval.
    pub interval: Interval,
    /// Whether the machine slowed down.
    pub throttled: bool,
}
