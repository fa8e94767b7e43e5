//! What a report suggests to do: rules over its figures, each with what was found.

use crate::report::{Launch, Metric, Outcome, Report};
use crate::stats::{Direction, Ordered, spread};
use anemeter_base::hardware::Noise;

/// A part of the time to the first token that is worth a look.
const LARGE_PART: f64 = 0.2;
/// Near enough to what memory allows.
const NEAR_BOUND: f64 = 0.7;
/// Far from what memory allows.
const FAR_FROM_BOUND: f64 = 0.4;
/// Differences between launches beyond which a comparison finds little.
const DISPERSED: f64 = 0.03;
/// Shift of the canary between launches beyond which the machine itself has changed.
const CANARY_SHIFT: f64 = 0.02;

/// One rule.
type Rule = fn(&Report) -> Option<Noise>;

const RULES: &[Rule] = &[tokenizer, embedding, bound, memory, batch, dispersion, canary, failures];

/// What a report suggests, in the order of the rules.
pub fn advice(report: &Report) -> Vec<Noise> {
    RULES.iter().filter_map(|rule| rule(report)).collect()
}

fn suggest(found: String, advice: &str) -> Option<Noise> {
    Some(Noise { found, advice: advice.to_owned() })
}

/// The largest share of a part in the time to the first token, with its sequence length.
fn largest_part(report: &Report, part: Metric) -> Option<(usize, f64)> {
    let p50 = |metric, seq_len| report.figure(metric, Some(seq_len))?.summary.percentiles.p50;
    let shares = report.seq_lens().into_iter().filter_map(|seq_len| {
        let whole = p50(Metric::Ttft, seq_len).filter(|whole| *whole > 0.0)?;
        Some((seq_len, p50(part, seq_len)? / whole))
    });
    shares.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, share)| *share > LARGE_PART)
}

fn tokenizer(report: &Report) -> Option<Noise> {
    let (seq_len, share) = largest_part(report, Metric::Tokenizer)?;
    let found = format!("the tokenizer takes {:.0} % of TTFT at seq_len {seq_len}", share * 100.0);
    suggest(found, "look at the tokenizer before the model: cache prompts that repeat, or shorten them")
}

fn embedding(report: &Report) -> Option<Noise> {
    let (seq_len, share) = largest_part(report, Metric::Embed)?;
    let found = format!("looking token vectors up takes {:.0} % of TTFT at seq_len {seq_len}", share * 100.0);
    suggest(
        found,
        "look embeddings up elsewhere: on the host, in a function of its own, or in every function",
    )
}

fn bound(report: &Report) -> Option<Noise> {
    let limit = report.speed_limits.iter().min_by_key(|limit| limit.seq_len)?;
    let found = format!(
        "decoding reaches {:.0} % of what memory allows at seq_len {}",
        limit.share_of_bound * 100.0,
        limit.seq_len
    );
    match limit.share_of_bound {
        share if share > 1.0 => suggest(
            found,
            "the bandwidth was measured too low: something else used the memory, so measure again",
        ),
        share if share > NEAR_BOUND => {
            suggest(found, "only fewer bytes help now: a lower precision (int8, int4, lut4)")
        }
        share if share < FAR_FROM_BOUND => suggest(
            found,
            "memory is not the limit: look at thread count, chunk hops and operations off the fast path before precision",
        ),
        _ => None,
    }
}

fn memory(report: &Report) -> Option<Noise> {
    let peak = report.figure(Metric::MemoryPeak, None)?.summary.maximum;
    let safe = report.machine.safe_memory_bytes()? as f64;
    let found = format!("the peak of {:.1} GB is beyond three quarters of the memory", peak / 1e9);
    let advice = "use a lower precision, shorter sequence lengths or a machine with more memory";
    if peak > safe { suggest(found, advice) } else { None }
}

fn batch(report: &Report) -> Option<Noise> {
    let batch = report.workload.batch;
    let found = format!("the batch is {batch}");
    let advice = "use batch 1 for interactive work: larger batches let every sequence wait for the slowest";
    if batch > 1 { suggest(found, advice) } else { None }
}

fn completed(report: &Report) -> impl Iterator<Item = &Launch> {
    report.launches.iter().filter(|launch| launch.outcome == Outcome::Completed)
}

fn dispersion(report: &Report) -> Option<Noise> {
    let place = report.places().into_iter().next()?;
    let metric = if report.is_of_predictions() { Metric::Latency } else { Metric::InterToken };
    let medians = completed(report).filter_map(|launch| {
        let steps: Vec<f64> = launch.values(metric, &place).collect();
        Some(Ordered::new(&steps, Direction::LowerIsBetter)?.quantile(0.5))
    });
    let spread = spread(&medians.collect::<Vec<_>>()).filter(|spread| *spread > DISPERSED)?;
    let found = format!("launches differ by {:.1} % at {}", spread * 100.0, place.in_words());
    suggest(
        found,
        "quieten the machine or take more launches: small regressions cannot be told from this noise",
    )
}

fn canary(report: &Report) -> Option<Noise> {
    let times: Vec<f64> = completed(report).filter_map(|launch| launch.canary_ms).collect();
    let spread = spread(&times).filter(|spread| *spread > CANARY_SHIFT)?;
    let found = format!("the canary differs by {:.1} % between launches", spread * 100.0);
    suggest(found, "the machine itself was faster and slower: fix its frequency, stop other work")
}

fn failures(report: &Report) -> Option<Noise> {
    let (launch, failure) = report.failures().next()?;
    let found = format!("launch {} {failure}", launch.index);
    suggest(found, "read its standard error in the report")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    fn found(report: &Report) -> Vec<String> {
        advice(report).into_iter().map(|noise| noise.found).collect()
    }

    #[test]
    fn an_ordinary_report_suggests_what_it_shows() {
        insta::assert_snapshot!(found(&testing::report()).join("\n"), @r"
        launches differ by 16.5 % at seq_len 128
        launch 2 ended early: signal 9
        ");
    }

    #[test]
    fn each_rule_speaks_up_when_it_should() {
        let mut report = testing::report();
        report.launches.truncate(1);
        for request in &mut report.launches[0].requests {
            request.tokenizer_ms = Some(request.ttft_ms * 0.5);
            request.embed_ms = request.ttft_ms * 0.25;
        }
        report.figures = crate::report::figures(&report.launches);
        report.workload.batch = 2;
        report.machine.memory_bytes = Some(300_000_000);
        report.speed_limits[0].share_of_bound = 0.9;
        let texts = found(&report);
        let expected = [
            "the tokenizer takes 50 %",
            "looking token vectors up takes 25 %",
            "decoding reaches 90 %",
            "the peak of 0.3 GB",
            "the batch is 2",
        ];
        assert_eq!(texts.len(), expected.len(), "{texts:?}");
        assert!(texts.iter().zip(expected).all(|(text, start)| text.starts_with(start)), "{texts:?}");
        report.speed_limits[0].share_of_bound = 1.2;
        let low = "the bandwidth was measured too low";
        assert!(advice(&report).iter().any(|noise| noise.advice.starts_with(low)));
        report.speed_limits[0].share_of_bound = 0.1;
        assert!(advice(&report).iter().any(|noise| noise.advice.starts_with("memory is not the limit")));
    }
}
