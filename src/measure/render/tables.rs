//! The tables of a report, as text in cells.

use super::findings;
use super::number::{ABSENT, figure, maybe, range};
use super::predictions;
use super::table::{Align, Table, table, texts};
use super::throughput::throughput;
use crate::report::{Figure, Metric, Outcome, Report, Scope, Soak};
use crate::stats::Unit;
use anemeter_base::vocabulary::Origin;

/// All tables of a report that have rows.
pub fn tables(report: &Report) -> Vec<Table> {
    let all = [
        speed(report),
        throughput(report),
        predictions::latencies(report),
        mix(report),
        split(report),
        launch_figures(report),
        limits(report),
        predictions::rooflines(report),
        report.verification.as_ref().map_or_else(empty, findings::verification),
        report
            .quality
            .as_ref()
            .and_then(|found| found.perplexity.as_ref())
            .map_or_else(empty, findings::perplexity),
        report.quality.as_ref().map_or_else(empty, findings::quality),
        launches(report),
        predictions::inputs(report),
        predicted(report),
        report.soak.as_ref().map_or_else(empty, soak),
        noise(report),
        facts(report),
    ];
    all.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn empty() -> Table {
    table("", "", &[], Vec::new())
}

fn speed(report: &Report) -> Table {
    let row = |seq_len: usize| {
        let of = |metric| report.figure(metric, Some(seq_len));
        let p = |metric: Metric, pick: fn(&Figure) -> Option<f64>| {
            maybe(of(metric).and_then(pick), metric.unit())
        };
        let ci =
            |metric: Metric| range(of(metric).and_then(|figure| figure.p50_interval.as_ref()), metric.unit());
        let requests = of(Metric::Ttft).map_or(0, |figure| figure.summary.count);
        vec![
            seq_len.to_string(),
            requests.to_string(),
            p(Metric::Ttft, |f| f.summary.percentiles.p50),
            ci(Metric::Ttft),
            p(Metric::Ttft, |f| f.summary.percentiles.p95),
            p(Metric::Tps, |f| f.summary.percentiles.p50),
            ci(Metric::Tps),
            p(Metric::Tps, |f| f.summary.percentiles.p95),
            p(Metric::InterToken, |f| f.summary.percentiles.p50),
            p(Metric::InterToken, |f| f.summary.percentiles.p99),
        ]
    };
    let headings = [
        "seq_len",
        "requests",
        "TTFT p50",
        "95 % interval",
        "TTFT p95",
        "TPS p50",
        "95 % interval",
        "TPS p95",
        "inter-token p50",
        "inter-token p99",
    ];
    let note = "p95 and p99 are the slow tail, of rates too; a dash means too few samples. Intervals are of the \
                p50, from launches.";
    let measured =
        report.seq_lens().into_iter().filter(|&seq_len| report.figure(Metric::Ttft, Some(seq_len)).is_some());
    table("Speed", note, &headings, measured.map(row).collect())
}

fn mix(report: &Report) -> Table {
    let weights = report.workload.mix.seq_lens.iter().zip(&report.workload.mix.weights);
    let weights: Vec<String> = weights.map(|(seq_len, weight)| format!("{seq_len}: {weight}")).collect();
    let rows = report.mix.iter().map(|figure| {
        vec![
            figure.metric.to_string(),
            super::number::figure(figure.mix.value, figure.unit),
            super::number::figure(figure.mix.covered, Unit::Share),
        ]
    });
    let note = format!("From the p50 of each sequence length, weighted {}.", weights.join(", "));
    table("Production mix", &note, &["metric", "weighted", "of the mix measured"], rows.collect())
}

fn split(report: &Report) -> Table {
    let parts: Vec<Metric> = Metric::ALL.into_iter().filter(|metric| metric.is_part_of_ttft()).collect();
    let headings: Vec<&str> =
        std::iter::once("seq_len").chain(parts.iter().map(|metric| metric.label())).collect();
    let row = |seq_len: usize| {
        let cell = |metric: &Metric| {
            let figure = report.figure(*metric, Some(seq_len));
            maybe(figure.and_then(|figure| figure.summary.percentiles.p50), metric.unit())
        };
        std::iter::once(seq_len.to_string()).chain(parts.iter().map(cell)).collect()
    };
    let note = "p50 of each part. TTFT is tokenizer + first step; first step is embed + prefill + sample and what \
                lies between.";
    let measured =
        report.seq_lens().into_iter().filter(|&seq_len| report.figure(Metric::Ttft, Some(seq_len)).is_some());
    table("Where the time to the first token goes", note, &headings, measured.map(row).collect())
}

fn launch_figures(report: &Report) -> Table {
    let of_launches = report.figures.iter().filter(|figure| figure.metric.scope() == Scope::Launch);
    let rows = of_launches.map(|f| {
        let number = |value: f64| figure(value, f.unit);
        vec![
            f.metric.to_string(),
            f.launches.to_string(),
            maybe(f.summary.percentiles.p50, f.unit),
            range(f.p50_interval.as_ref(), f.unit),
            number(f.summary.minimum),
            number(f.summary.maximum),
        ]
    });
    let headings = ["metric", "launches", "p50", "95 % interval", "smallest", "largest"];
    table("Load and memory", "", &headings, rows.collect())
}

fn limits(report: &Report) -> Table {
    let rows = report.speed_limits.iter().map(|limit| {
        vec![
            limit.seq_len.to_string(),
            figure(limit.kv_bytes as f64, Unit::Bytes),
            figure(limit.weight_bytes_per_token as f64, Unit::Bytes),
            figure(limit.gb_per_s, Unit::GigabytesPerSecond),
            figure(limit.bound_tps, Unit::TokensPerSecond),
            figure(limit.share_of_bound, Unit::Share),
        ]
    });
    let source = report.speed_limits.first().map_or("", |limit| limit.bandwidth_source.as_str());
    let note = format!("Each token reads the weights once. Bandwidth: {source}.");
    let headings = ["seq_len", "KV cache", "weights per token", "bandwidth", "bound", "reached"];
    table("What memory allows", &note, &headings, rows.collect())
}

fn launches(report: &Report) -> Table {
    let rows = report.launches.iter().map(|launch| {
        let first = launch.load.as_ref().and_then(|load| load.first_prediction_ms);
        vec![
            launch.index.to_string(),
            launch.samples().to_string(),
            maybe(launch.canary_ms, Unit::Milliseconds),
            maybe(first, Unit::Milliseconds),
            launch.conditions.load_average.map_or(ABSENT.to_owned(), |load| format!("{load:.2}")),
            match &launch.outcome {
                Outcome::Completed => "completed".to_owned(),
                Outcome::Failed(failure) => failure.to_string(),
            },
        ]
    });
    let headings = ["launch", "requests", "canary", "first prediction", "load average", "outcome"];
    let note =
        "Each launch is a fresh process. The canary is a fixed computation: it shifts when the machine does.";
    let mut table = table("Launches", note, &headings, rows.collect());
    if let Some(outcome) = table.columns.last_mut() {
        outcome.align = Align::Left;
    }
    table
}

fn predicted(report: &Report) -> Table {
    let rows = report.predicted_residency.iter().map(|function| {
        vec![
            format!("{} {}", function.package, function.function),
            function.shape.clone().unwrap_or_else(|| ABSENT.to_owned()),
            maybe(function.share, Unit::Share),
            function.transitions.to_string(),
        ]
    });
    let headings = ["function", "shape", "share of cost on the Neural Engine", "changes of device"];
    let note = "Predicted by static rules; nothing here was measured.";
    table("Predicted placement", note, &headings, rows.collect())
}

fn soak(soak: &Soak) -> Table {
    let outcome = match &soak.outcome {
        Outcome::Completed => "completed".to_owned(),
        Outcome::Failed(failure) => failure.to_string(),
    };
    let memory =
        soak.memory.as_ref().map_or("no verdict: not told, or too few points".to_owned(), |memory| {
            let slope = range(Some(&memory.bytes_per_step.interval), Unit::Bytes);
            format!("{}: {slope} per step (99 % interval)", leak(memory.verdict))
        });
    let latency = soak.latency.as_ref().map_or("no verdict: too few points".to_owned(), |drift| {
        let verdict = if drift.throttled { "slows down" } else { "steady" };
        let (low, high) = (drift.interval.low, drift.interval.high);
        format!("{verdict}: late over early {:.3} ({low:.3} – {high:.3})", drift.late_over_early)
    });
    let rows = [
        ("steps", format!("{} of {} at {}", soak.steps, soak.steps_asked, soak.place().in_words())),
        ("outcome", outcome),
        ("memory", memory),
        ("speed", latency),
        ("not a number", soak.not_finite.clone().unwrap_or_else(|| "never".to_owned())),
    ];
    named("Long run", rows)
}

/// Values with their names.
fn named(title: &str, rows: impl IntoIterator<Item = (&'static str, String)>) -> Table {
    texts(title, &["", ""], rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect())
}

fn leak(verdict: crate::report::LeakVerdict) -> &'static str {
    match verdict {
        crate::report::LeakVerdict::Leak => "leaks",
        crate::report::LeakVerdict::Steady => "steady",
    }
}

fn noise(report: &Report) -> Table {
    let rows = report.noise.iter().map(|noise| vec![noise.found.clone(), noise.advice.clone()]);
    texts("What may have disturbed the measurement", &["found", "advice"], rows.collect())
}

fn facts(report: &Report) -> Table {
    let (header, machine, subject) = (&report.header, &report.machine, &report.subject);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| ABSENT.to_owned());
    let power = report.conditions_at_start.power_source;
    let git = header.git.as_ref().map(|git| {
        let state = if git.dirty { ", with changes" } else { "" };
        format!("{}{state}", git.commit)
    });
    let clock_step = report.workload.clock_resolution_ns.map(|ns| format!("{ns} ns"));
    let rows = [
        ("created", header.created.clone()),
        ("measured by", header.measured_by.clone().unwrap_or_default()),
        ("hardware profile", header.hardware_profile_key.clone()),
        ("chip", or_dash(&machine.chip)),
        ("cores", format!("{} ({} logical)", machine.physical_cores, machine.logical_cores)),
        ("memory", maybe(machine.memory_bytes.map(|bytes| bytes as f64), Unit::Bytes)),
        ("system", format!("{} {} {}", machine.os, or_dash(&machine.os_version), machine.architecture)),
        ("system build", or_dash(&machine.os_build)),
        ("power", power.map_or(ABSENT.to_owned(), |power| format!("{power:?}").to_lowercase())),
        ("model", model(report)),
        ("packages", format!("{}, {}", figure(subject.package_bytes as f64, Unit::Bytes), subject.precision)),
        ("package digests", subject.package_digests.join(" ")),
        ("checkpoint digest", subject.checkpoint_digest.clone()),
        ("tokenizer digest", or_dash(&subject.tokenizer_digest)),
        ("runtime", runtime(report)),
        ("Neural Engine residency", residency(report)),
        ("harness overhead", overhead(report)),
        ("call without prediction", call_overhead(report)),
        ("clock step", or_dash(&clock_step)),
        ("workload digest", report.workload.digest.clone()),
        ("seed", report.workload.seed.to_string()),
        ("anemeter", format!("{} {}", header.tool_version, or_dash(&header.tool_digest))),
        ("commit", or_dash(&git)),
    ];
    // What packages of others do not have.
    let given = rows.into_iter().filter(|(_, value)| !value.is_empty());
    named("Provenance", given.filter(|(name, _)| !(report.is_of_predictions() && is_of_text(name))))
}

/// Whether a fact is one of models that generate text.
fn is_of_text(name: &str) -> bool {
    name == "tokenizer digest"
}

fn model(report: &Report) -> String {
    let subject = &report.subject;
    let architecture = match subject.origin {
        Origin::Exported => subject.architecture.as_str(),
        Origin::Adopted => "made by others",
    };
    // Of packages that others made nobody counts them.
    let parameters = Some(subject.parameters).filter(|count| *count > 0);
    let parameters = parameters.map(|count| format!(", {count} parameters")).unwrap_or_default();
    format!("{}, {architecture}{parameters}", subject.name)
}

pub(super) fn runtime(report: &Report) -> String {
    let runtime = &report.runtime;
    let threads = runtime.threads.map_or(String::new(), |threads| match threads {
        1 => ", 1 thread".to_owned(),
        threads => format!(", {threads} threads"),
    });
    let numerics = runtime.numerics.as_ref().map_or(String::new(), |numerics| format!(", {numerics}"));
    let slowed =
        runtime.slowed_down_pct.map_or(String::new(), |by| format!(", SLOWED DOWN by {by} % on purpose"));
    let work = match report.subject.kv_form {
        Some(form) => format!("KV {form}, batch {}", report.workload.batch),
        None => "predictions one by one".to_owned(),
    };
    let engine = runtime.engine.as_ref();
    let engine = engine.map_or(String::new(), |engine| format!(" ({}, {})", engine.version, engine.platform));
    format!("{}{engine}{threads}{numerics}, {work}{slowed}", runtime.name)
}

/// What calls take without their predictions, where another program makes those.
fn call_overhead(report: &Report) -> String {
    let calls = report.runtime.engine.iter().flat_map(|engine| &engine.overheads);
    let calls = calls.map(|call| format!("{} {:.0} µs", call.function, call.microseconds));
    calls.collect::<Vec<_>>().join(", ")
}

pub(super) fn residency(report: &Report) -> String {
    match &report.residency {
        Some(residency) => {
            let share = figure(residency.share, Unit::Share);
            let kind = if residency.verified { "verified" } else { "planned, not verified" };
            format!("{share} ({kind})")
        }
        None => format!("none: {}", report.residency_note),
    }
}

fn overhead(report: &Report) -> String {
    report.overhead_us_per_step.map_or(ABSENT.to_owned(), |us| format!("{us:.2} µs per step"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn rows_have_a_cell_per_column() {
        let tables = tables(&testing::report());
        assert!(tables.len() >= 7);
        for table in &tables {
            assert!(!table.title.is_empty());
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len(), "{}", table.title);
            }
        }
    }

    #[test]
    fn a_report_without_good_launches_still_has_tables() {
        let failed = testing::report().launches.remove(2);
        let tables = tables(&testing::with_launches(vec![failed]));
        assert!(tables.iter().all(|table| table.title != "Speed"));
        let launches = tables.iter().find(|table| table.title == "Launches").unwrap();
        assert_eq!(launches.rows[0][5], "ended early: signal 9");
    }

    #[test]
    fn a_cpu_figure_is_never_a_neural_engine_figure() {
        let facts = facts(&testing::report());
        let row = facts.rows.iter().find(|row| row[0] == "Neural Engine residency").unwrap();
        assert_eq!(row[1], "none: the cpu runtime does not use the Neural Engine");
    }
}
