//! A small report for tests.

pub use super::record::testing::verification;
use super::*;
use anemeter_base::hardware::{PowerSource, ProductionMix};
use anemeter_base::vocabulary::{
    ComputeUnits, KvForm, Numerics, Origin, RuntimeName, StateUse, WorkloadKind,
};

/// A request whose times are multiples of `scale`.
pub fn request(slot: usize, seq_len: usize, scale: f64) -> Request {
    Request {
        slot,
        seq_len,
        length: None,
        batch: 1,
        context_tokens: 0,
        prompt_tokens: seq_len - 16,
        generated_tokens: 5,
        started_ms: 100.0 * slot as f64,
        ttft_ms: 10.0 * scale,
        tokenizer_ms: Some(0.5 * scale),
        first_step_ms: 9.5 * scale,
        embed_ms: 0.25 * scale,
        prefill_ms: 9.0 * scale,
        sample_ms: 0.25 * scale,
        steps_ms: [2.0, 2.5, 2.0, 3.5].map(|ms| ms * scale).to_vec(),
        resident_bytes: Some(300_000_000 + 1000 * slot as u64),
        private_bytes: Some(40_000_000),
    }
}

/// A completed launch with two requests at each of two sequence lengths.
pub fn launch(index: usize, scale: f64) -> Launch {
    let at = |slot: usize, seq_len: usize, factor: f64| request(slot, seq_len, scale * factor);
    Launch {
        index,
        outcome: Outcome::Completed,
        conditions: conditions(),
        canary_ms: Some(1.5),
        load: Some(Load {
            open_ms: 1.25,
            compile_ms: None,
            compiled_before: None,
            load_ms: 20.0 * scale,
            first_prediction_ms: Some(12.0 * scale),
        }),
        memory: Some(Memory {
            at_load_bytes: Some(280_000_000),
            peak_bytes: Some(310_000_000),
            available_bytes: Some(8_000_000_000),
        }),
        energy_joules_per_token: Some(0.25),
        warm_up_requests: 2,
        requests: vec![at(2, 512, 4.0), at(3, 128, 1.0), at(4, 128, 1.5), at(5, 512, 4.5)],
        predictions: Vec::new(),
        stderr: None,
    }
}

fn conditions() -> Conditions {
    Conditions { load_average: Some(0.5), power_source: Some(PowerSource::Mains), ..Conditions::default() }
}

/// A case of the workload `predict`.
pub fn case(name: &str) -> Case {
    Case {
        name: name.to_owned(),
        package: "model.mlpackage".to_owned(),
        function: "main".to_owned(),
        shapes: vec![InputShape { input: "x".to_owned(), shape: vec![1, 3, 8, 8] }],
        samples: 1,
        flops: 1_000_000,
        weight_bytes: 40_000_000,
        activation_bytes: 1000,
    }
}

/// A prediction whose times are multiples of `scale`.
pub fn prediction(slot: usize, case: &str, scale: f64, first: bool) -> Prediction {
    Prediction {
        slot,
        case: case.to_owned(),
        sample: 0,
        first,
        started_ms: 10.0 * slot as f64,
        latency_ms: scale * if first { 6.0 } else { 2.0 + 0.1 * (slot % 7) as f64 },
        resident_bytes: Some(100_000_000 + 1000 * slot as u64),
        private_bytes: Some(20_000_000),
    }
}

/// The cases of [`predicted`].
pub const CASES: [&str; 2] = ["main 1x3x8x8", "main 1x3x16x16"];

/// A report of the workload `predict` with `launches` launches of 30 predictions of each of two cases.
pub fn predicted(launches: usize, scale: f64) -> Report {
    let predictions = |launch: usize| {
        let scale = scale * (1.0 + 0.002 * (launch % 5) as f64);
        let first = CASES.into_iter().enumerate().map(move |(i, case)| prediction(i, case, scale, true));
        let later = (0..60).map(move |i| prediction(i + 2, CASES[i % 2], scale * (1 + i % 2) as f64, false));
        first.chain(later).collect()
    };
    let launch = |index| Launch {
        requests: Vec::new(),
        predictions: predictions(index),
        energy_joules_per_token: None,
        ..launch(index, 1.0)
    };
    let mut report = with_launches((0..launches).map(launch).collect());
    report.subject = Subject {
        name: "resnet".to_owned(),
        origin: Origin::Adopted,
        architecture: String::new(),
        parameters: 0,
        precision: "stored".to_owned(),
        kv_form: None,
        kv_bytes_per_token: 0,
        weight_bytes_per_token: None,
        checkpoint_digest: String::new(),
        tokenizer_digest: None,
        ..subject()
    };
    let workload = &mut report.workload;
    (workload.kind, workload.states) = (WorkloadKind::Predict, Some(StateUse::Fresh));
    workload.cases = CASES.map(case).to_vec();
    workload.seq_lens = Vec::new();
    workload.mix = ProductionMix { seq_lens: Vec::new(), weights: Vec::new() };
    workload.inputs = Some(InputSource::MadeUp { seed: 7, ranges: Vec::new() });
    (workload.requests_per_seq_len, workload.generated_tokens) = (30, 0);
    (report.speed_limits, report.mix) = (Vec::new(), Vec::new());
    let bandwidth = (40.0, "probe".to_owned());
    report.rooflines =
        CASES.iter().filter_map(|name| Roofline::new(&case(name), &bandwidth, None, 2.3)).collect();
    report
}

/// A report with two completed launches and a failed one.
pub fn report() -> Report {
    let failed = Launch {
        outcome: Outcome::Failed(Failure::Crashed("signal 9".to_owned())),
        requests: vec![request(0, 128, 50.0)],
        stderr: Some("out of memory\n".to_owned()),
        ..launch(2, 1.0)
    };
    with_launches(vec![launch(0, 1.0), launch(1, 1.25), failed])
}

/// A report over given launches.
pub fn with_launches(launches: Vec<Launch>) -> Report {
    let weights = ProductionMix { seq_lens: vec![128, 512], weights: vec![0.5, 0.5] };
    let figures = figures(&launches);
    let mix = mix_figures(&figures, &weights);
    Report {
        schema: SCHEMA.to_owned(),
        header: header(),
        subject: subject(),
        runtime: RuntimeUse {
            name: RuntimeName::Cpu,
            compute_units: ComputeUnits::Cpu,
            threads: Some(2),
            numerics: Some(Numerics::Fast),
            slowed_down_pct: None,
            remarks: Vec::new(),
            engine: None,
        },
        machine: machine(),
        conditions_at_start: conditions(),
        conditions_at_end: conditions(),
        noise: vec![Noise { found: "frequency boost is on".to_owned(), advice: "turn boost off".to_owned() }],
        workload: workload(weights, launches.len()),
        launches,
        figures,
        mix,
        speed_limits: vec![SpeedLimit::new(128, 2_949_120, 269_000_000, (40.0, "probe".to_owned()), 60.0)],
        rooflines: Vec::new(),
        bandwidth: Some(MeasuredBandwidth { gb_per_s: 40.0, threads: 2, buffer_bytes: 256 << 20 }),
        overhead_us_per_step: Some(0.4),
        kv_choice: None,
        load_regimes: None,
        residency: None,
        residency_note: "the cpu runtime does not use the Neural Engine".to_owned(),
        predicted_residency: vec![PredictedResidency {
            package: "model.mlpackage".to_owned(),
            function: "decode".to_owned(),
            shape: None,
            share: Some(0.97),
            transitions: 2,
        }],
        soak: None,
        verification: None,
        quality: None,
        compression: Vec::new(),
    }
}

/// The weights of three layers and the ends around them, the middle layer in more bits.
pub fn compression() -> Vec<CompressedWeight> {
    let of = |name: String, layer: Option<usize>, bits: f64, snr_db: Option<f64>| CompressedWeight {
        name,
        layer,
        bits,
        snr_db,
    };
    let layer = |layer: usize, bits: f64, snr: f64| {
        [
            of(format!("layers_{layer}_attention_query_weight"), Some(layer), bits, Some(snr)),
            of(format!("layers_{layer}_mlp_down_weight"), Some(layer), bits, Some(snr + 0.5)),
        ]
    };
    let ends = [of("embedding_weight".to_owned(), None, 8.0, Some(41.0))];
    ends.into_iter()
        .chain(layer(0, 4.03, 20.5))
        .chain(layer(1, 6.1, 32.0))
        .chain(layer(2, 4.03, 21.0))
        .collect()
}

fn header() -> Header {
    Header {
        created: "2026-01-31T12:00:00Z".to_owned(),
        hardware_profile_key: "linux-test-2c-24gb".to_owned(),
        hardware_profile_listed: false,
        tool_version: "0.1.0".to_owned(),
        tool_digest: Some("xxh3:00".to_owned()),
        git: Some(Git { commit: "0123456789abcdef".to_owned(), dirty: false }),
        measured_by: None,
    }
}

fn subject() -> Subject {
    Subject {
        name: "tiny".to_owned(),
        architecture: "llama".to_owned(),
        parameters: 134_515_008,
        precision: "fp16".to_owned(),
        origin: Origin::Exported,
        kv_form: Some(KvForm::Io),
        kv_bytes_per_token: 23_040,
        package_bytes: 269_000_000,
        weight_bytes_per_token: Some(269_000_000),
        package_digests: vec!["xxh3:01".to_owned()],
        checkpoint_digest: "xxh3:02".to_owned(),
        tokenizer_digest: Some("xxh3:03".to_owned()),
    }
}

fn machine() -> Machine {
    Machine {
        os: "linux".to_owned(),
        os_version: Some("6.1.0".to_owned()),
        os_build: None,
        architecture: "x86_64".to_owned(),
        chip: Some("Test".to_owned()),
        model: None,
        logical_cores: 2,
        physical_cores: 2,
        memory_bytes: Some(24 << 30),
    }
}

fn workload(mix: ProductionMix, launches: usize) -> Workload {
    Workload {
        digest: "xxh3:04".to_owned(),
        kind: WorkloadKind::Generate,
        seq_lens: vec![128, 512],
        depths: None,
        cases: Vec::new(),
        inputs: None,
        states: None,
        batch: 1,
        mix,
        launches,
        requests_per_seq_len: 2,
        warm_up_rounds: 1,
        generated_tokens: 5,
        seed: 7,
        clock_resolution_ns: Some(30),
    }
}

/// What int8 weights of a small model lose, well within the limits.
pub fn quality_loss() -> QualityLoss {
    let text = TextLoss {
        text_digest: "xxh3:09".to_owned(),
        window: 512,
        tokens: 511,
        checkpoint: 20.0,
        packages: 20.14,
    };
    QualityLoss {
        kv: KvForm::Io,
        seq_len: 128,
        positions: 256,
        kl: Some(0.011),
        top1: 0.95,
        top5: 0.94,
        text: Some(text),
        limits: QualityLimits::default(),
    }
}
