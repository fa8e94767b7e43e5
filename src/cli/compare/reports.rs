//! Two reports side by side: what got slower, beside what changed.

use std::path::Path;

use super::{Args, print};
use crate::cli::gate::status;
use crate::cli::inputs::read_report;
use crate::cli::{Output, Result, Status};
use crate::evaluate::compare::reports::compare;
use crate::render;

pub(super) fn run(args: &Args, [baseline, candidate]: [&Path; 2], output: &mut Output) -> Result<Status> {
    let rules = args.files.rules()?;
    let compared = compare(&read_report(baseline)?, &read_report(candidate)?, &rules)?;
    print((&compared.headline(), &render::comparison_tables(&compared)), &compared, args.format(), output)?;
    Ok(compared.verdict.map_or(Status::Inconclusive, |verdict| status(verdict.outcome)))
}
