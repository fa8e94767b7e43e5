//! Metrics: each with its unit and direction, never guessed from a name.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Launch, Prediction, Request};
use crate::stats::{Direction, Unit};

/// Something that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Time to the first token: tokenise, take the prompt in, pick.
    Ttft,
    /// The tokenizer's part of it.
    Tokenizer,
    /// The part of looking token vectors up.
    Embed,
    /// The part of taking the prompt in.
    Prefill,
    /// The part of picking the first token.
    Sample,
    /// Everything after the tokenizer.
    FirstStep,
    /// Tokens per second after the first.
    Tps,
    /// Time from one token to the next.
    InterToken,
    /// Tokens of the prompt per second of prefill.
    PrefillTps,
    /// Mean time of a token after the first, per request.
    TimePerOutputToken,
    /// Time from the prompt to the last token.
    EndToEnd,
    /// Time of one prediction of a function.
    Latency,
    /// Predictions of a function per second, one after another.
    PredictionRate,
    /// The first prediction of a function at a shape in a launch.
    FirstOfCase,
    /// Reading the description and mapping the packages.
    Open,
    /// Making packages ready to run.
    Load,
    /// The first prediction, which plans memory.
    FirstPrediction,
    /// Memory of the process when it is ready.
    MemoryAtLoad,
    /// The most memory that the process had.
    MemoryPeak,
    /// Energy of the whole machine per generated token.
    EnergyPerToken,
}

/// What one value of a metric belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One value per request, or per prediction.
    Request,
    /// A step inside a request.
    Step,
    /// One value per launch.
    Launch,
}

impl Metric {
    /// All of them, in the order in which reports show them.
    pub const ALL: [Metric; 20] = [
        Metric::Ttft,
        Metric::Tokenizer,
        Metric::Embed,
        Metric::Prefill,
        Metric::Sample,
        Metric::FirstStep,
        Metric::Tps,
        Metric::InterToken,
        Metric::PrefillTps,
        Metric::TimePerOutputToken,
        Metric::EndToEnd,
        Metric::Latency,
        Metric::PredictionRate,
        Metric::FirstOfCase,
        Metric::Open,
        Metric::Load,
        Metric::FirstPrediction,
        Metric::MemoryAtLoad,
        Metric::MemoryPeak,
        Metric::EnergyPerToken,
    ];

    /// What it counts.
    pub fn unit(self) -> Unit {
        match self {
            Metric::Tps | Metric::PrefillTps => Unit::TokensPerSecond,
            Metric::PredictionRate => Unit::PredictionsPerSecond,
            Metric::MemoryAtLoad | Metric::MemoryPeak => Unit::Bytes,
            Metric::EnergyPerToken => Unit::Joules,
            _ => Unit::Milliseconds,
        }
    }

    /// Which way is better.
    pub fn direction(self) -> Direction {
        match self {
            Metric::Tps | Metric::PrefillTps | Metric::PredictionRate => Direction::HigherIsBetter,
            _ => Direction::LowerIsBetter,
        }
    }

    /// What one value belongs to.
    pub fn scope(self) -> Scope {
        match self {
            Metric::InterToken => Scope::Step,
            Metric::Open
            | Metric::Load
            | Metric::FirstPrediction
            | Metric::MemoryAtLoad
            | Metric::MemoryPeak
            | Metric::EnergyPerToken => Scope::Launch,
            _ => Scope::Request,
        }
    }

    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Metric::Ttft => "TTFT",
            Metric::Tokenizer => "tokenizer",
            Metric::Embed => "embed",
            Metric::Prefill => "prefill",
            Metric::Sample => "sample",
            Metric::FirstStep => "first step",
            Metric::Tps => "TPS",
            Metric::InterToken => "inter-token",
            Metric::PrefillTps => "prefill TPS",
            Metric::TimePerOutputToken => "time per output token",
            Metric::EndToEnd => "end to end",
            Metric::Latency => "latency",
            Metric::PredictionRate => "predictions per second",
            Metric::FirstOfCase => "first of its shape",
            Metric::Open => "open",
            Metric::Load => "load",
            Metric::FirstPrediction => "first prediction",
            Metric::MemoryAtLoad => "memory at load",
            Metric::MemoryPeak => "memory peak",
            Metric::EnergyPerToken => "energy per token",
        }
    }

    /// Whether it is one of the parts that make up the time to the first token.
    pub fn is_part_of_ttft(self) -> bool {
        matches!(
            self,
            Metric::Tokenizer | Metric::Embed | Metric::Prefill | Metric::Sample | Metric::FirstStep
        )
    }

    /// Its values in a request.
    pub fn of_request(self, request: &Request) -> Vec<f64> {
        let one = |value: Option<f64>| value.into_iter().collect();
        match self {
            Metric::Ttft => one(Some(request.ttft_ms)),
            Metric::Tokenizer => one(request.tokenizer_ms),
            Metric::Embed => one(Some(request.embed_ms)),
            Metric::Prefill => one(Some(request.prefill_ms)),
            Metric::Sample => one(Some(request.sample_ms)),
            Metric::FirstStep => one(Some(request.first_step_ms)),
            Metric::Tps => one(request.tokens_per_second()),
            Metric::InterToken => request.steps_ms.clone(),
            Metric::PrefillTps => one(request.prefill_tokens_per_second()),
            Metric::TimePerOutputToken => one(request.ms_per_output_token()),
            Metric::EndToEnd => one(Some(request.end_to_end_ms())),
            _ => Vec::new(),
        }
    }

    /// Its value in a prediction. The first of a case is a metric of its own.
    pub fn of_prediction(self, prediction: &Prediction) -> Option<f64> {
        match self {
            Metric::Latency => (!prediction.first).then_some(prediction.latency_ms),
            Metric::PredictionRate => prediction.per_second().filter(|_| !prediction.first),
            Metric::FirstOfCase => prediction.first.then_some(prediction.latency_ms),
            _ => None,
        }
    }

    /// Its value in a launch.
    pub fn of_launch(self, launch: &Launch) -> Option<f64> {
        let load = launch.load.as_ref();
        let bytes = |value: Option<u64>| value.map(|bytes| bytes as f64);
        match self {
            Metric::Open => load.map(|load| load.open_ms),
            Metric::Load => load.map(|load| load.load_ms),
            Metric::FirstPrediction => load.and_then(|load| load.first_prediction_ms),
            Metric::MemoryAtLoad => bytes(launch.memory.as_ref().and_then(|memory| memory.at_load_bytes)),
            Metric::MemoryPeak => bytes(launch.memory.as_ref().and_then(|memory| memory.peak_bytes)),
            Metric::EnergyPerToken => launch.energy_joules_per_token,
            _ => None,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn each_metric_has_values_where_its_scope_says() {
        let report = testing::report();
        let (launch, request) = (&report.launches[0], &report.launches[0].requests[0]);
        let first = testing::prediction(0, "main", 1.0, true);
        let later = testing::prediction(1, "main", 1.0, false);
        for metric in Metric::ALL {
            let predicted = [&first, &later].into_iter().filter_map(|one| metric.of_prediction(one)).count();
            let values = metric.of_request(request).len() + predicted;
            match metric.scope() {
                Scope::Request => assert_eq!(values, 1, "{metric}"),
                Scope::Step => assert_eq!(values, request.steps_ms.len(), "{metric}"),
                Scope::Launch => {
                    assert_eq!(values, 0, "{metric}");
                    assert!(metric.of_launch(launch).is_some(), "{metric}");
                }
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut labels: Vec<&str> = Metric::ALL.iter().map(|metric| metric.label()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Metric::ALL.len());
    }
}
