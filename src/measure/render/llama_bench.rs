//! The JSON lines of llama-bench, for tools that read those.
//!
//! A report of a workload `generate` has two tests per prompt length: `pp`, which takes the prompt in, and `tg`, which
//! generates after it. Fields have llama-bench's names and units. Its options that have no counterpart here are neutral and
//! never null: llama.cpp's `compare-llama-bench.py` demands all of them, and joins rows in which all of them are equal.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{RenderError, Result};
use crate::report::{Outcome, Report, Request};

/// One line.
#[derive(Serialize)]
struct Test<'a> {
    build_commit: &'a str,
    cpu_info: &'a str,
    gpu_info: &'a str,
    backends: &'a str,
    model_filename: &'a str,
    model_type: String,
    model_size: u64,
    model_n_params: u64,
    n_threads: usize,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    test_time: &'a str,
    avg_ns: u64,
    stddev_ns: u64,
    avg_ts: f64,
    stddev_ts: f64,
    samples_ns: Vec<u64>,
    samples_ts: Vec<f64>,
    #[serde(flatten)]
    options: Options,
}

/// Options of llama-bench that mean nothing here. Versions of it differ in which they have.
#[derive(Serialize)]
struct Options {
    build_number: u64,
    n_batch: u64,
    n_ubatch: u64,
    cpu_mask: &'static str,
    cpu_strict: bool,
    poll: u64,
    type_k: &'static str,
    type_v: &'static str,
    n_gpu_layers: u64,
    n_cpu_moe: u64,
    split_mode: &'static str,
    main_gpu: u64,
    no_kv_offload: bool,
    flash_attn: bool,
    tensor_split: &'static str,
    tensor_buft_overrides: &'static str,
    use_mmap: bool,
    load_mode: &'static str,
    embeddings: bool,
    no_op_offload: u64,
    fit_target: u64,
    fit_min_ctx: u64,
}

/// Every number 0, everything off, and llama-bench's words for nothing.
const NEUTRAL: Options = Options {
    build_number: 0,
    n_batch: 0,
    n_ubatch: 0,
    cpu_mask: "0x0",
    cpu_strict: false,
    poll: 0,
    type_k: "",
    type_v: "",
    n_gpu_layers: 0,
    n_cpu_moe: 0,
    split_mode: "none",
    main_gpu: 0,
    no_kv_offload: false,
    flash_attn: false,
    tensor_split: "0.00",
    tensor_buft_overrides: "none",
    use_mmap: false,
    load_mode: "none",
    embeddings: false,
    no_op_offload: 0,
    fit_target: 0,
    fit_min_ctx: 0,
};

/// Times and rates of the repetitions of a test.
#[derive(Default)]
struct Samples {
    ms: Vec<f64>,
    rates: Vec<f64>,
}

impl Samples {
    fn add(&mut self, ms: f64, tokens: usize) {
        if ms > 0.0 {
            self.ms.push(ms);
            self.rates.push(tokens as f64 * 1e3 / ms);
        }
    }
}

/// Every test of some reports, a line each; an error if a report has no tokens.
pub fn llama_bench(reports: &[Report]) -> Result<String> {
    let mut text = String::new();
    for report in reports {
        let tests = tests(report);
        if tests.is_empty() {
            let why = format!("{} has no requests that generate tokens", report.subject.name);
            return Err(RenderError::new("JSON lines of llama-bench", why));
        }
        for ((n_prompt, n_gen, n_depth), samples) in tests {
            let line = line(report, (n_prompt, n_gen, n_depth), &samples);
            let line = serde_json::to_string(&line);
            text += &line.map_err(|error| RenderError::new("JSON lines of llama-bench", error))?;
            text.push('\n');
        }
    }
    Ok(text)
}

/// Tests by prompt, generated tokens and depth.
fn tests(report: &Report) -> BTreeMap<(usize, usize, usize), Samples> {
    let mut tests: BTreeMap<(usize, usize, usize), Samples> = BTreeMap::new();
    let completed = report.launches.iter().filter(|launch| launch.outcome == Outcome::Completed);
    for request in completed.flat_map(|launch| &launch.requests) {
        let Request { context_tokens, prompt_tokens, batch, embed_ms, prefill_ms, steps_ms, .. } = request;
        let prompt = tests.entry((*prompt_tokens, 0, *context_tokens)).or_default();
        prompt.add(embed_ms + prefill_ms, prompt_tokens * batch);
        if !steps_ms.is_empty() {
            let depth = context_tokens + prompt_tokens;
            let generated = tests.entry((0, steps_ms.len(), depth)).or_default();
            generated.add(steps_ms.iter().sum(), steps_ms.len() * batch);
        }
    }
    tests.retain(|_, samples| !samples.ms.is_empty());
    tests
}

fn line<'a>(
    report: &'a Report,
    (n_prompt, n_gen, n_depth): (usize, usize, usize),
    samples: &Samples,
) -> Test<'a> {
    let ns: Vec<f64> = samples.ms.iter().map(|ms| ms * 1e6).collect();
    let (subject, runtime) = (&report.subject, &report.runtime);
    let whole = |value: f64| value.round() as u64;
    Test {
        build_commit: report.header.git.as_ref().map_or("unknown", |git| &git.commit),
        cpu_info: report.machine.chip.as_deref().unwrap_or("unknown"),
        gpu_info: "",
        backends: match runtime.name {
            anemeter_base::vocabulary::RuntimeName::Cpu => "CPU",
            anemeter_base::vocabulary::RuntimeName::CoreAi => "Core AI",
            _ => "Core ML",
        },
        model_filename: &subject.name,
        model_type: format!("{} {}", subject.architecture, subject.precision).trim().to_owned(),
        model_size: subject.package_bytes,
        model_n_params: subject.parameters,
        // Core ML and Core AI do not say.
        n_threads: runtime.threads.unwrap_or(0),
        n_prompt,
        n_gen,
        n_depth,
        test_time: &report.header.created,
        avg_ns: whole(mean(&ns)),
        stddev_ns: whole(deviation(&ns)),
        avg_ts: mean(&samples.rates),
        stddev_ts: deviation(&samples.rates),
        samples_ns: ns.iter().map(|&ns| whole(ns)).collect(),
        samples_ts: samples.rates.clone(),
        options: NEUTRAL,
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Of a sample, as llama-bench computes it; 0 of a single value.
fn deviation(values: &[f64]) -> f64 {
    let (mean, count) = (mean(values), values.len());
    if count < 2 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn each_prompt_length_has_a_test_of_the_prompt_and_one_of_generation() {
        let mut report = testing::report();
        report.launches.truncate(1);
        let request = |prefill_ms, step| Request {
            batch: 2,
            context_tokens: 40,
            prompt_tokens: 100,
            embed_ms: 1.0,
            prefill_ms,
            steps_ms: vec![step; 4],
            ..testing::request(0, 128, 1.0)
        };
        report.launches[0].requests = vec![request(9.0, 5.0), request(19.0, 10.0)];
        let text = llama_bench(std::slice::from_ref(&report)).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        let (generated, prompt) = (&lines[0], &lines[1]);
        let shape = |line: &serde_json::Value| ["n_prompt", "n_gen", "n_depth"].map(|key| line[key].as_u64());
        assert_eq!(shape(prompt), [Some(100), Some(0), Some(40)]);
        assert_eq!(shape(generated), [Some(0), Some(4), Some(140)]);
        assert_eq!(prompt["samples_ns"], serde_json::json!([10_000_000, 20_000_000]));
        assert_eq!(prompt["samples_ts"], serde_json::json!([20_000.0, 10_000.0]));
        assert_eq!(
            (prompt["avg_ns"].as_u64(), prompt["avg_ts"].as_f64()),
            (Some(15_000_000), Some(15_000.0))
        );
        assert_eq!(generated["samples_ts"], serde_json::json!([400.0, 200.0]));
        let deviation = generated["stddev_ts"].as_f64().unwrap();
        assert!((deviation - 20_000f64.sqrt()).abs() < 1e-9, "{deviation}");
    }

    /// What `compare-llama-bench.py` demands, in its versions of 2025 and 2026.
    const COMPARED: &str = "cpu_info gpu_info backends n_gpu_layers n_cpu_moe tensor_buft_overrides model_filename model_type \
        n_batch n_ubatch embeddings cpu_mask cpu_strict poll n_threads type_k type_v use_mmap load_mode no_kv_offload \
        split_mode main_gpu tensor_split flash_attn n_prompt n_gen n_depth fit_target fit_min_ctx build_commit test_time avg_ts";

    #[test]
    fn rows_can_be_joined_by_every_key_that_is_compared() {
        let mut report = testing::report();
        report.runtime.threads = None;
        report.header.git = None;
        let text = llama_bench(&[report]).unwrap();
        assert!(!text.is_empty());
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let absent = |key: &&str| line[*key].is_null();
            assert_eq!(COMPARED.split_whitespace().filter(absent).collect::<Vec<_>>(), [""; 0]);
        }
    }

    #[test]
    fn reports_without_tokens_have_no_tests() {
        let error = llama_bench(&[testing::predicted(1, 1.0)]).unwrap_err().to_string();
        assert!(error.contains("has no requests that generate tokens"), "{error}");
    }
}
