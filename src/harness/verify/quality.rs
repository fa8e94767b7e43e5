//! Is a package good? What it loses against its checkpoint: divergence, likeliest tokens, perplexity of a text.

use super::error::VerifyError;
use super::report::Cell;
use crate::eval::{TextScore, score_text, score_text_with};
use crate::generate::Driver;
use crate::verify::Oracle;
use anemeter_base::vocabulary::KvForm;
use anemeter_measure::report::{QualityLimits, QualityLoss, TextLoss};

/// What was lost in a form at a length, over prompts and steps together; nothing if it was not compared there.
pub fn quality_loss(
    cells: &[Cell],
    (kv, seq_len): (KvForm, usize),
    limits: QualityLimits,
) -> Option<QualityLoss> {
    let here: Vec<_> = cells
        .iter()
        .filter(|cell| (cell.kv, cell.seq_len) == (kv, seq_len))
        .map(|cell| &cell.summary)
        .collect();
    let positions: usize = here.iter().map(|summary| summary.positions).sum();
    if positions == 0 {
        return None;
    }
    let mean = |values: &mut dyn Iterator<Item = Option<f64>>| {
        let weighted = values.zip(&here).map(|(value, summary)| Some(value? * summary.positions as f64));
        weighted.sum::<Option<f64>>().map(|sum| sum / positions as f64)
    };
    let share = |value: Option<f64>| value.unwrap_or(0.0);
    Some(QualityLoss {
        kv,
        seq_len,
        positions,
        kl: mean(&mut here.iter().map(|summary| summary.kl_mean)),
        top1: share(mean(&mut here.iter().map(|summary| Some(summary.top1)))),
        top5: share(mean(&mut here.iter().map(|summary| Some(summary.top5)))),
        text: None,
        limits,
    })
}

/// The shortest length that takes whole prompts with all tokens, or the longest.
pub fn quality_length(seq_lens: &[usize], prompts: &[Vec<u32>], tokens: usize) -> Option<usize> {
    let needed = prompts.iter().map(Vec::len).max().unwrap_or(0) + tokens;
    let fitting = seq_lens.iter().filter(|&&seq_len| seq_len >= needed).min();
    fitting.or_else(|| seq_lens.iter().max()).copied()
}

/// How well a bundle and its reference predict the same tokens, in windows of `window`. `progress` is told how many of
/// how many are scored.
pub fn text_loss(
    oracle: &mut dyn Oracle,
    driver: &mut Driver,
    (ids, text_digest): (&[u32], String),
    window: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<TextLoss, VerifyError> {
    let packages = score_text(driver, ids, window, &mut |done, total| progress(done, 2 * total))?;
    let shown = &mut |done: usize, total: usize| progress(total + done, 2 * total);
    let checkpoint = score_reference(oracle, ids, window, shown)?;
    let (checkpoint, tokens) = (checkpoint.perplexity(), packages.tokens);
    Ok(TextLoss { text_digest, window, tokens, checkpoint, packages: packages.perplexity() })
}

fn score_reference(
    oracle: &mut dyn Oracle,
    ids: &[u32],
    window: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<TextScore, VerifyError> {
    score_text_with(ids, window, progress, |given, context, score| {
        oracle.reset();
        let (context, rest) = given.split_at(context.min(given.len()));
        score(context.len() - 1, &oracle.feed(context)?)?;
        for (step, id) in rest.iter().enumerate() {
            score(context.len() + step, &oracle.feed(&[*id])?)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::metrics::LogitMetrics;
    use super::super::report::Phase;
    use super::*;

    #[test]
    fn phases_count_by_their_positions() {
        let cell = |phase, pairs: &[([f32; 2], [f32; 2])]| {
            let mut gathered = LogitMetrics::default();
            pairs.iter().for_each(|(reference, found)| gathered.add(reference, found));
            Cell { kv: KvForm::Io, seq_len: 16, phase, summary: gathered.summary() }
        };
        let (same, turned) = (([3.0, 4.0], [3.0, 4.0]), ([3.0, 4.0], [4.0, 3.0]));
        let cells = [cell(Phase::Prefill, &[turned]), cell(Phase::Decode, &[same, same, same])];
        let limits = QualityLimits::default();
        let loss = quality_loss(&cells, (KvForm::Io, 16), limits).unwrap();
        let kl = cells[0].summary.kl_mean.unwrap() / 4.0;
        assert_eq!((loss.positions, loss.top1, loss.top5), (4, 0.75, 1.0));
        assert!((loss.kl.unwrap() - kl).abs() < 1e-12);
        assert_eq!(quality_loss(&cells, (KvForm::State, 16), limits), None);
        let lost = [cell(Phase::Prefill, &[([f32::NAN, 0.0], [0.0, 0.0])])];
        assert_eq!(quality_loss(&lost, (KvForm::Io, 16), limits).unwrap().kl, None);
    }

    #[test]
    fn whole_prompts_are_taken_where_they_fit() {
        let prompts = [vec![0; 20], vec![0; 90]];
        assert_eq!(quality_length(&[512, 128, 64], &prompts, 32), Some(128));
        assert_eq!(quality_length(&[64, 16], &prompts, 32), Some(64));
        assert_eq!(quality_length(&[], &prompts, 32), None);
    }

    /// Always expects the next id after the last of a few.
    struct Counting(usize, u32);

    impl Oracle for Counting {
        fn feed(&mut self, ids: &[u32]) -> Result<Vec<f32>, crate::verify::OracleError> {
            self.1 = *ids.last().unwrap_or(&0);
            let wanted = (self.1 as usize + 1) % self.0;
            Ok((0..self.0).map(|id| if id == wanted { 1.0 } else { 0.0 }).collect())
        }

        fn reset(&mut self) {
            self.1 = 0;
        }

        fn vocabulary(&self) -> usize {
            self.0
        }

        fn describe(&self) -> String {
            "counts".to_owned()
        }
    }

    #[test]
    fn the_reference_is_scored_by_what_it_said_before_each_token() {
        let ids: Vec<u32> = (0..13).map(|id| id % 5).collect();
        let found = score_reference(&mut Counting(5, 0), &ids, 6, &mut |_, _| ()).unwrap();
        let nats = -(1f64.exp() / (1f64.exp() + 4.0)).ln();
        assert_eq!((found.tokens, found.window), (12, 6));
        assert!((found.nats_per_token() - nats).abs() < 1e-7, "{found:?}");
    }
}
