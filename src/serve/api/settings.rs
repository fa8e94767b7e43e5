//! Settings that both kinds of completions take.

use std::time::{SystemTime, UNIX_EPOCH};

use anemeter_harness::generate::Sampling;
use serde::Deserialize;
use serde_json::Value;

use crate::error::ApiError;

/// Most stop texts of a request, and the bytes of each.
const STOPS: (usize, usize) = (16, 256);

/// Settings of sampling and of the response. What is not known is ignored, as the interface does; what is known and not
/// supported is refused, so that nobody measures something else than they asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Settings {
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    seed: Option<i64>,
    n: Option<usize>,
    stop: Option<OneOrMany>,
    #[serde(default)]
    pub(super) stream: bool,
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    pub(super) ignore_eos: bool,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    repetition_penalty: Option<f32>,
    logit_bias: Option<serde_json::Map<String, Value>>,
    response_format: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Settings {
    /// How many answers per prompt.
    pub(super) fn choices(&self) -> Result<usize, ApiError> {
        match self.n {
            Some(0) => Err(ApiError::parameter("n", "is 0, should be 1 or more")),
            n => Ok(n.unwrap_or(1)),
        }
    }

    pub(super) fn include_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }

    pub(super) fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match &self.stop {
            None => Vec::new(),
            Some(OneOrMany::One(stop)) => vec![stop.clone()],
            Some(OneOrMany::Many(stops)) => stops.clone(),
        };
        if stops.len() > STOPS.0 || stops.iter().any(|stop| stop.len() > STOPS.1) {
            let problem = format!("at most {} texts of at most {} bytes are taken", STOPS.0, STOPS.1);
            return Err(ApiError::parameter("stop", problem));
        }
        Ok(stops)
    }

    /// Sampling of the answer with a number.
    pub(super) fn sampling(&self, choice: usize) -> Result<Sampling, ApiError> {
        self.check_supported()?;
        let seed = self.seed.map_or_else(any_seed, |seed| seed as u64);
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(1.0),
            top_k: self.top_k.filter(|&k| k > 0).and_then(|k| usize::try_from(k).ok()),
            top_p: self.top_p.unwrap_or(1.0),
            seed: seed.wrapping_add(choice as u64),
        };
        match sampling.problem() {
            Some(problem) => Err(ApiError::bad_request(problem)),
            None => Ok(sampling),
        }
    }

    fn check_supported(&self) -> Result<(), ApiError> {
        let differs = |value: Option<f32>, neutral: f32| value.is_some_and(|value| value != neutral);
        let is_text = |format: &Value| format.get("type").and_then(Value::as_str) == Some("text");
        let unsupported = [
            ("presence_penalty", differs(self.presence_penalty, 0.0)),
            ("frequency_penalty", differs(self.frequency_penalty, 0.0)),
            ("repetition_penalty", differs(self.repetition_penalty, 1.0)),
            ("logit_bias", self.logit_bias.as_ref().is_some_and(|bias| !bias.is_empty())),
            ("response_format", self.response_format.as_ref().is_some_and(|format| !is_text(format))),
        ];
        match unsupported.into_iter().find(|(_, is_asked_for)| *is_asked_for) {
            Some((name, _)) => Err(ApiError::parameter(name, "is not supported")),
            None => Ok(()),
        }
    }
}

/// A seed for requests that bring none.
fn any_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Settings {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_not_supported_is_refused_and_what_changes_nothing_is_taken() {
        for (text, refused) in [
            (r#"{"presence_penalty": 0, "logit_bias": {}, "anything": 1}"#, None),
            (r#"{"repetition_penalty": 1.1}"#, Some("repetition_penalty")),
            (r#"{"logit_bias": {"50256": -100}}"#, Some("logit_bias")),
            (r#"{"response_format": {"type": "json_object"}}"#, Some("response_format")),
            (r#"{"temperature": -1}"#, Some("temperature")),
            (r#"{"top_p": 0}"#, Some("top-p")),
        ] {
            let problem = read(text).sampling(0).err().map(|error| error.document().to_string());
            match refused {
                None => assert_eq!(problem, None, "{text}"),
                Some(word) => assert!(problem.is_some_and(|problem| problem.contains(word)), "{text}"),
            }
        }
        assert_eq!(read(r#"{"seed": 7}"#).sampling(2).unwrap().seed, 9);
        assert_eq!(read(r#"{"stop": "x"}"#).stops().unwrap(), ["x"]);
        assert!(read(r#"{"n": 0}"#).choices().is_err());
    }
}
