//! Several reports: grouped by hardware profile, an overview of each group.

use super::number;
use super::table::Table;
use super::tables::runtime;
use crate::report::{Metric, Place, QualityFigure, Report};
use crate::stats::Unit;

/// Reports of the same hardware profile next to each other, in the order in which each profile first occurs. Speeds are
/// only compared inside such a group.
pub fn by_profile(reports: &[Report]) -> Vec<Report> {
    let profile = |report: &Report| report.header.hardware_profile_key.clone();
    let mut order: Vec<String> = Vec::new();
    for report in reports.iter().map(profile) {
        if !order.contains(&report) {
            order.push(report);
        }
    }
    let mut grouped = reports.to_vec();
    grouped.sort_by_key(|report| order.iter().position(|key| *key == profile(report)));
    grouped
}

/// The groups of reports that [`by_profile`] put next to each other.
pub fn groups(grouped: &[Report]) -> impl Iterator<Item = &[Report]> {
    grouped.chunk_by(|a, b| a.header.hardware_profile_key == b.header.hardware_profile_key)
}

/// A table per group, with one row per report; rows are numbered over all groups.
pub(super) fn overviews(grouped: &[Report]) -> Vec<Table> {
    let mut number = 0;
    let mut tables = Vec::new();
    for group in groups(grouped) {
        tables.push(overview(group, number));
        number += group.len();
    }
    if let (Some(last), true) = (tables.last_mut(), groups(grouped).count() > 1) {
        let count = groups(grouped).count();
        last.note =
            format!("The reports come from {count} hardware profiles: their speeds are not comparable.");
    }
    tables
}

fn overview(group: &[Report], before: usize) -> Table {
    let columns = columns(group);
    // Dates to the right, where they are not broken.
    let mut headings = ["", ">created", "model", "runtime"].map(str::to_owned).to_vec();
    headings.extend(columns.iter().map(|(metric, place)| format!(">{metric} p50 at {place}")));
    headings.extend([">package", ">KL", ">top-1", ">perplexity", ">launches", "verified"].map(str::to_owned));
    let row = |(index, report): (usize, &Report)| {
        let mut row = vec![
            (before + index + 1).to_string(),
            report.header.created.clone(),
            report.subject.label(),
            runtime(report),
        ];
        for (metric, place) in &columns {
            let figure = report.figure_at(*metric, Some(place));
            row.push(number::maybe(figure.and_then(|f| f.summary.percentiles.p50), metric.unit()));
        }
        row.extend(quality(report));
        row.push(launches(report));
        row.push(verified(report).to_owned());
        row
    };
    let title = group.first().map(|report| report.header.hardware_profile_key.clone()).unwrap_or_default();
    Table::new(&headings).titled(title, "").with(group.iter().enumerate().map(row))
}

/// The speeds of some reports: of text per sequence length, of predictions per case.
fn columns(reports: &[Report]) -> Vec<(Metric, Place)> {
    let mut places: Vec<Place> = Vec::new();
    for place in reports.iter().flat_map(Report::places) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places.sort_by_key(|place| place.seq_len().unwrap_or(usize::MAX));
    let metrics = |place: &Place| match place {
        Place::SeqLen(_) => [Metric::Ttft, Metric::Tps].as_slice(),
        Place::Case(_) => &[Metric::Latency],
    };
    places.iter().flat_map(|place| metrics(place).iter().map(|metric| (*metric, place.clone()))).collect()
}

fn launches(report: &Report) -> String {
    match (report.launches.len(), report.failures().count()) {
        (all, 0) => all.to_string(),
        (all, failed) => format!("{all}, {failed} failed"),
    }
}

/// Size and quality, which speed is bought with.
fn quality(report: &Report) -> [String; 4] {
    let loss = report.quality_loss();
    let shown = |figure: QualityFigure, value: Option<f64>| {
        value.map_or_else(|| number::ABSENT.to_owned(), |value| figure.shown(value))
    };
    [
        number::figure(report.subject.package_bytes as f64, Unit::Bytes),
        shown(QualityFigure::Kl, loss.and_then(|loss| loss.kl)),
        shown(QualityFigure::Top1, loss.map(|loss| loss.top1)),
        report.perplexity().map_or_else(|| number::ABSENT.to_owned(), |value| format!("{value:.3}")),
    ]
}

fn verified(report: &Report) -> &'static str {
    match report.verified() {
        Some(found) if found.is_good() => "passed",
        Some(found) if found.passed => "right, but beyond a limit of quality",
        Some(_) => "failed",
        None => "no",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    fn of(profile: &str, created: &str) -> Report {
        let mut report = testing::report();
        report.header.hardware_profile_key = profile.to_owned();
        report.header.created = created.to_owned();
        report
    }

    #[test]
    fn profiles_stand_together_and_keep_their_order() {
        let grouped = by_profile(&[of("m2", "1"), of("m1", "2"), of("m2", "3"), of("m1", "4")]);
        let created: Vec<&str> = grouped.iter().map(|report| report.header.created.as_str()).collect();
        assert_eq!(created, ["1", "3", "2", "4"]);
        assert_eq!(groups(&grouped).map(<[Report]>::len).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(groups(&[]).count(), 0);
    }

    #[test]
    fn each_profile_has_a_table_of_its_own() {
        let tables = overviews(&by_profile(&[of("m2", "1"), of("m1", "2"), of("m2", "3")]));
        let titles: Vec<&str> = tables.iter().map(|table| table.title.as_str()).collect();
        assert_eq!(titles, ["m2", "m1"]);
        let numbers: Vec<_> =
            tables.iter().flat_map(|table| &table.rows).map(|row| row[0].as_str()).collect();
        assert_eq!(numbers, ["1", "2", "3"]);
        assert!(tables[1].note.contains("2 hardware profiles: their speeds are not comparable"));
        assert!(tables.iter().all(|table| table.rows.iter().all(|row| row.len() == table.columns.len())));
        assert_eq!(tables[0].rows[0][tables[0].columns.len() - 2], "3, 1 failed");
    }
}
