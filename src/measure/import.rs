//! Measurements of other programs as reports, marked as theirs.
//!
//! Apple's `llm-benchmark` (coreai-models) writes rates per trial and neither the machine nor the time, so a report of it says
//! that these are unknown. Such a report is shown and compared, and never blessed.

use serde::Deserialize;

use crate::report::{
    Header, Launch, Load, Outcome, Report, Request, RuntimeUse, SCHEMA, Subject, Workload, figures,
};
use anemeter_base::engine::{Engine, EngineKind};
use anemeter_base::hardware::{Conditions, Machine, ProductionMix};
use anemeter_base::vocabulary::{ComputeUnits, KvForm, Origin, RuntimeName, WorkloadKind};

/// The program whose files are read.
const LLM_BENCHMARK: &str = "Apple's llm-benchmark";
const UNKNOWN: &str = "unknown";

/// Why a file is not imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is no result of `llm-benchmark --output-json`: {0}")]
pub struct ImportError(String);

/// What `llm-benchmark --output-json` writes; older versions leave out what is optional here.
#[derive(Debug, Deserialize)]
struct LlmBenchmark {
    model: String,
    prompt_tokens: usize,
    generation_tokens: usize,
    num_trials: usize,
    prepare_seconds: Option<f64>,
    cache_hit: Option<bool>,
    trials: Vec<Trial>,
}

#[derive(Debug, Deserialize)]
struct Trial {
    prompt_tps: f64,
    gen_tps: f64,
}

/// A result of `llm-benchmark --output-json` as a report; `imported` is the time of the import.
pub fn llm_benchmark(json: &[u8], imported: String) -> Result<Report, ImportError> {
    let found: LlmBenchmark = serde_json::from_slice(json).map_err(|error| ImportError(error.to_string()))?;
    check(&found)?;
    let launches = vec![launch(&found)];
    let figures = figures(&launches);
    Ok(Report {
        schema: SCHEMA.to_owned(),
        header: Header {
            created: imported,
            hardware_profile_key: UNKNOWN.to_owned(),
            hardware_profile_listed: false,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            tool_digest: None,
            git: None,
            measured_by: Some(LLM_BENCHMARK.to_owned()),
        },
        subject: subject(&found),
        runtime: runtime(),
        machine: unknown_machine(),
        conditions_at_start: Conditions::default(),
        conditions_at_end: Conditions::default(),
        noise: Vec::new(),
        workload: workload(&found),
        launches,
        figures,
        mix: Vec::new(),
        speed_limits: Vec::new(),
        rooflines: Vec::new(),
        bandwidth: None,
        overhead_us_per_step: None,
        kv_choice: None,
        load_regimes: None,
        residency: None,
        residency_note: format!("measured by {LLM_BENCHMARK}, which does not tell where operations ran"),
        predicted_residency: Vec::new(),
        soak: None,
        verification: None,
        quality: None,
        compression: Vec::new(),
    })
}

fn check(found: &LlmBenchmark) -> Result<(), ImportError> {
    let wrong = |problem: String| Err(ImportError(problem));
    if found.trials.is_empty() || found.trials.len() != found.num_trials {
        return wrong(format!("it says {} trials and lists {}", found.num_trials, found.trials.len()));
    }
    if found.prompt_tokens == 0 || found.generation_tokens < 2 {
        let (prompt, tokens) = (found.prompt_tokens, found.generation_tokens);
        return wrong(format!("{prompt} tokens of a prompt and {tokens} after it give no rates"));
    }
    for (number, trial) in found.trials.iter().enumerate() {
        for (name, rate) in [("prompt_tps", trial.prompt_tps), ("gen_tps", trial.gen_tps)] {
            if !(rate.is_finite() && rate > 0.0) {
                return wrong(format!("`{name}` of trial {} is {rate}", number + 1));
            }
        }
    }
    match found.prepare_seconds {
        Some(seconds) if !(seconds.is_finite() && seconds >= 0.0) => {
            wrong(format!("`prepare_seconds` is {seconds}"))
        }
        _ => Ok(()),
    }
}

/// All trials are of one process.
fn launch(found: &LlmBenchmark) -> Launch {
    Launch {
        index: 0,
        outcome: Outcome::Completed,
        conditions: Conditions::default(),
        canary_ms: None,
        load: found.prepare_seconds.map(|seconds| Load {
            open_ms: 0.0,
            compile_ms: None,
            compiled_before: found.cache_hit,
            load_ms: seconds * 1e3,
            first_prediction_ms: None,
        }),
        memory: None,
        energy_joules_per_token: None,
        warm_up_requests: 1,
        requests: found.trials.iter().enumerate().map(|(slot, trial)| request(found, slot, trial)).collect(),
        predictions: Vec::new(),
        stderr: None,
    }
}

/// Rates become times. Of the tokens after the first only their mean is known, which is one sample and not many.
fn request(found: &LlmBenchmark, slot: usize, trial: &Trial) -> Request {
    let ttft_ms = found.prompt_tokens as f64 * 1e3 / trial.prompt_tps;
    Request {
        slot,
        seq_len: found.prompt_tokens + found.generation_tokens,
        length: None,
        batch: 1,
        context_tokens: 0,
        prompt_tokens: found.prompt_tokens,
        generated_tokens: found.generation_tokens,
        started_ms: 0.0,
        ttft_ms,
        tokenizer_ms: None,
        first_step_ms: ttft_ms,
        embed_ms: 0.0,
        prefill_ms: ttft_ms,
        sample_ms: 0.0,
        steps_ms: vec![1e3 / trial.gen_tps],
        resident_bytes: None,
        private_bytes: None,
    }
}

fn subject(found: &LlmBenchmark) -> Subject {
    Subject {
        name: found.model.clone(),
        origin: Origin::Adopted,
        architecture: String::new(),
        parameters: 0,
        precision: UNKNOWN.to_owned(),
        // Both of Apple's engines keep keys and values in states.
        kv_form: Some(KvForm::State),
        kv_bytes_per_token: 0,
        package_bytes: 0,
        weight_bytes_per_token: None,
        package_digests: Vec::new(),
        checkpoint_digest: String::new(),
        tokenizer_digest: None,
    }
}

fn runtime() -> RuntimeUse {
    let remark = |text: &str| format!("{LLM_BENCHMARK}: {text}");
    RuntimeUse {
        name: RuntimeName::CoreAi,
        compute_units: ComputeUnits::All,
        threads: None,
        numerics: None,
        slowed_down_pct: None,
        remarks: vec![
            remark("the machine and the time are not in its file; the time is that of the import"),
            remark("times between tokens are the mean of each trial, so they have no tail"),
            remark("the parts of the time to the first token are not told apart"),
        ],
        engine: Some(Engine {
            kind: EngineKind::SystemFramework,
            version: LLM_BENCHMARK.to_owned(),
            platform: UNKNOWN.to_owned(),
            overheads: Vec::new(),
        }),
    }
}

fn unknown_machine() -> Machine {
    Machine {
        os: UNKNOWN.to_owned(),
        os_version: None,
        os_build: None,
        architecture: UNKNOWN.to_owned(),
        chip: None,
        model: None,
        logical_cores: 0,
        physical_cores: 0,
        memory_bytes: None,
    }
}

fn workload(found: &LlmBenchmark) -> Workload {
    Workload {
        digest: format!("llm-benchmark:p{}g{}", found.prompt_tokens, found.generation_tokens),
        kind: WorkloadKind::Generate,
        seq_lens: vec![found.prompt_tokens + found.generation_tokens],
        depths: None,
        cases: Vec::new(),
        inputs: None,
        states: None,
        batch: 1,
        mix: ProductionMix { seq_lens: Vec::new(), weights: Vec::new() },
        launches: 1,
        requests_per_seq_len: found.num_trials,
        warm_up_rounds: 1,
        generated_tokens: found.generation_tokens,
        seed: 0,
        clock_resolution_ns: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Metric;

    const RESULT: &str = r#"{
      "averages": {"generation_tps": 59.0, "prompt_tps": 1024.0}, "cache_hit": true, "generation_tokens": 1024,
      "model": "qwen3_0_6b_dynamic", "num_trials": 2, "prepare_seconds": 1.5, "prompt_tokens": 512,
      "trials": [{"gen_tps": 50.0, "prompt_tps": 1024.0}, {"gen_tps": 62.5, "prompt_tps": 1024.0}], "warmup_seconds": 20.0
    }"#;

    fn import(json: &str) -> Result<Report, ImportError> {
        llm_benchmark(json.as_bytes(), "2026-11-18T12:00:00Z".to_owned())
    }

    #[test]
    fn rates_come_back_as_they_were() {
        let report = import(RESULT).unwrap();
        assert_eq!(report.launches[0].requests[0].ttft_ms, 500.0);
        assert!(
            report.figure(Metric::Ttft, Some(1536)).is_some()
                && report.figure(Metric::Tps, Some(1536)).is_some()
        );
        assert_eq!(report.launches[0].requests[1].tokens_per_second(), Some(62.5));
        let load = report.launches[0].load.as_ref().unwrap();
        assert_eq!((load.load_ms, load.compiled_before), (1500.0, Some(true)));
        assert_eq!(report.header.measured_by.as_deref(), Some("Apple's llm-benchmark"));
        assert!(!report.runtime.is_for_checking());
        let text = serde_json::to_vec(&report).unwrap();
        assert_eq!(Report::parse(&text).unwrap().subject, report.subject);
    }

    #[test]
    fn results_of_older_versions_have_no_load() {
        let older = RESULT.replace("\"prepare_seconds\": 1.5,", "").replace("\"cache_hit\": true,", "");
        assert!(import(&older).unwrap().launches[0].load.is_none());
    }

    #[test]
    fn what_is_no_result_is_refused() {
        let refused = |from: &str, to: &str| import(&RESULT.replace(from, to)).unwrap_err().to_string();
        insta::assert_snapshot!(refused("\"num_trials\": 2", "\"num_trials\": 5"), @"is no result of `llm-benchmark --output-json`: it says 5 trials and lists 2");
        insta::assert_snapshot!(refused("\"gen_tps\": 50.0", "\"gen_tps\": 0"), @"is no result of `llm-benchmark --output-json`: `gen_tps` of trial 1 is 0");
        insta::assert_snapshot!(refused("\"prepare_seconds\": 1.5", "\"prepare_seconds\": -1"), @"is no result of `llm-benchmark --output-json`: `prepare_seconds` is -1");
        assert!(refused("\"trials\"", "\"tries\"").contains("missing field `trials`"));
        assert!(import("[").is_err() && import("").is_err());
    }
}
