//! A fleet's reports, too many to show each: a table per hardware profile, a row per model, set-up, sequence length
//! and system build. Figures of different set-ups are never put together.

use std::collections::BTreeMap;

use super::number;
use super::table::Table;
use super::tables::runtime;
use crate::report::{Metric, Report, Verification};
use crate::stats::median;

/// So many reports are shown one by one; of more there is only a census.
pub const DETAILED: usize = 100;

const METRICS: [Metric; 2] = [Metric::Ttft, Metric::Tps];

/// What may be compared from build to build.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CensusRow<'r> {
    model: &'r str,
    /// Runtime, threads, numerics, form of the KV cache, batch, compute units, precision.
    set_up: String,
    seq_len: usize,
}

/// Reports of one line on one build of the system.
#[derive(Default)]
struct Cell<'r> {
    first: &'r str,
    last: &'r str,
    reports: usize,
    failed_launches: usize,
    unverified: usize,
    /// Medians of the reports, for each metric of [`METRICS`].
    figures: [Vec<f64>; METRICS.len()],
}

type Builds<'r> = BTreeMap<&'r str, Cell<'r>>;
type Medians = [Option<f64>; METRICS.len()];

impl<'r> Cell<'r> {
    fn add(&mut self, report: &'r Report, seq_len: usize) {
        let created = report.header.created.as_str();
        if self.reports == 0 || created < self.first {
            self.first = created;
        }
        self.last = self.last.max(created);
        self.reports += 1;
        self.failed_launches += report.failures().count();
        self.unverified += usize::from(!report.verified().is_some_and(Verification::is_good));
        for (figures, metric) in self.figures.iter_mut().zip(METRICS) {
            let figure = report.figure(metric, Some(seq_len));
            figures.extend(figure.and_then(|figure| figure.summary.percentiles.p50));
        }
    }

    fn medians(&self) -> Medians {
        self.figures.each_ref().map(|figures| median(figures))
    }
}

/// A table per hardware profile, in the order of their names. Builds of the system follow one another as they came up.
pub fn census(reports: &[Report]) -> Vec<Table> {
    let mut profiles: BTreeMap<&str, BTreeMap<CensusRow, Builds>> = BTreeMap::new();
    for report in reports {
        let lines = profiles.entry(&report.header.hardware_profile_key).or_default();
        for &seq_len in &report.workload.seq_lens {
            let line = CensusRow { model: &report.subject.name, set_up: set_up(report), seq_len };
            lines.entry(line).or_default().entry(build(report)).or_default().add(report, seq_len);
        }
    }
    profiles.into_iter().map(|(profile, lines)| table(profile, lines)).collect()
}

fn set_up(report: &Report) -> String {
    format!("{}, {}, {}", runtime(report), report.runtime.compute_units, report.subject.precision)
}

fn build(report: &Report) -> &str {
    let machine = &report.machine;
    machine.os_build.as_deref().or(machine.os_version.as_deref()).unwrap_or(number::ABSENT)
}

fn table(profile: &str, lines: BTreeMap<CensusRow, Builds>) -> Table {
    let mut rows = Vec::new();
    for (line, builds) in lines {
        let mut builds: Vec<(&str, Cell)> = builds.into_iter().collect();
        builds.sort_by(|(_, a), (_, b)| a.first.cmp(b.first));
        let mut before = [None; METRICS.len()];
        for (build, cell) in builds {
            let medians = cell.medians();
            rows.push(row(&line, build, &cell, [medians, before]));
            before = medians;
        }
    }
    let headings =
        ["model", "measured with", "system build", "from", "to", ">seq_len", ">reports", ">TTFT p50"];
    let more = [">change", ">TPS p50", ">change", ">failed launches", ">not verified"];
    let note = "Medians over reports; changes are against the build before and are no verdicts: a gate gives \
                those. A report alone is shown with its samples.";
    Table::new(&[&headings[..], &more].concat()).titled(profile, note).with(rows)
}

fn row(line: &CensusRow, build: &str, cell: &Cell, [medians, before]: [Medians; 2]) -> Vec<String> {
    let day = |time: &str| time.split('T').next().unwrap_or_default().to_owned();
    let mut row = vec![line.model.to_owned(), line.set_up.clone(), build.to_owned()];
    row.extend([day(cell.first), day(cell.last), line.seq_len.to_string(), cell.reports.to_string()]);
    for ((metric, now), before) in METRICS.into_iter().zip(medians).zip(before) {
        row.push(number::maybe(now, metric.unit()));
        row.push(match (now, before) {
            (Some(now), Some(before)) if before > 0.0 => format!("{:+.1} %", (now / before - 1.0) * 100.0),
            _ => number::ABSENT.to_owned(),
        });
    }
    row.extend([cell.failed_launches.to_string(), cell.unverified.to_string()]);
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;
    use anemeter_base::vocabulary::RuntimeName;

    fn of(profile: &str, build: &str, created: &str, scale: f64) -> Report {
        let mut report = testing::with_launches(vec![testing::launch(0, scale)]);
        report.header.hardware_profile_key = profile.to_owned();
        report.header.created = created.to_owned();
        report.machine.os_build = Some(build.to_owned());
        report
    }

    #[test]
    fn a_slower_build_stands_out() {
        let reports = [
            of("m4", "24F74", "2026-03-02T00:00:00Z", 1.2),
            of("m4", "24E263", "2026-03-01T00:00:00Z", 1.0),
            of("m4", "24E263", "2026-02-01T00:00:00Z", 1.0),
            of("m1", "24E263", "2026-02-01T00:00:00Z", 3.0),
        ];
        let tables = census(&reports);
        assert_eq!(tables.iter().map(|table| table.title.as_str()).collect::<Vec<_>>(), ["m1", "m4"]);
        let rows = &tables[1].rows;
        assert_eq!(rows.len(), 2 * 2, "a row per sequence length and build");
        assert_eq!(rows[0][2..7], ["24E263", "2026-02-01", "2026-03-01", "128", "2"]);
        assert_eq!((rows[0][8].as_str(), rows[1][8].as_str()), (number::ABSENT, "+20.0 %"));
        assert_eq!(rows[1][10], "-16.7 %");
        assert!(tables.iter().all(|table| table.rows.iter().all(|row| row.len() == table.columns.len())));
    }

    #[test]
    fn runtimes_and_batches_are_never_put_together() {
        let mut reports = vec![of("m4", "x", "2026-02-01T00:00:00Z", 1.0); 3];
        reports[1].runtime.name = RuntimeName::CoreMl;
        reports[2].workload.batch = 2;
        let rows = &census(&reports)[0].rows;
        assert_eq!(rows.len(), 3 * 2);
        assert!(rows.iter().all(|row| row[6] == "1" && row[8] == number::ABSENT));
    }

    #[test]
    fn a_census_needs_no_samples() {
        let mut reports = vec![testing::report(), of("m4", "x", "2026-02-01T00:00:00Z", 1.0)];
        let with = census(&reports);
        reports.iter_mut().for_each(Report::forget_samples);
        assert_eq!(census(&reports), with);
        assert!(reports.iter().all(|report| report.requests().next().is_none()));
    }
}
