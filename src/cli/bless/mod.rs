//! `anemeter bless`: promotes reports to a baseline.

mod git;
mod text;

pub(super) use text::{sessions, table};

use std::path::PathBuf;
use std::time::SystemTime;

use super::bench::profiles;
use super::report::read;
use super::{Failure, Output, Status};
use crate::baseline::{BlessError, Provenance, Refusal, Sessions, Store, Tree};
use crate::evaluate::bless::{NotBlessed, Wish, bless, stored_gate};
use crate::gate::GatesFile;
use crate::generate::utc_time;
use crate::hardware::System;

/// Where baselines are unless another place is given.
pub(super) const BASELINES: &str = "baselines";

/// Promote reports to the baseline of their hardware profile, model and workload.
#[derive(clap::Args)]
#[command(
    after_help = "Nothing is blessed unless `anemeter verify` passed on the measured packages, the machine matches the profile, \
every launch completed and there are enough of them, the files are those of the commit, and the gate against the present \
baseline does not fail. Exit code 1: something speaks against it.\n\n\
Several reports are several sessions of one baseline: three sessions of eight launches make a sharp gate.\n\n\
Examples:\n  anemeter bless reports/a\n  anemeter bless reports/monday reports/tuesday reports/wednesday\n  \
anemeter bless reports/thursday --add-session\n  \
anemeter bless reports/a --accept-regression 'the vocabulary is twice as large'"
)]
pub(super) struct Args {
    /// Report files, or folders with a report.json, as paths or URLs; each is a session.
    #[arg(required = true, value_name = "REPORT")]
    reports: Vec<PathBuf>,
    /// Folder or URL of the baselines.
    #[arg(long, value_name = "DIR", default_value = BASELINES)]
    baselines: PathBuf,
    /// Keep the sessions of the present baseline and add these.
    #[arg(long)]
    add_session: bool,
    /// Bless although the gate fails, for this reason, which is recorded.
    #[arg(long, value_name = "REASON", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    accept_regression: Option<String>,
    /// Bless into a folder of one's own to try things out: what the files under version control are is not asked.
    #[arg(long)]
    scratch: bool,
    /// Limits and waivers of the gate [default: those of configs/gates.yaml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Hardware profiles [default: those of configs/hardware_profiles.yaml].
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    let reports = args.reports.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let profiles = profiles(args.profiles.as_deref())?;
    let store = Store::open(&args.baselines)?;
    let repository = git::repository(&System, &args.baselines);
    let wish = Wish {
        reports,
        sessions: if args.add_session { Sessions::Added } else { Sessions::New },
        profiles: &profiles,
        tree: if args.scratch { Tree::NotAsked } else { repository.tree },
        provenance: Provenance {
            who: repository.who,
            when: utc_time(SystemTime::now(), "%Y-%m-%dT%H:%M:%SZ"),
            git: repository.git,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Provenance::default()
        },
        accept_regression: args.accept_regression.clone(),
    };
    let gates = args.config.as_deref().map_or_else(GatesFile::built_in, GatesFile::read)?;
    match bless(&store, &wish, &mut stored_gate(&profiles, &gates, super::gate::today()?)) {
        Ok(blessing) => {
            let place = store.place(&blessing.blessed.key);
            match args.json {
                true => output.json(&text::document(&blessing, &place))?,
                false => output.text(text::blessed(&blessing, &place))?,
            }
            Ok(Status::Good)
        }
        Err(NotBlessed::Refused(refused)) => {
            match args.json {
                true => output.json(&text::refused_document(&refused))?,
                false => output.text(text::refused(&refused))?,
            }
            Ok(Status::Failed)
        }
        Err(NotBlessed::Store(error)) => Err(failure(error)),
    }
}

fn failure(error: BlessError<Vec<Refusal>>) -> Failure {
    let help = match error {
        BlessError::Baseline(error) => return error.into(),
        BlessError::Refused(_) => return Failure::bad_input(error),
        BlessError::NothingToAddTo(_) => "bless without --add-session first",
        BlessError::Repeated { .. } => "measure again: a session counts once",
        BlessError::Busy(_) => "try again",
    };
    Failure::bad_input(error).with_help(help)
}
