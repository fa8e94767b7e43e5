//! More launches of the same kind, added to a report.

use super::{Report, figures, mix_figures};

/// Why launches cannot be added to a report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the further launches are of other {what}")]
pub struct ExtendError {
    /// What differs between the two reports.
    pub what: &'static str,
}

impl Report {
    /// Adds the launches of another report of the same packages, workload and machine; figures are computed again.
    pub fn extend(&mut self, more: Report) -> Result<(), ExtendError> {
        let same = [
            ("packages", self.subject.package_digests == more.subject.package_digests),
            ("workloads", self.workload.digest == more.workload.digest),
            ("runtimes", self.runtime == more.runtime),
            ("hardware profiles", self.header.hardware_profile_key == more.header.hardware_profile_key),
        ];
        if let Some((what, _)) = same.iter().find(|(_, same)| !same) {
            return Err(ExtendError { what });
        }
        let first = self.launches.iter().map(|launch| launch.index + 1).max().unwrap_or(0);
        let renumbered = more.launches.into_iter().enumerate().map(|(place, mut launch)| {
            launch.index = first + place;
            launch
        });
        self.launches.extend(renumbered);
        self.conditions_at_end = more.conditions_at_end;
        self.workload.launches = self.launches.len();
        self.figures = figures(&self.launches);
        self.mix = mix_figures(&self.figures, &self.workload.mix);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Metric, testing};

    #[test]
    fn launches_are_numbered_on_and_figures_follow() {
        let mut report = testing::report();
        report
            .extend(testing::with_launches(vec![testing::launch(0, 1.5), testing::launch(1, 1.0)]))
            .unwrap();
        let indices: Vec<usize> = report.launches.iter().map(|launch| launch.index).collect();
        assert_eq!((indices, report.workload.launches), (vec![0, 1, 2, 3, 4], 5));
        assert_eq!(report.figure(Metric::Ttft, Some(128)).unwrap().launches, 4);
    }

    #[test]
    fn other_reports_are_refused() {
        let mut report = testing::report();
        let mut other = testing::report();
        other.subject.package_digests = vec!["xxh3:99".to_owned()];
        let problem = report.extend(other).unwrap_err();
        assert_eq!(problem.to_string(), "the further launches are of other packages");
        assert_eq!(report, testing::report());
    }
}
