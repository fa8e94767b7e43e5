//! Size, speed and quality of several bundles: what each takes, what it gives, and which nothing else beats.

use plotters::element::{Circle, Text};
use plotters::style::{Color, RGBColor};

use super::canvas::{Frame, SERIES, Theme, draw, plot, text, tick};
use super::{Chart, Result};
use crate::report::Report;
use crate::sweep::{TradeOff, frontier};
use anemeter_base::text::visible;

const KINDS: [(&str, RGBColor); 3] =
    [("on the frontier", SERIES[2]), ("beaten by another", SERIES[0]), ("failed or too lossy", SERIES[1])];

/// Speed over size, with the divergence from the checkpoint beside each name; nothing for fewer than two speeds.
pub(super) fn trade_offs(all: &[TradeOff], theme: Theme) -> Result<Option<Chart>> {
    let is_best = frontier(all);
    let point = |(one, is_best): (&TradeOff, &bool)| {
        let at = (one.package_bytes as f64 / 1e6, one.tokens_per_second?);
        let kl = one.kl.map_or_else(|| "KL unknown".to_owned(), |kl| format!("KL {kl:.4}"));
        let kind = match (&one.excluded, is_best) {
            (Some(_), _) => 2,
            (None, false) => 1,
            (None, true) => 0,
        };
        Some((at, format!("{}, {kl}", visible(&one.name)), kind))
    };
    let points: Vec<_> = all.iter().zip(&is_best).filter_map(point).collect();
    if points.len() < 2 {
        return Ok(None);
    }
    let largest = points.iter().map(|((size, _), ..)| *size).fold(0.0, f64::max);
    let highest = points.iter().map(|((_, speed), ..)| *speed).fold(0.0, f64::max);
    let seen = KINDS.iter().enumerate().filter(|(kind, _)| points.iter().any(|point| point.2 == *kind));
    let frame = Frame {
        title: "Size, speed and quality",
        x: "packages (MB)",
        y: "tokens per second, p50",
        series: seen.map(|(_, (name, colour))| ((*name).to_owned(), *colour)).collect(),
    };
    let svg = draw(&frame, theme, |area| {
        // Names stand to the right of their points and need room there.
        let mut plot = plot(area, &frame, 0.0..largest * 1.5, highest, &|x: &f64| tick(*x), 8)?;
        let dots = points.iter().map(|(at, _, kind)| Circle::new(*at, 5, KINDS[*kind].1.filled()));
        plot.draw_series(dots).map_err(|e| e.to_string())?;
        let beside = largest * 0.02;
        let names =
            points.iter().map(|((x, y), name, _)| Text::new(name.clone(), (x + beside, *y), text(12)));
        plot.draw_series(names).map(drop).map_err(|e| e.to_string())
    })?;
    Ok(Some(Chart { name: "frontier".to_owned(), svg }))
}

/// The same of reports at the longest sequence length that all have; nothing if all measured the same packages.
pub(super) fn of_reports(reports: &[Report], theme: Theme) -> Result<Option<Chart>> {
    let Some(first) = reports.first() else { return Ok(None) };
    let differ = reports.iter().any(|report| report.subject.package_digests != first.subject.package_digests);
    let mut lengths = first.seq_lens().into_iter().rev();
    let common = lengths.find(|length| reports.iter().all(|report| report.seq_lens().contains(length)));
    let (Some(seq_len), true) = (common, differ) else { return Ok(None) };
    let point = |report: &Report| TradeOff::of(&report.subject.label(), report, seq_len);
    trade_offs(&reports.iter().map(point).collect::<Vec<_>>(), theme)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn every_bundle_has_its_place_and_its_divergence() {
        let mut int8 = testing::with_launches(vec![testing::launch(0, 0.5)]);
        int8.subject.precision = "int8".to_owned();
        int8.subject.package_bytes /= 2;
        let mut found = testing::verification();
        found.quality = Some(testing::quality_loss());
        int8.verification = Some(found);
        let mut fp16 = testing::with_launches(vec![testing::launch(0, 1.0)]);
        fp16.subject.package_digests = vec!["xxh3:77".to_owned()];
        let svg = of_reports(&[fp16.clone(), int8], Theme::File).unwrap().unwrap().svg;
        assert_eq!(svg.matches("<circle").count(), 2);
        for text in ["tiny (int8), KL 0.0110", "tiny (fp16), KL unknown", "on the frontier", "packages (MB)"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("failed or too lossy"));
        assert_eq!(of_reports(&[fp16.clone(), fp16.clone()], Theme::File).unwrap(), None);
        assert_eq!(of_reports(&[fp16], Theme::File).unwrap(), None);
        assert_eq!(of_reports(&[], Theme::File).unwrap(), None);
    }
}
