//! The table of throughput: tokens per second of prefill and decode, and times of whole requests.

use super::number::maybe;
use super::table::{Table, table};
use crate::report::{Figure, Metric, Report};

/// A row per sequence length; with context depths that is a row per depth.
pub(super) fn throughput(report: &Report) -> Table {
    let row = |seq_len: usize| {
        let p = |metric: Metric, pick: fn(&Figure) -> Option<f64>| {
            maybe(report.figure(metric, Some(seq_len)).and_then(pick), metric.unit())
        };
        let mut requests = report.requests().map(|(_, request)| request);
        let request = requests.find(|request| request.seq_len == seq_len)?;
        Some(vec![
            seq_len.to_string(),
            request.context_tokens.to_string(),
            request.prompt_tokens.to_string(),
            request.generated_tokens.to_string(),
            p(Metric::PrefillTps, |f| f.summary.percentiles.p50),
            p(Metric::Tps, |f| f.summary.percentiles.p50),
            p(Metric::TimePerOutputToken, |f| f.summary.percentiles.p50),
            p(Metric::EndToEnd, |f| f.summary.percentiles.p50),
            p(Metric::EndToEnd, |f| f.summary.percentiles.p95),
        ])
    };
    let headings = [
        "seq_len",
        "context",
        "prompt",
        "generated",
        "prefill TPS p50",
        "TPS p50",
        "per output token p50",
        "end to end p50",
        "end to end p95",
    ];
    let measured = report.seq_lens().into_iter();
    let measured = measured.filter(|&seq_len| report.figure(Metric::EndToEnd, Some(seq_len)).is_some());
    table("Throughput", &note(report), &headings, measured.filter_map(row).collect())
}

fn note(report: &Report) -> String {
    let parts = "Prefill is of the prompt; TPS and time per output token are of the tokens after the first; end to end is \
                 from the prompt to the last token.";
    let asked =
        report.workload.depths.as_ref().is_some_and(|asked| asked.depths.iter().any(|&depth| depth > 0));
    let is_kept = report.requests().any(|(_, request)| request.context_tokens > 0);
    match (asked, is_kept) {
        (false, _) => parts.to_owned(),
        (true, true) => format!("{parts} The context was in the cache before the clock started."),
        (true, false) => format!(
            "{parts} The packages cannot add a prompt to a cache: a prompt has the tokens of its context, too."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{DepthWorkload, Request, figures, testing};

    #[test]
    fn each_depth_has_a_row_with_rates_and_times() {
        let mut report = testing::report();
        let request = |context_tokens: usize, step: f64| Request {
            context_tokens,
            prompt_tokens: 100,
            ttft_ms: 10.0,
            embed_ms: 0.0,
            prefill_ms: 10.0,
            steps_ms: vec![step; 4],
            ..testing::request(0, context_tokens + 105, 1.0)
        };
        report.launches.truncate(1);
        report.launches[0].requests = vec![request(0, 2.0), request(4096, 5.0)];
        report.figures = figures(&report.launches);
        let (depths, lengths) = (vec![0, 4096], vec![8192]);
        report.workload.depths = Some(DepthWorkload { prompt_tokens: 100, depths, lengths });
        insta::assert_snapshot!(throughput(&report));
        report.launches[0].requests[1].context_tokens = 0;
        assert!(throughput(&report).note.contains("a prompt has the tokens of its context"));
        assert!(throughput(&testing::predicted(1, 1.0)).rows.is_empty());
    }
}
