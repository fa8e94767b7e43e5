//! `anemeter gate --rerun`: more launches while the verdict is inconclusive, within a time.

use std::path::{Path, PathBuf};

use super::Args;
use crate::bundle::Bundle;
use crate::cli::bench::Progress;
use crate::cli::inputs::{is_url, launcher, workload};
use crate::cli::output::note;
use crate::cli::{Failure, Result};
use crate::evaluate::GateRules;
use crate::evaluate::rerun::{RerunEvent, RerunRequest, rerun};
use crate::gate::Verdict;
use crate::report::Report;

pub(super) fn run(
    args: &Args,
    bundle: &Path,
    mut report: Report,
    sessions: &[Report],
    rules: &GateRules,
) -> Result<Verdict> {
    if is_url(&args.report) {
        return Err(Failure::at(&args.report, "launches are added to a copy beside a file of this machine")
            .with_help("give --rerun a report on this machine"));
    }
    let request = RerunRequest {
        bundle: &Bundle::open_any(bundle)?,
        workload: workload(args.workload.as_deref())?,
        budget: args.budget,
        copy: copy_path(&args.report),
    };
    let mut progress = None;
    let on_event = &mut |event| match event {
        RerunEvent::RoundBegins { launches } => {
            note(format_args!("inconclusive: measuring {launches} more launches"));
            progress = Some(Progress::new());
        }
        RerunEvent::Bench(event) => progress.iter().for_each(|progress| progress.show(&event)),
        RerunEvent::RoundEnded { launches } => {
            progress.take().iter().for_each(Progress::finish);
            note(format_args!("{launches} launches in {}", request.copy.display()));
        }
        RerunEvent::LaunchesWouldNotHelp => note("more launches alone would not settle it: see the reasons"),
        RerunEvent::BudgetSpent => note("the time is used up"),
    };
    Ok(rerun(&mut report, sessions, rules, &request, &mut launcher()?, on_event)?)
}

/// The file for the report with more launches, beside the report.
fn copy_path(report: &Path) -> PathBuf {
    let file = if report.is_dir() { report.join("report.json") } else { report.to_owned() };
    file.with_extension("rerun.json")
}
