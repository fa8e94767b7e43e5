//! What a parent asks of a worker, and what the worker answers: one JSON document per line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::config::PromptConfig;
use super::depth::DepthUse;
use super::predict::PredictUse;
use super::residency::PlannedPlacement;
use super::schedule::Slot;
use anemeter_base::engine::Engine;
use anemeter_base::vocabulary::{ComputeUnits, KvForm, Numerics, RuntimeName};
use anemeter_measure::report::{Load, MeasuredBandwidth, Memory, Prediction, Request, SoakPoint};

/// What a worker is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Find out what the machine and the harness can do.
    Probe {
        /// Threads to read memory with.
        threads: usize,
    },
    /// Run requests.
    Measure {
        /// The model.
        model: ModelUse,
        /// The requests in order.
        slots: Vec<Slot>,
    },
    /// See whether the model runs at all: load it, run steps, ask where operations are planned.
    Try {
        /// The model.
        model: ModelUse,
        /// The sequence length, or the number of the case, to run at.
        seq_len: usize,
        /// Steps to do.
        steps: usize,
    },
    /// Ask where operations are planned to run, and gather what speaks for it.
    Place {
        /// The model.
        model: ModelUse,
        /// The sequence length, or the number of the case, to run at with the CPU only.
        seq_len: usize,
    },
    /// Run steps for a long time.
    Soak {
        /// The model.
        model: ModelUse,
        /// The sequence length, or the number of the case, to run at.
        seq_len: usize,
        /// Steps to do.
        steps: usize,
    },
}

/// A model and how it is run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelUse {
    /// The bundle's folder.
    pub bundle: PathBuf,
    /// The runtime's name.
    pub runtime: RuntimeName,
    /// Where operations may run.
    pub units: ComputeUnits,
    /// Seconds that loading a function may take.
    pub load_limit_s: f64,
    /// Threads, if not the runtime's choice.
    pub threads: Option<usize>,
    /// How fp16 is computed.
    pub numerics: Numerics,
    /// Seed of made-up prompts and inputs.
    pub seed: u64,
    /// How much slower than need be, in percent.
    pub slow_down_pct: Option<u16>,
    /// What requests are.
    pub work: Work,
}

/// What requests are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Prompts that tokens follow.
    Generate(GenerateUse),
    /// Predictions of functions.
    Predict(PredictUse),
}

/// What a worker is to generate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GenerateUse {
    /// Form of the KV cache.
    pub kv: KvForm,
    /// Lengths of the functions that are going to be run.
    pub seq_lens: Vec<usize>,
    /// Prompts after contexts of stated depths; none if prompts fill the lengths.
    pub depths: Option<DepthUse>,
    /// Where prompts come from.
    pub prompts: PromptConfig,
    /// Tokens to generate per request.
    pub generated_tokens: usize,
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// What the machine and the harness can do.
    Probed {
        /// Memory bandwidth that was measured.
        bandwidth: MeasuredBandwidth,
        /// Time the harness adds to a step, in microseconds.
        overhead_us_per_step: f64,
        /// The smallest step of the clock, in nanoseconds.
        clock_resolution_ns: u64,
    },
    /// The fixed computation took so many milliseconds.
    Canary {
        /// Time of the canary in milliseconds.
        ms: f64,
    },
    /// The model is ready.
    Loaded {
        /// Times of loading.
        load: Load,
        /// Resident memory after loading.
        resident_bytes: Option<u64>,
        /// Bytes of weights that one decoded token reads.
        weight_bytes_per_token: Option<u64>,
    },
    /// What the runtime did otherwise than asked.
    Remarks(Vec<String>),
    /// What does the work of the runtime.
    Engine(Engine),
    /// The model was tried.
    Tried {
        /// Steps that were done.
        steps: usize,
        /// Share of the cost that is planned on the Neural Engine, of the function with the least; `embed` does not count.
        residency: Option<f64>,
    },
    /// Where operations are planned to run.
    Placed(PlannedPlacement),
    /// A request that was to warm up is done.
    WarmedUp,
    /// A request was measured.
    Request(Request),
    /// A prediction was measured.
    Prediction(Prediction),
    /// A request of a long run was made.
    Point(SoakPoint),
    /// The model gave something that is not a number.
    NotFinite(String),
    /// Everything is done.
    Finished {
        /// Memory of the process.
        memory: Option<Memory>,
        /// Energy of the whole machine per generated token.
        energy_joules_per_token: Option<f64>,
    },
    /// It cannot go on.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_measure::report::testing::request;

    #[test]
    fn messages_are_single_lines_and_come_back_exactly() {
        let messages = [
            Message::Canary { ms: 1.234567 },
            Message::WarmedUp,
            Message::Request(request(3, 128, 1.25)),
            Message::NotFinite("step 3:\nthe logit is NaN".to_owned()),
            Message::Failed("a\u{2028}b\r\n<script>\u{0}".to_owned()),
        ];
        for message in messages {
            let line = serde_json::to_string(&message).unwrap();
            assert!(!line.contains(['\n', '\r']));
            assert_eq!(serde_json::from_str::<Message>(&line).unwrap(), message);
        }
    }
}
