//! A fleet's reports, too many to show each: a table per hardware profile, a row per model, set-up, sequence length
//! and system build. Figures of different set-ups are never put together.

use std::collections::BTreeMap;

use super::number;
use super::table::Table;
use super::tables::runtime;
use crate::report::{Metric, Place, QualityFigure, Report, Verification};
use crate::stats::{Unit, median};

/// So many reports are shown one by one; of more there is only a census.
pub const DETAILED: usize = 100;

const METRICS: [Metric; 3] = [Metric::Ttft, Metric::Tps, Metric::Latency];

/// What may be compared from build to build.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CensusRow<'r> {
    model: &'r str,
    /// Runtime, threads, numerics, form of the KV cache, batch, compute units, precision.
    set_up: String,
    place: Place,
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
    /// Bytes of the packages, KL divergence and perplexity, of those reports that have them.
    size_and_quality: [Vec<f64>; 3],
}

type Builds<'r> = BTreeMap<&'r str, Cell<'r>>;
type Medians = [Option<f64>; METRICS.len()];

impl<'r> Cell<'r> {
    fn add(&mut self, report: &'r Report, place: &Place) {
        let created = report.header.created.as_str();
        if self.reports == 0 || created < self.first {
            self.first = created;
        }
        self.last = self.last.max(created);
        self.reports += 1;
        self.failed_launches += report.failures().count();
        self.unverified += usize::from(!report.verified().is_some_and(Verification::is_good));
        for (figures, metric) in self.figures.iter_mut().zip(METRICS) {
            let figure = report.figure_at(metric, Some(place));
            figures.extend(figure.and_then(|figure| figure.summary.percentiles.p50));
        }
        let kl = report.quality_loss().and_then(|loss| loss.kl);
        let found = [Some(report.subject.package_bytes as f64), kl, report.perplexity()];
        self.size_and_quality.iter_mut().zip(found).for_each(|(all, found)| all.extend(found));
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
        for place in report.workload.places() {
            let line =
                CensusRow { model: &report.subject.name, set_up: set_up(report), place: place.clone() };
            lines.entry(line).or_default().entry(build(report)).or_default().add(report, &place);
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
    let shown = shown(lines.keys());
    let mut rows = Vec::new();
    for (line, builds) in lines {
        let mut builds: Vec<(&str, Cell)> = builds.into_iter().collect();
        builds.sort_by(|(_, a), (_, b)| a.first.cmp(b.first));
        let mut before = [None; METRICS.len()];
        for (build, cell) in builds {
            let medians = cell.medians();
            rows.push(row(&line, build, &cell, &shown, [medians, before]));
            before = medians;
        }
    }
    let place = if shown.contains(&Metric::Latency) { ">at" } else { ">seq_len" };
    let headings = ["model", "measured with", "system build", "from", "to", place, ">reports"];
    let mut headings: Vec<String> = headings.map(str::to_owned).to_vec();
    headings.extend(shown.iter().flat_map(|metric| [format!(">{metric} p50"), ">change".to_owned()]));
    let size_and_quality = [">package", ">KL", ">perplexity"];
    headings.extend(
        size_and_quality.iter().chain(&[">failed launches", ">not verified"]).map(ToString::to_string),
    );
    let note = "Medians over reports; changes are against the build before and are no verdicts: a gate gives \
                those. A report alone is shown with its samples.";
    Table::new(&headings).titled(profile, note).with(rows)
}

/// The metrics of the places of some rows.
fn shown<'a, 'r: 'a>(lines: impl Iterator<Item = &'a CensusRow<'r>>) -> Vec<Metric> {
    let is_case: Vec<bool> = lines.map(|line| line.place.case().is_some()).collect();
    METRICS.into_iter().filter(|metric| is_case.contains(&(*metric == Metric::Latency))).collect()
}

fn row(
    line: &CensusRow,
    build: &str,
    cell: &Cell,
    shown: &[Metric],
    [medians, before]: [Medians; 2],
) -> Vec<String> {
    let day = |time: &str| time.split('T').next().unwrap_or_default().to_owned();
    let mut row = vec![line.model.to_owned(), line.set_up.clone(), build.to_owned()];
    row.extend([day(cell.first), day(cell.last), line.place.to_string(), cell.reports.to_string()]);
    let figures = METRICS.into_iter().zip(medians).zip(before);
    for ((metric, now), before) in figures.filter(|((metric, _), _)| shown.contains(metric)) {
        row.push(number::maybe(now, metric.unit()));
        row.push(match (now, before) {
            (Some(now), Some(before)) if before > 0.0 => format!("{:+.1} %", (now / before - 1.0) * 100.0),
            _ => number::ABSENT.to_owned(),
        });
    }
    let [size, kl, perplexity] = cell.size_and_quality.each_ref().map(|all| median(all));
    row.push(number::maybe(size, Unit::Bytes));
    row.push(kl.map_or_else(|| number::ABSENT.to_owned(), |kl| QualityFigure::Kl.shown(kl)));
    row.push(perplexity.map_or_else(|| number::ABSENT.to_owned(), |value| format!("{value:.3}")));
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
    fn size_and_quality_stand_beside_speed() {
        let mut report = of("m4", "x", "2026-02-01T00:00:00Z", 1.0);
        let mut found = testing::verification();
        found.quality = Some(testing::quality_loss());
        report.verification = Some(found);
        let tables = census(&[report, of("m4", "y", "2026-03-01T00:00:00Z", 1.0)]);
        let column = |heading: &str| tables[0].columns.iter().position(|c| c.heading == heading).unwrap();
        let cell = |row: usize, heading: &str| tables[0].rows[row][column(heading)].clone();
        assert_eq!([cell(0, "KL"), cell(0, "perplexity")], ["0.0110 nats", "20.140"]);
        assert_eq!([cell(1, "KL"), cell(1, "perplexity")], [number::ABSENT; 2]);
        assert!(cell(1, "package").ends_with('B'));
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
