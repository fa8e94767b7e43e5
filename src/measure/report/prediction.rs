//! The workload `predict`: functions at shapes, and every prediction of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is predicted: a function at the shapes of its inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name: the package if there are several, the function, and the shapes that tell it from others.
    pub name: String,
    /// The package.
    pub package: String,
    /// The function.
    pub function: String,
    /// The shape of every input.
    pub shapes: Vec<InputShape>,
    /// Samples of inputs, which take turns.
    pub samples: usize,
    /// FLOPs of a prediction, from shapes alone.
    pub flops: u64,
    /// Bytes of weights that a prediction reads, as they are stored.
    pub weight_bytes: u64,
    /// Bytes of other tensors that a prediction reads and writes if nothing stays in a cache.
    pub activation_bytes: u64,
}

/// An input and its shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputShape {
    /// Name of the input.
    pub input: String,
    /// Its shape.
    pub shape: Vec<u64>,
}

/// A prediction that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// Its place in the order of its launch, warm-up included.
    pub slot: usize,
    /// The name of its case.
    pub case: String,
    /// Which sample of the inputs it was given.
    pub sample: usize,
    /// Whether it was the first of its case in the launch, which plans memory and counts on its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// Milliseconds from the start of the launch to the start of the prediction.
    pub started_ms: f64,
    /// Time of the prediction; making its inputs and its states ready is not part of it.
    pub latency_ms: f64,
    /// Resident memory after it.
    pub resident_bytes: Option<u64>,
    /// Memory of the process that no file backs, after it.
    pub private_bytes: Option<u64>,
}

impl Prediction {
    /// Predictions per second at its speed; `None` if the clock saw no time pass.
    pub fn per_second(&self) -> Option<f64> {
        (self.latency_ms > 0.0).then(|| 1e3 / self.latency_ms)
    }
}

/// How far predictions of a case are from what the machine allows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Roofline {
    /// The name of the case.
    pub case: String,
    /// FLOPs of a prediction.
    pub flops: u64,
    /// Bytes of weights that a prediction reads.
    pub weight_bytes: u64,
    /// The bandwidth the bound follows from.
    pub gb_per_s: f64,
    /// Whose figure that is.
    pub bandwidth_source: String,
    /// FLOPs per byte at which arithmetic becomes the limit; absent where it is not known, and memory alone bounds.
    pub balance: Option<u64>,
    /// The least time that a prediction takes.
    pub bound_ms: f64,
    /// That time as a share of the measured latency (p50).
    pub share_of_bound: f64,
    /// FLOPs per second that were reached at p50, in thousand millions.
    pub gflops: f64,
}

impl Roofline {
    /// The bound of a case, and how near a measured latency comes to it; `None` if nothing bounds it.
    pub fn new(
        case: &Case,
        (gb_per_s, source): &(f64, String),
        balance: Option<u64>,
        p50_ms: f64,
    ) -> Option<Roofline> {
        let arithmetic = balance.map_or(0, |balance| case.flops / balance.max(1));
        let bytes = case.weight_bytes.max(arithmetic);
        if bytes == 0 || p50_ms <= 0.0 || *gb_per_s <= 0.0 {
            return None;
        }
        let bound_ms = bytes as f64 / (gb_per_s * 1e6);
        Some(Roofline {
            case: case.name.clone(),
            flops: case.flops,
            weight_bytes: case.weight_bytes,
            gb_per_s: *gb_per_s,
            bandwidth_source: source.clone(),
            balance,
            bound_ms,
            share_of_bound: bound_ms / p50_ms,
            gflops: case.flops as f64 / (p50_ms * 1e6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn a_prediction_is_bounded_by_its_weights_or_by_its_arithmetic() {
        let case = Case { flops: 128_000_000, weight_bytes: 250_000, ..testing::case("main") };
        let bandwidth = (10.0, "probe".to_owned());
        let memory = Roofline::new(&case, &bandwidth, None, 0.05).unwrap();
        assert_eq!((memory.bound_ms, memory.share_of_bound), (0.025, 0.5));
        assert!((memory.gflops - 2560.0).abs() < 1e-9);
        let arithmetic = Roofline::new(&case, &bandwidth, Some(128), 0.2).unwrap();
        assert_eq!((arithmetic.bound_ms, arithmetic.share_of_bound), (0.1, 0.5));
        let nothing = Case { weight_bytes: 0, ..case };
        assert_eq!(Roofline::new(&nothing, &bandwidth, None, 0.05), None);
    }
}
