//! Which reports a report is compared with.

use std::path::Path;

use super::Args;
use crate::baseline::{Key, Store};
use crate::cli::Failure;
use crate::cli::report::read;
use crate::report::Report;

/// Sessions of the baseline, oldest first: those that were named, or the blessed ones.
pub(super) fn sessions(args: &Args, report: &Report) -> Result<Vec<Report>, Failure> {
    if args.baseline.is_empty() {
        return blessed(&args.baselines, report, args.allow_cross_hw);
    }
    let help = "name a report that `anemeter bench` wrote, or leave --baseline out for the blessed one";
    let read = args.baseline.iter().map(|path| read(path));
    read.collect::<Result<_, _>>().map_err(|failure| failure.about("baseline").with_help(help))
}

/// The blessed sessions for a report. Where hardware may be crossed and its own profile has none, those of the only
/// other profile with the same model and workload.
fn blessed(folder: &Path, report: &Report, cross_hardware: bool) -> Result<Vec<Report>, Failure> {
    let store = Store::open(folder)?;
    let key = Key::of(report);
    if cross_hardware && store.find(&key)?.is_none() {
        let others = store.keys()?;
        let mut same =
            others.iter().filter(|other| (&other.model, &other.workload) == (&key.model, &key.workload));
        if let (Some(other), None) = (same.next(), same.next()) {
            return Ok(store.latest(other)?.sessions);
        }
    }
    Ok(store.latest(&key)?.sessions)
}
