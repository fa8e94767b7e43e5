//! Two reports side by side: what got slower, beside what changed.

use std::path::Path;

use super::{Args, print};
use crate::cli::gate::{policy, status, today};
use crate::cli::report::read;
use crate::cli::{Failure, Output, Status};
use crate::compare::Comparison;
use crate::gate::{self, GateError, GatesFile, Look, Options};
use crate::render;

pub(super) fn run(
    args: &Args,
    [baseline, candidate]: [&Path; 2],
    output: &mut Output,
) -> Result<Status, Failure> {
    let (baseline, candidate) = (read(baseline)?, read(candidate)?);
    let profiles = crate::cli::bench::profiles(args.profiles.as_deref())?;
    let gates = args.gates.as_deref().map_or_else(GatesFile::built_in, GatesFile::read)?;
    let policy = policy(&profiles, &candidate, &gates);
    let options = Options { today: today()?, look: Look::only(), allow_cross_hardware: false };
    let verdict = match gate::judge(&candidate, &[&baseline], &policy, &options) {
        Err(GateError::NotComparable(differences)) => Err(differences),
        judged => Ok(judged?),
    };
    let outcome = verdict.as_ref().map(|verdict| verdict.outcome).ok();
    let compared = Comparison::of(&baseline, &candidate, verdict);
    print((&compared.headline(), &render::comparison_tables(&compared)), &compared, args.format(), output)?;
    Ok(outcome.map_or(Status::Inconclusive, status))
}
