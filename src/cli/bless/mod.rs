//! `anemeter bless`: promotes reports to a baseline.

mod git;
mod text;

pub(super) use text::{sessions, table};

use std::path::PathBuf;
use std::time::SystemTime;

use super::inputs::{GateFiles, read_report};
use super::{Output, Result, Status};
use crate::baseline::{BlessError, Provenance, Sessions, Store, Tree};
use crate::evaluate::bless::{BlessRequest, bless, stored_gate};
use crate::hardware::System;
use crate::time::iso8601;

/// Where baselines are unless another place is given.
pub(super) const BASELINES: &str = "baselines";

/// Promote reports to the baseline of their hardware profile, model and workload, which later gates compare with.
#[derive(clap::Args)]
#[command(
    after_help = "A report is accepted if `anemeter verify` passed on the measured packages, the machine matches the profile \
and was quiet, every launch completed and there are enough of them, the working tree is clean, and the gate against the \
current baseline does not fail. A report is blessed once. Exit code 1: a report was refused.\n\n\
Several reports are several sessions of one baseline. Three sessions of eight launches give a gate with little noise.\n\n\
Examples:\n  anemeter bless reports/a\n  anemeter bless reports/monday reports/tuesday reports/wednesday\n  \
anemeter bless reports/thursday --add-session\n  \
anemeter bless reports/a --accept-regression 'the vocabulary is twice as large'"
)]
pub(super) struct Args {
    /// Reports: files, or folders with a report.json; paths or URLs. Each is a session.
    #[arg(required = true, value_name = "REPORT")]
    reports: Vec<PathBuf>,
    /// Folder or URL of the baselines.
    #[arg(long, value_name = "DIR", default_value = BASELINES)]
    baselines: PathBuf,
    /// Add these sessions to those of the current baseline.
    #[arg(long)]
    add_session: bool,
    /// Bless although the gate fails; the reason is recorded.
    #[arg(long, value_name = "REASON", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    accept_regression: Option<String>,
    /// Bless although a report was measured on a busy machine; the reason is recorded.
    #[arg(long, value_name = "REASON", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    accept_noise: Option<String>,
    /// Skip the checks of the git working tree, to try things out in a folder of your own.
    #[arg(long)]
    scratch: bool,
    #[command(flatten)]
    files: GateFiles,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let reports = args.reports.iter().map(|path| read_report(path)).collect::<Result<Vec<_>, _>>()?;
    let rules = args.files.rules()?;
    let store = Store::open(&args.baselines)?;
    let repository = git::repository(&System, &args.baselines);
    let request = BlessRequest {
        reports,
        sessions: if args.add_session { Sessions::Added } else { Sessions::New },
        profiles: &rules.profiles,
        tree: if args.scratch { Tree::NotAsked } else { repository.tree },
        provenance: Provenance {
            who: repository.who,
            when: iso8601(SystemTime::now()),
            git: repository.git,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Provenance::default()
        },
        accept_regression: args.accept_regression.clone(),
        steadiness: rules.gates.steadiness(),
        accept_noise: args.accept_noise.clone(),
    };
    match bless(&store, &request, &mut stored_gate(&rules)) {
        Ok(blessing) => {
            let place = store.place(&blessing.blessed.key);
            match args.json {
                true => output.json(&text::document(&blessing, &place))?,
                false => output.text(text::blessed(&blessing, &place))?,
            }
            Ok(Status::Good)
        }
        Err(BlessError::Refused(refused)) => {
            match args.json {
                true => output.json(&text::refused_document(&refused.0))?,
                false => output.text(text::refused(&refused.0))?,
            }
            Ok(Status::Failed)
        }
        Err(error) => Err(error.into()),
    }
}
