//! Comparisons of reports that differ in known ways, for tests.

use super::Comparison;
use crate::gate::{self, GateError, GatesFile, InterimLook, Options, Policy};
use crate::report::Report;
use crate::report::testing::{launch, with_launches};
use anemeter_base::hardware::Profiles;
use anemeter_base::time::Date;

/// A report of ten launches that take `factor` times as long.
pub(super) fn report(factor: f64) -> Report {
    with_launches((0..10).map(|index| launch(index, factor * (1.0 + 0.001 * (index % 3) as f64))).collect())
}

pub(super) fn compared(baseline: &Report, candidate: &Report) -> Comparison {
    let profiles = Profiles::built_in().unwrap();
    let profile = profiles.of_key(&candidate.header.hardware_profile_key);
    let policy = Policy::new(&profile, &GatesFile::built_in().unwrap());
    let today = Date::parse("2026-01-31").unwrap();
    let options = Options { today, look: InterimLook::only(), allow_cross_hardware: false };
    let verdict = match gate::judge(candidate, &[baseline], &policy, &options) {
        Err(GateError::NotComparable(differences)) => Err(differences),
        judged => Ok(judged.unwrap()),
    };
    Comparison::of(baseline, candidate, verdict)
}

/// A second report that is slower, with more to read and a smaller package.
pub fn slower() -> Comparison {
    let mut candidate = report(1.3);
    candidate.subject.weight_bytes_per_token = Some(350_000_000);
    candidate.subject.package_bytes = 200_000_000;
    candidate.subject.precision = "int8".to_owned();
    candidate.header.tool_version = "0.2.0".to_owned();
    compared(&report(1.0), &candidate)
}

/// A second report that was not measured like the first, and is faster.
pub fn not_alike() -> Comparison {
    let mut candidate = report(0.8);
    candidate.runtime.threads = Some(4);
    candidate.machine.os_build = Some("24A1".to_owned());
    compared(&report(1.0), &candidate)
}
