//! Sessions on a simulated machine, as reports that the gate takes for real ones.

use anemeter::report::{Launch, Report, Request};
use anyhow::Result;
use serde_json::json;

use super::machine::Machine;

/// Sequence lengths of the simulated workload, with the time to the first token and that of a step in milliseconds.
const SEQ_LENS: [(usize, f64, f64); 4] =
    [(512, 190.0, 18.0), (1024, 380.0, 19.0), (2048, 800.0, 21.0), (4096, 1700.0, 25.0)];
const REQUESTS_PER_SEQ_LEN: usize = 5;
/// Tokens that a request generates.
const TOKENS: usize = 32;
/// Milliseconds to start a process and load a model.
const START_MS: f64 = 2500.0;
/// Part of an offset that all metrics and sequence lengths share.
const COMMON: f64 = 0.7;

/// A true regression: times of one metric at one sequence length multiplied by a factor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Regression {
    /// Whether it hits decoding rather than the first token.
    pub(crate) decoding: bool,
    /// Which of the sequence lengths.
    pub(crate) seq_len: usize,
    /// The factor on times.
    pub(crate) factor: f64,
}

impl Regression {
    /// None at all.
    pub(crate) const NONE: Regression = Regression { decoding: false, seq_len: 0, factor: 1.0 };

    /// A regression by so many per cent, somewhere.
    pub(crate) fn somewhere(pct: f64, random: &mut fastrand::Rng) -> Regression {
        let decoding = random.bool();
        let factor = if decoding { 1.0 / (1.0 - pct / 100.0) } else { 1.0 + pct / 100.0 };
        Regression { decoding, seq_len: random.usize(..SEQ_LENS.len()), factor }
    }
}

/// A session: an offset of its own, heat that builds up, and launches one after another.
pub(crate) struct Session<'a> {
    machine: &'a Machine,
    random: fastrand::Rng,
    offsets: Offsets,
    launches: usize,
    phase: f64,
}

/// Offsets of the first token and of decoding, per sequence length.
type Offsets = [[f64; SEQ_LENS.len()]; 2];

impl<'a> Session<'a> {
    pub(crate) fn new(machine: &'a Machine, seed: u64) -> Session<'a> {
        let mut random = fastrand::Rng::with_seed(seed);
        let offsets = offsets(machine.session, &mut random);
        let phase = random.f64();
        Session { machine, random, offsets, launches: 0, phase }
    }

    /// The next launch, and the minutes that it takes.
    pub(crate) fn launch(&mut self, regression: Regression) -> (Launch, f64) {
        let Machine { launch, heat, slow_mode, oscillation, canary, .. } = *self.machine;
        let place = self.launches as f64;
        self.launches += 1;
        let mut offsets_now = offsets(launch, &mut self.random);
        let slow = if self.random.f64() < slow_mode.0 { slow_mode.1 } else { 0.0 };
        let warm = heat * (1.0 - (-place / 6.0).exp());
        let wave = oscillation * (std::f64::consts::TAU * (place / 4.1 + self.phase)).sin();
        for (row, session) in offsets_now.iter_mut().zip(&self.offsets) {
            for (offset, session) in row.iter_mut().zip(session) {
                *offset += session + slow + warm + wave;
            }
        }
        let (requests, minutes) = self.requests(&offsets_now, regression);
        let canary_ms = 1.5 * (canary * normal(&mut self.random) + 0.3 * self.offsets[0][0]).exp();
        (launch_of(self.launches - 1, canary_ms, requests), minutes)
    }

    /// Requests of a launch in rounds over all sequence lengths.
    fn requests(&mut self, offsets: &Offsets, regression: Regression) -> (Vec<Request>, f64) {
        let machine = self.machine;
        let (mut memory, mut burst, mut total) = (0.0, 0.0, START_MS);
        let mut requests = Vec::with_capacity(REQUESTS_PER_SEQ_LEN * SEQ_LENS.len());
        for round in 0..=REQUESTS_PER_SEQ_LEN {
            let mut order = [0, 1, 2, 3];
            self.random.shuffle(&mut order);
            for seq_len in order {
                let fresh = (1.0 - machine.request_memory.powi(2)).sqrt() * normal(&mut self.random);
                memory = machine.request_memory * memory + fresh;
                if burst < 1.0 && self.random.f64() < machine.bursts.0 {
                    burst = 1.0 + machine.bursts.1 * exponential(&mut self.random);
                }
                let loaded = if burst >= 1.0 { machine.bursts.2 } else { 0.0 };
                burst = (burst - 1.0).max(0.0);
                let (length, ttft, step) = SEQ_LENS[seq_len];
                let time = |decoding: bool, base: f64, random: &mut fastrand::Rng| {
                    let own = if decoding { 0.6 } else { 1.0 };
                    let outlier = random.f64() < machine.outliers.0;
                    let tail = if outlier { machine.outliers.1 * exponential(random) } else { 0.0 };
                    let noise = own * machine.request * memory + tail + loaded;
                    let hit = decoding == regression.decoding && seq_len == regression.seq_len;
                    let factor = if hit { regression.factor } else { 1.0 };
                    let ms = base * factor * (offsets[usize::from(decoding)][seq_len] + noise).exp();
                    (ms / machine.tick_ms).round().max(1.0) * machine.tick_ms
                };
                let first = time(false, ttft, &mut self.random);
                let rest = time(true, step * (TOKENS - 1) as f64, &mut self.random);
                total += first + rest;
                if round > 0 {
                    requests.push(request(requests.len(), length, first, rest));
                }
            }
        }
        (requests, total / 60_000.0)
    }
}

fn offsets(deviation: f64, random: &mut fastrand::Rng) -> Offsets {
    let common = COMMON.sqrt() * normal(random);
    [(); 2].map(|()| {
        let own = (1.0 - COMMON).sqrt() * normal(random);
        [(); SEQ_LENS.len()]
            .map(|()| deviation * (common + 0.9 * own + 0.3 * (1.0 - COMMON).sqrt() * normal(random)))
    })
}

fn normal(random: &mut fastrand::Rng) -> f64 {
    let (radius, angle) = ((-2.0 * (1.0 - random.f64()).ln()).sqrt(), random.f64());
    radius * (std::f64::consts::TAU * angle).cos()
}

fn exponential(random: &mut fastrand::Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

fn request(slot: usize, seq_len: usize, ttft_ms: f64, decoding_ms: f64) -> Request {
    Request {
        slot,
        seq_len,
        length: None,
        batch: 1,
        context_tokens: 0,
        prompt_tokens: seq_len - TOKENS,
        generated_tokens: TOKENS,
        started_ms: 0.0,
        ttft_ms,
        tokenizer_ms: None,
        first_step_ms: ttft_ms,
        embed_ms: 0.0,
        prefill_ms: ttft_ms,
        sample_ms: 0.0,
        steps_ms: vec![decoding_ms],
        resident_bytes: None,
        private_bytes: None,
    }
}

fn launch_of(index: usize, canary_ms: f64, requests: Vec<Request>) -> Launch {
    Launch {
        index,
        outcome: anemeter::report::Outcome::Completed,
        conditions: anemeter::hardware::Conditions::default(),
        canary_ms: Some(canary_ms),
        load: None,
        memory: None,
        energy_joules_per_token: None,
        warm_up_requests: SEQ_LENS.len(),
        requests,
        predictions: Vec::new(),
        stderr: None,
    }
}

/// A report without launches.
pub(crate) fn blank() -> Result<Report> {
    let seq_lens = SEQ_LENS.map(|(seq_len, _, _)| seq_len);
    let report = json!({
        "schema": "anemeter.report/1",
        "header": {
            "created": "2026-01-31T12:00:00Z", "hardware_profile_key": "simulated",
            "hardware_profile_listed": false, "tool_version": "0.0.0", "tool_digest": null, "git": null,
        },
        "subject": {
            "name": "simulated", "architecture": "llama", "parameters": 1_000_000_000, "precision": "int8",
            "kv_form": "io", "kv_bytes_per_token": 1, "package_bytes": 1, "weight_bytes_per_token": null,
            "package_digests": [], "checkpoint_digest": "", "tokenizer_digest": null,
        },
        "runtime": { "name": "cpu", "compute_units": "cpu", "threads": null, "numerics": null },
        "machine": {
            "os": "none", "os_version": null, "os_build": null, "architecture": "none", "chip": null,
            "model": null, "logical_cores": 1, "physical_cores": 1, "memory_bytes": null,
        },
        "conditions_at_start": {}, "conditions_at_end": {}, "noise": [],
        "workload": {
            "digest": "simulated", "seq_lens": seq_lens, "batch": 1,
            "mix": { "seq_lens": seq_lens, "weights": [0.4, 0.4, 0.15, 0.05] },
            "launches": 10, "requests_per_seq_len": REQUESTS_PER_SEQ_LEN, "warm_up_rounds": 1,
            "generated_tokens": TOKENS, "seed": 1, "clock_resolution_ns": 1,
        },
        "launches": [], "figures": [], "mix": [], "speed_limits": [], "bandwidth": null,
        "overhead_us_per_step": null, "residency": null, "residency_note": "simulated",
        "predicted_residency": [], "soak": null,
    });
    Ok(serde_json::from_value(report)?)
}

#[cfg(test)]
mod tests {
    use super::super::machine::MACHINES;
    use super::*;

    #[test]
    fn a_seed_fixes_a_session_and_a_regression_hits_one_metric_at_one_seq_len() {
        let launch = |regression| Session::new(&MACHINES[1], 7).launch(regression).0;
        let plain = launch(Regression::NONE);
        assert_eq!(plain, launch(Regression::NONE));
        let hit = launch(Regression { decoding: false, seq_len: 1, factor: 1.08 });
        for (before, after) in plain.requests.iter().zip(&hit.requests) {
            let expected = if before.seq_len == 1024 { 1.08 } else { 1.0 };
            assert!((after.ttft_ms / before.ttft_ms - expected).abs() < 1e-4);
            assert_eq!(before.steps_ms, after.steps_ms);
        }
    }

    #[test]
    fn launches_differ_as_much_as_the_machine_says() {
        for machine in &MACHINES[..3] {
            let mut logs = Vec::new();
            for seed in 0..400 {
                let mut session = Session::new(machine, seed);
                let first = |l: Launch| {
                    l.requests.iter().find(|r| r.seq_len == 512).map_or(0.0, |r| r.steps_ms[0].ln())
                };
                let pair = [(); 2].map(|()| first(session.launch(Regression::NONE).0));
                logs.push(pair[1] - pair[0]);
            }
            logs.sort_by(f64::total_cmp);
            let spread = (logs[360] - logs[40]) / 2.56 / 2f64.sqrt();
            let expected = machine.launch.hypot(0.6 * machine.request);
            assert!((0.7..1.5).contains(&(spread / expected)), "{} {spread} {expected}", machine.name);
        }
    }
}
