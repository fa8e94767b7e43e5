//! `anemeter worker`: one launch of a benchmark, started by `anemeter bench`.

use super::{Failure, Result, Status};
use crate::harness;

/// Run one launch of a benchmark: the job is a line on standard input, results are lines on standard output.
#[derive(clap::Args)]
#[command(hide = true)]
pub(super) struct Args {}

pub(super) fn run(_: &Args) -> Result<Status> {
    match harness::serve_standard() {
        Ok(()) => Ok(Status::Good),
        // The parent has gone, and so has everyone who could read a message.
        Err(_) => Err(Failure::closed_pipe()),
    }
}
