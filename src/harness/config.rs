//! What to measure, as `configs/bench.yaml` states it.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::predict::PredictConfig;
use anemeter_base::config::{self, ConfigFileError};
use anemeter_base::hardware::ProductionMix;
use anemeter_base::vocabulary::{ComputeUnits, KvForm, Numerics, WorkloadKind};

/// The configuration that comes with the program.
const BUILT_IN: &str = include_str!("configs/bench.yaml");
const BUILT_IN_PATH: &str = "configs/bench.yaml";
const SCHEMA: &str = "anemeter.bench/1";

/// What every launch of a benchmark does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BenchConfig {
    /// `anemeter.bench/1`.
    pub schema: String,
    /// Sequence lengths to measure; those of the bundle if none are given.
    #[serde(default)]
    pub shapes: Option<Vec<usize>>,
    /// Tokens of a prompt, in place of as many as fill a sequence length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<usize>,
    /// Tokens of context before each prompt, with `prompt_tokens` only; no context if none are given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depths: Vec<usize>,
    /// How often each sequence length occurs; the hardware profile's mix if none is given.
    #[serde(default)]
    pub mix: Option<ProductionMix>,
    /// Where prompts come from.
    pub prompts: PromptConfig,
    /// Tokens to generate per request, the first included.
    pub generated_tokens: usize,
    /// Rounds over all sequence lengths that are discarded in each launch.
    pub warm_up_rounds: usize,
    /// Measured requests per sequence length and launch.
    pub requests_per_seq_len: usize,
    /// Launches, each a fresh process.
    pub launches: usize,
    /// Seed of the order of sequence lengths and of made-up prompts.
    pub seed: u64,
    /// Seconds of rest before each launch.
    pub cool_down_s: f64,
    /// Seconds after which a launch is ended.
    pub launch_limit_s: f64,
    /// Seconds after which no further launch begins.
    #[serde(default)]
    pub budget_s: Option<f64>,
    /// Form of the KV cache; the bundle's first if none is given.
    #[serde(default)]
    pub kv: Option<KvForm>,
    /// Where Core ML may place operations; as the bundle says if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_units: Option<ComputeUnits>,
    /// Seconds that Core ML may take to load a function; most of `launch_limit_s` if none are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_limit_s: Option<f64>,
    /// Threads of the `cpu` runtime; the number of physical cores if none is given.
    #[serde(default)]
    pub threads: Option<usize>,
    /// How the `cpu` runtime computes fp16.
    #[serde(default)]
    pub numerics: Numerics,
    /// What one request is: `generate` or `predict`. A language model generates and anything else predicts if nothing is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WorkloadKind>,
    /// What the workload `predict` does.
    #[serde(default, skip_serializing_if = "PredictConfig::is_default")]
    pub predict: PredictConfig,
}

/// Where prompts come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptConfig {
    /// The kind of source.
    pub source: PromptSource,
    /// The file of a `text` or `jsonl` source.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

/// Kinds of sources of prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PromptSource {
    /// English text that comes with the program, as long as the sequence length allows.
    BuiltIn,
    /// Random tokens, as many as the sequence length allows; no tokenizer is involved.
    Tokens,
    /// A text file, repeated and cut to what the sequence length allows.
    Text,
    /// Lines with a JSON object whose `prompt` is text; used in turn, cut to what the sequence length allows.
    Jsonl,
}

impl BenchConfig {
    /// The configuration that comes with the program.
    pub fn built_in() -> Result<BenchConfig, ConfigFileError> {
        let path = Path::new(BUILT_IN_PATH);
        BenchConfig::check(config::parse(BUILT_IN, path)?, path)
    }

    /// Reads a configuration. Files of prompts are looked for beside it.
    pub fn read(path: &Path) -> Result<BenchConfig, ConfigFileError> {
        let mut config = BenchConfig::check(config::load(path)?, path)?;
        let BenchConfig { prompts, predict, .. } = &mut config;
        if let Some(folder) = path.parent() {
            prompts.file.iter_mut().chain(&mut predict.inputs).for_each(|file| *file = folder.join(&*file));
        }
        Ok(config)
    }

    fn check(config: BenchConfig, path: &Path) -> Result<BenchConfig, ConfigFileError> {
        match config.problem() {
            Some(problem) => Err(ConfigFileError::new(path, problem)),
            None => Ok(config),
        }
    }

    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        if self.schema != SCHEMA {
            return Some(format!("schema is `{}`, expected `{SCHEMA}`", self.schema));
        }
        let counts = [
            ("generated_tokens", self.generated_tokens, 2, 1 << 20),
            ("prompt_tokens", self.prompt_tokens.unwrap_or(1), 1, 1 << 20),
            ("warm_up_rounds", self.warm_up_rounds, 0, 1000),
            ("requests_per_seq_len", self.requests_per_seq_len, 1, 100_000),
            ("launches", self.launches, 1, 1000),
            ("threads", self.threads.unwrap_or(1), 1, 4096),
        ];
        for (key, value, low, high) in counts {
            if !(low..=high).contains(&value) {
                return Some(format!("`{key}` is {value}, expected {low} to {high}"));
            }
        }
        let most = 7.0 * 86_400.0;
        let seconds = [
            ("cool_down_s", self.cool_down_s, 0.0),
            ("launch_limit_s", self.launch_limit_s, 0.001),
            ("budget_s", self.budget_s.unwrap_or(1.0), 0.001),
            ("load_limit_s", self.load_limit_s.unwrap_or(1.0), 0.001),
        ];
        for (key, value, low) in seconds {
            if !(low..=most).contains(&value) {
                return Some(format!("`{key}` is {value}, expected {low} to {most} seconds"));
            }
        }
        self.shapes_problem()
            .or_else(|| self.depths_problem())
            .or_else(|| self.prompts.problem())
            .or_else(|| self.predict.problem())
    }

    /// Prompts of a stated size have no text that would be cut to it, and no list of lengths to fill.
    fn depths_problem(&self) -> Option<String> {
        let source = self.prompts.source;
        let given = [
            (self.shapes.is_some(), "`shapes`"),
            (self.mix.is_some(), "`mix`"),
            (matches!(source, PromptSource::Text | PromptSource::Jsonl), "a file of `prompts`"),
        ];
        match self.prompt_tokens {
            None => (!self.depths.is_empty()).then(|| "`depths` needs `prompt_tokens`".to_owned()),
            Some(_) => {
                let (_, other) = given.into_iter().find(|(is_given, _)| *is_given)?;
                Some(format!(
                    "`prompt_tokens` and {other} are both given: one of them says how long prompts are"
                ))
            }
        }
    }

    fn shapes_problem(&self) -> Option<String> {
        if let Some(problem) = self.mix.as_ref().and_then(ProductionMix::problem) {
            return Some(format!("`mix`: {problem}"));
        }
        let shapes = self.shapes.as_ref()?;
        let shortest = shapes.iter().min().copied().unwrap_or(0);
        let generates = self.kind != Some(WorkloadKind::Predict);
        if generates && shortest <= self.generated_tokens {
            return Some(format!(
                "`shapes` is {shapes:?}, expected lengths above the {} `generated_tokens`",
                self.generated_tokens
            ));
        }
        let mut sorted = shapes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        (sorted.len() != shapes.len()).then(|| format!("`shapes` is {shapes:?}, expected each once"))
    }
}

impl PromptConfig {
    fn problem(&self) -> Option<String> {
        let needs_file = matches!(self.source, PromptSource::Text | PromptSource::Jsonl);
        match (&self.file, needs_file) {
            (None, true) => Some("`prompts` has no `file`, which its source needs".to_owned()),
            (Some(_), false) => Some("`prompts` has a `file`, which its source does not use".to_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: (&str, &str)) -> String {
        assert!(BUILT_IN.contains(change.0), "{}", change.0);
        let text = BUILT_IN.replacen(change.0, change.1, 1);
        let path = Path::new("b.yaml");
        let read = config::parse(&text, path).and_then(|config| BenchConfig::check(config, path));
        read.unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_those_that_gates_want() {
        let config = BenchConfig::built_in().unwrap();
        assert_eq!((config.launches, config.requests_per_seq_len, config.warm_up_rounds), (10, 5, 1));
        assert_eq!((config.shapes, config.mix, config.numerics), (None, None, Numerics::Fast));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(refused(("launches: 10", "launchs: 10")).contains("unknown key `launchs`"));
        assert_eq!(refused(("launches: 10", "launches: 0")), "b.yaml: `launches` is 0, expected 1 to 1000");
        assert!(refused(("generated_tokens: 32", "generated_tokens: 1")).contains("expected 2 to"));
        assert!(refused(("cool_down_s: 0", "cool_down_s: .nan")).contains("`cool_down_s` is NaN"));
        assert!(refused(("launch_limit_s: 600", "launch_limit_s: -1")).contains("`launch_limit_s` is -1"));
        assert!(refused(("source: built-in", "source: text")).contains("has no `file`"));
        assert!(refused(("source: built-in", "source: built-in\n  file: a")).contains("does not use"));
        assert!(refused(("seed: 1", "seed: 1\nshapes: [8]")).contains("above the 32 `generated_tokens`"));
        assert!(refused(("seed: 1", "seed: 1\nshapes: [64, 64]")).contains("expected each once"));
        assert!(refused(("seed: 1", "seed: 1\ndepths: [64]")).contains("`depths` needs `prompt_tokens`"));
        assert!(refused(("seed: 1", "seed: 1\nprompt_tokens: 0")).contains("expected 1 to"));
        let both = refused(("seed: 1", "seed: 1\nprompt_tokens: 8\nshapes: [64]"));
        assert!(both.contains("`prompt_tokens` and `shapes` are both given"), "{both}");
        assert!(refused(("seed: 1", "seed: 1\nkind: guess")).contains("kind"));
        let predict = |text: &str| refused(("seed: 1", &format!("seed: 1\npredict: {text}")));
        assert!(predict("{ shape: {} }").contains("predict: unknown key `shape`"));
        assert!(predict("{ predictions_per_case: 0 }").contains("expected 1 to 1000000"));
        assert!(predict("{ shapes: { x: [1x0] } }").contains("a dimension of 0"));
        assert!(predict("{ ranges: { x: 5 } }").contains("predict.ranges"));
        assert!(refused(("seed: 1", "seed: 1\nmix: { seq_lens: [64], weights: [0.5] }")).contains("`mix`: "));
    }

    #[test]
    fn prompt_files_are_beside_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.yaml");
        let text = BUILT_IN.replace("source: built-in", "source: text\n  file: p.txt");
        anemeter_base::atomic::write_file(&path, text.as_bytes()).unwrap();
        let config = BenchConfig::read(&path).unwrap();
        assert_eq!(config.prompts.file, Some(folder.path().join("p.txt")));
    }
}
