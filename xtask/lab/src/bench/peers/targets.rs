//! What this runtime is to reach: ratios round by round, judged only if both sides were measured.

use super::rounds::{Run, Series};
use super::sample::{Sample, Spread};
use super::workload::LONG;

const LEAST_DECODE: f64 = 1.8;
const LEAST_FOUR_BIT: f64 = 1.3;
const LEAST_BANDWIDTH: f64 = 0.65;
const LEAST_PREFILL: f64 = 1.1;
/// Beside engines with as many bits, in a prompt and on a busy machine.
const LEAST_AHEAD: f64 = 1.0;
/// How many times as fast as another form of as many bits the plain one may be.
const MOST_OF_PLAIN: f64 = 1.3;
const LEAST_PRODUCTS: f64 = 0.8;
pub(super) const MOST_MEMORY: f64 = 1.15;
const MOST_FIRST_TOKEN: f64 = 1.0;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    Met,
    Missed,
    /// And why not.
    NotMeasured(String),
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) what: String,
    /// The ratio, if it was measured.
    pub(super) measured: Option<Spread>,
    pub(super) wanted: Wanted,
    pub(super) verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

/// Ratios, one per round.
type Ratios = Result<Vec<f64>, String>;

/// Judges by all targets.
pub(super) fn judge(run: &Run) -> Vec<Target> {
    if run.is_busy { judge_busy(run) } else { judge_quiet(run) }
}

fn decode(run: &Run, ours: &str, peer: &str, wanted: Wanted) -> Target {
    target(format!("decode: {ours} / {peer}"), ratios(run, ours, peer, Sample::decode_speed), wanted)
}

fn prefill(run: &Run, ours: &str, peer: &str, wanted: Wanted) -> Target {
    let what = format!("prefill of {LONG}: {ours} / {peer}");
    target(what, ratios(run, ours, peer, Sample::prefill_speed), wanted)
}

/// Ahead of the engines that we are ahead of when all is quiet.
fn judge_busy(run: &Run) -> Vec<Target> {
    let pairs = [
        ("anemeter fp16", "llama.cpp F16"),
        ("anemeter int8", "llama.cpp Q8_0"),
        ("anemeter stored Q8_0", "llama.cpp Q8_0"),
        ("anemeter int4:block=32", "ONNX Runtime GenAI int4"),
        ("anemeter lut4:group=16", "ONNX Runtime GenAI int4"),
        ("anemeter int4:block=32 for every weight", "ONNX Runtime GenAI int4"),
        ("anemeter lut4:group=16 for every weight", "ONNX Runtime GenAI int4"),
    ];
    pairs.into_iter().map(|(ours, peer)| decode(run, ours, peer, Wanted::AtLeast(LEAST_AHEAD))).collect()
}

fn judge_quiet(run: &Run) -> Vec<Target> {
    let decode = |ours: &str, peer: &str, least: f64| decode(run, ours, peer, Wanted::AtLeast(least));
    let first = ratios(run, "anemeter fp16", "llama.cpp F16", |sample| sample.first_token_seconds);
    let mut targets = vec![
        decode("anemeter fp16", "llama.cpp F16", LEAST_DECODE),
        decode("anemeter int8", "llama.cpp Q8_0", LEAST_DECODE),
        decode("anemeter int4:block=32", "ONNX Runtime GenAI int4", LEAST_FOUR_BIT),
        decode("anemeter lut4:group=16", "ONNX Runtime GenAI int4", LEAST_FOUR_BIT),
        decode("anemeter int4:block=32 for every weight", "ONNX Runtime GenAI int4", LEAST_FOUR_BIT),
        decode("anemeter lut4:group=16 for every weight", "ONNX Runtime GenAI int4", LEAST_FOUR_BIT),
        target(
            "decode: anemeter fp16 / what memory allows".to_owned(),
            bandwidth(run),
            Wanted::AtLeast(LEAST_BANDWIDTH),
        ),
        prefill(run, "anemeter fp16", "llama.cpp F16", Wanted::AtLeast(LEAST_PREFILL)),
        prefill(run, "anemeter int8", "llama.cpp Q8_0", Wanted::AtLeast(LEAST_AHEAD)),
        prefill(run, "anemeter stored Q8_0", "llama.cpp Q8_0", Wanted::AtLeast(LEAST_AHEAD)),
        prefill(run, "anemeter int4:block=32", "llama.cpp Q4_0", Wanted::AtLeast(LEAST_AHEAD)),
        prefill(run, "anemeter stored Q4_0", "llama.cpp Q4_0", Wanted::AtLeast(LEAST_AHEAD)),
        target(
            format!("prefill of {LONG}: anemeter fp16 / fp32 products of the fastest library"),
            products(run),
            Wanted::AtLeast(LEAST_PRODUCTS),
        ),
    ];
    for (plain, form) in [
        ("anemeter int4:block=32", "anemeter int4:asym"),
        ("anemeter int4:block=32", "anemeter stored Q4_1"),
        ("anemeter int4:block=32", "anemeter stored Q4_0"),
        ("anemeter int8", "anemeter stored Q8_0"),
    ] {
        for judge in [self::decode, prefill] {
            targets.push(judge(run, plain, form, Wanted::AtMost(MOST_OF_PLAIN)));
        }
    }
    for ours in ["anemeter fp16", "anemeter int8", "anemeter int4:block=32", "anemeter lut4:group=16"] {
        let what = format!("peak memory: {ours} / its weights");
        targets.push(target(what, run.series(ours).map(Series::memory), Wanted::AtMost(MOST_MEMORY)));
    }
    targets.push(target(
        "load to first token: anemeter fp16 / llama.cpp F16".to_owned(),
        first,
        Wanted::AtMost(MOST_FIRST_TOKEN),
    ));
    targets
}

pub(super) fn target(what: String, ratios: Ratios, wanted: Wanted) -> Target {
    let measured = match ratios {
        Ok(ratios) if !ratios.is_empty() => Spread::of(ratios),
        Ok(_) => {
            return Target {
                what,
                measured: None,
                wanted,
                verdict: Verdict::NotMeasured("no rounds".into()),
            };
        }
        Err(why) => return Target { what, measured: None, wanted, verdict: Verdict::NotMeasured(why) },
    };
    let met = match wanted {
        Wanted::AtLeast(least) => measured.median >= least,
        Wanted::AtMost(most) => measured.median <= most,
    };
    Target {
        what,
        measured: Some(measured),
        wanted,
        verdict: if met { Verdict::Met } else { Verdict::Missed },
    }
}

fn ratios(run: &Run, ours: &str, peer: &str, figure: fn(&Sample) -> f64) -> Ratios {
    let (ours, peer) = (run.series(ours)?, run.series(peer)?);
    Ok(ours.samples.iter().zip(&peer.samples).map(|(ours, peer)| figure(ours) / figure(peer)).collect())
}

/// Every token reads all weights once.
fn bandwidth(run: &Run) -> Ratios {
    let Series { weight_bytes, samples } = run.series("anemeter fp16")?;
    let share = |(sample, bytes): (&Sample, f64)| sample.decode_speed() * *weight_bytes as f64 / bytes;
    Ok(samples.iter().zip(run.limits.iter().map(|limits| limits.machine.bytes)).map(share).collect())
}

/// Every token multiplies and adds once per weight of the layers; attention and the head, at one position, not counted.
fn products(run: &Run) -> Ratios {
    let operations = 2.0 * run.layer_parameters as f64;
    let limits: Option<Vec<f64>> = run.limits.iter().map(|limits| Some(limits.products?.best())).collect();
    let limits = limits.ok_or("fp32 products could not be computed")?;
    let samples = &run.series("anemeter fp16")?.samples;
    Ok(samples
        .iter()
        .zip(limits)
        .map(|(sample, limit)| sample.prefill_speed() * operations / limit)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::rounds::testing;
    use super::*;

    fn verdict(targets: &[Target], start: &str) -> Verdict {
        let found = targets.iter().find(|target| target.what.starts_with(start));
        found.unwrap_or_else(|| panic!("there is no {start}")).verdict.clone()
    }

    #[test]
    fn targets_are_met_or_missed_round_by_round() {
        let targets = judge(&testing::run());
        let fp16 = &targets[0];
        assert_eq!(fp16.measured, Some(Spread::of([100.0 / 50.0, 110.0 / 60.0])));
        assert_eq!(fp16.verdict, Verdict::Met);
        assert_eq!(verdict(&targets, "decode: anemeter fp16 / what"), Verdict::Met);
        assert_eq!(verdict(&targets, "prefill of 512: anemeter fp16 / llama"), Verdict::Met);
        assert_eq!(verdict(&targets, "peak memory: anemeter fp16"), Verdict::Met);
        assert_eq!(verdict(&targets, "load"), Verdict::Met);
    }

    #[test]
    fn slower_than_wanted_is_missed() {
        let mut run = testing::run();
        run.layer_parameters = 90_000_000;
        for row in &mut run.rows {
            let Ok(series) = &mut row.outcome else { continue };
            series.weight_bytes = 200_000_000;
        }
        let targets = judge(&run);
        assert_eq!(verdict(&targets, "prefill of 512: anemeter fp16 / fp32"), Verdict::Missed);
        assert_eq!(verdict(&targets, "decode: anemeter fp16 / what"), Verdict::Missed);
        assert_eq!(verdict(&targets, "peak memory: anemeter int8"), Verdict::Missed);
    }

    #[test]
    fn other_forms_of_as_many_bits_are_held_against_the_plain_one() {
        let mut run = testing::run();
        let row = run.rows.iter_mut().find(|row| row.title == "anemeter stored Q4_1").unwrap();
        for sample in &mut row.outcome.as_mut().unwrap().samples {
            sample.decode_seconds *= 1.4;
        }
        let targets = judge(&run);
        assert_eq!(
            verdict(&targets, "decode: anemeter int4:block=32 / anemeter stored Q4_1"),
            Verdict::Missed
        );
        assert_eq!(
            verdict(&targets, "prefill of 512: anemeter int4:block=32 / anemeter stored Q4_1"),
            Verdict::Met
        );
        assert_eq!(verdict(&targets, "decode: anemeter int4:block=32 / anemeter int4:asym"), Verdict::Met);
        assert_eq!(verdict(&targets, "decode: anemeter int8 / anemeter stored Q8_0"), Verdict::Met);
    }

    #[test]
    fn a_busy_machine_is_judged_by_who_is_ahead() {
        let targets = judge(&Run { is_busy: true, ..testing::run() });
        assert_eq!(verdict(&targets, "decode: anemeter int8 / llama.cpp Q8_0"), Verdict::Met);
        assert!(targets.iter().all(|target| target.wanted == Wanted::AtLeast(1.0)));
    }

    #[test]
    fn what_was_not_measured_is_never_met() {
        let mut run = testing::run();
        for limits in &mut run.limits {
            limits.products = None;
        }
        let targets = judge(&run);
        let why = "ONNX Runtime GenAI int4: pip cannot install it";
        assert_eq!(verdict(&targets, "decode: anemeter int4"), Verdict::NotMeasured(why.into()));
        let products = verdict(&targets, "prefill of 512: anemeter fp16 / fp32");
        assert!(matches!(products, Verdict::NotMeasured(_)));
    }
}
