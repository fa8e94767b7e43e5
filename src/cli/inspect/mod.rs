//! `anemeter inspect`: what is in a package.

mod summary;
mod text;

use std::path::PathBuf;

use super::{Failure, Output, Status};
use crate::package::Package;
use summary::Summary;

/// Show what is in a package: functions, inputs, outputs, states, operations, weights.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  anemeter inspect model.mlpackage\n  anemeter inspect model.mlpackage --weights\n  \
anemeter inspect model.mlpackage --mil | less\n  anemeter inspect model.mlpackage --json | jq .functions"
)]
pub(super) struct Args {
    /// The .mlpackage to look at.
    package: PathBuf,
    /// Count operations by kind, function by function.
    #[arg(long)]
    ops: bool,
    /// List the weights, largest first.
    #[arg(long)]
    weights: bool,
    /// Print the program as readable MIL.
    #[arg(long)]
    mil: bool,
    /// Print everything but the MIL as one JSON document.
    #[arg(long, conflicts_with_all = ["mil", "weights", "ops"])]
    json: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    let package = Package::open(&args.package)?;
    if args.mil {
        output.text(&package.model().program)?;
        return Ok(Status::Good);
    }
    let summary = Summary::of(&package);
    if args.json {
        output.json(&summary)?;
        return Ok(Status::Good);
    }
    text::overview(&summary, output)?;
    if args.ops {
        text::operations(&summary, output)?;
    }
    if args.weights {
        text::weights(&summary, output)?;
    }
    Ok(Status::Good)
}
