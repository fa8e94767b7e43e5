//! Synthetic reports: a fleet's, the same each time, as large as those of real measurements.

use anemeter::hardware::{Conditions, Machine, ProductionMix};
use anemeter::report::{
    Git, Header, Launch, Load, Memory, Outcome, Report, Request, RuntimeUse, SCHEMA, Subject, Workload,
    figures, mix_figures,
};
use anemeter::vocabulary::{ComputeUnits, KvForm, Numerics, Origin, RuntimeName, WorkloadKind};

const PROFILES: usize = 10;
const MODELS: usize = 50;
const BUILDS: usize = 10;
const LAUNCHES: usize = 8;
const REQUESTS: usize = 5;
const STEPS: usize = 31;
const SEQ_LENS: [usize; 2] = [512, 1024];

/// Builds of the system that so many reports are spread over.
pub(super) fn builds(count: usize) -> usize {
    count.div_ceil(PROFILES * MODELS).min(BUILDS)
}

/// One report of the fleet. Every profile measures every model before the next build of the system comes.
pub(super) fn report(number: usize) -> Report {
    let (profile, model) = (number % PROFILES, number / PROFILES % MODELS);
    let round = number / (PROFILES * MODELS);
    let build = round % BUILDS;
    let mut random = fastrand::Rng::with_seed(number as u64);
    let speed = (1.0 + profile as f64 / 10.0) * (1.0 + model as f64 / 50.0);
    let launches: Vec<Launch> = (0..LAUNCHES).map(|index| launch(index, speed, &mut random)).collect();
    let mix = ProductionMix { seq_lens: SEQ_LENS.to_vec(), weights: vec![0.5, 0.5] };
    let figures = figures(&launches);
    let mixed = mix_figures(&figures, &mix);
    Report {
        schema: SCHEMA.to_owned(),
        header: Header {
            created: format!(
                "{}-{:02}-{:02}T12:00:00Z",
                2026 + round / 336,
                round / 28 % 12 + 1,
                round % 28 + 1
            ),
            hardware_profile_key: format!("synthetic-{profile}"),
            hardware_profile_listed: false,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            tool_digest: None,
            git: Some(Git { commit: format!("{round:040x}"), dirty: false }),
            measured_by: None,
        },
        subject: subject(model),
        runtime: RuntimeUse {
            name: RuntimeName::Cpu,
            compute_units: ComputeUnits::Cpu,
            threads: Some(2),
            numerics: Some(Numerics::Fast),
            slowed_down_pct: None,
            remarks: vec!["synthetic: nothing was measured".to_owned()],
            engine: None,
        },
        machine: machine(profile, build),
        conditions_at_start: Conditions::default(),
        conditions_at_end: Conditions::default(),
        noise: Vec::new(),
        workload: workload(mix),
        launches,
        figures,
        mix: mixed,
        speed_limits: Vec::new(),
        rooflines: Vec::new(),
        bandwidth: None,
        overhead_us_per_step: None,
        kv_choice: None,
        load_regimes: None,
        residency: None,
        residency_note: "synthetic: nothing was measured".to_owned(),
        predicted_residency: Vec::new(),
        soak: None,
        verification: None,
        quality: None,
        compression: Vec::new(),
    }
}

fn subject(model: usize) -> Subject {
    Subject {
        name: format!("model-{model:02}"),
        architecture: "llama".to_owned(),
        parameters: 134_515_008,
        precision: "fp16".to_owned(),
        origin: Origin::Exported,
        kv_form: Some(KvForm::Io),
        kv_bytes_per_token: 23_040,
        package_bytes: 269_000_000,
        weight_bytes_per_token: Some(269_000_000),
        package_digests: vec![format!("xxh3:{model:032x}")],
        checkpoint_digest: format!("xxh3:{model:032x}"),
        tokenizer_digest: None,
    }
}

fn machine(profile: usize, build: usize) -> Machine {
    Machine {
        os: "synthetic".to_owned(),
        os_version: Some("1".to_owned()),
        os_build: Some(format!("1A{build:02}")),
        architecture: "none".to_owned(),
        chip: Some(format!("chip {profile}")),
        model: None,
        logical_cores: 8,
        physical_cores: 8,
        memory_bytes: Some(16 << 30),
    }
}

fn workload(mix: ProductionMix) -> Workload {
    Workload {
        digest: "xxh3:04".to_owned(),
        kind: WorkloadKind::Generate,
        seq_lens: SEQ_LENS.to_vec(),
        depths: None,
        cases: Vec::new(),
        inputs: None,
        states: None,
        batch: 1,
        mix,
        launches: LAUNCHES,
        requests_per_seq_len: REQUESTS,
        warm_up_rounds: 1,
        generated_tokens: STEPS + 1,
        seed: 7,
        clock_resolution_ns: Some(30),
    }
}

fn launch(index: usize, speed: f64, random: &mut fastrand::Rng) -> Launch {
    let offset = 1.0 + 0.01 * random.f64();
    let slots = 0..REQUESTS * SEQ_LENS.len();
    let requests = slots.map(|slot| request(slot, SEQ_LENS[slot % SEQ_LENS.len()], speed * offset, random));
    Launch {
        index,
        outcome: Outcome::Completed,
        conditions: Conditions::default(),
        canary_ms: Some(1.5),
        load: Some(Load {
            open_ms: 1.25,
            compile_ms: None,
            compiled_before: None,
            load_ms: 20.0,
            first_prediction_ms: Some(12.0),
        }),
        memory: Some(Memory {
            at_load_bytes: Some(280_000_000),
            peak_bytes: Some(310_000_000),
            available_bytes: Some(8_000_000_000),
        }),
        energy_joules_per_token: None,
        warm_up_requests: 2,
        requests: requests.collect(),
        predictions: Vec::new(),
        stderr: None,
    }
}

fn request(slot: usize, seq_len: usize, speed: f64, random: &mut fastrand::Rng) -> Request {
    let mut time = |ms: f64| ms * speed * (1.0 + 0.02 * random.f64());
    let (tokenizer_ms, embed_ms, prefill_ms, sample_ms) =
        (time(0.3), time(0.2), time(seq_len as f64 / 40.0), time(0.1));
    let first_step_ms = embed_ms + prefill_ms + sample_ms;
    Request {
        slot,
        seq_len,
        length: None,
        batch: 1,
        context_tokens: 0,
        prompt_tokens: seq_len - 64,
        generated_tokens: STEPS + 1,
        started_ms: 1000.0 * slot as f64,
        ttft_ms: tokenizer_ms + first_step_ms,
        tokenizer_ms: Some(tokenizer_ms),
        first_step_ms,
        embed_ms,
        prefill_ms,
        sample_ms,
        steps_ms: (0..STEPS).map(|_| time(8.0)).collect(),
        resident_bytes: Some(300_000_000),
        private_bytes: Some(40_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_the_same_each_time_and_differs_from_the_next() {
        assert_eq!(report(7), report(7));
        assert_ne!(report(7).launches, report(8).launches);
        let (first, later) = (report(0), report(PROFILES * MODELS));
        assert_eq!(first.subject, later.subject);
        assert_ne!(first.machine.os_build, later.machine.os_build);
    }
}
