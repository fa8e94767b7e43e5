//! `anemeter baselines`: what was blessed, when, by whom, and whether it is still what it was.

mod text;

use std::path::PathBuf;

use rayon::prelude::*;

use super::bless::BASELINES;
use super::{Failure, Output, Result, Status};
use crate::baseline::{Key, Store};
use crate::report::Report;

/// List, show and verify blessed baselines.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  anemeter baselines log\n  anemeter baselines show apple-m1\n  \
anemeter baselines verify --baselines s3://bucket/baselines")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List every bless, newest first.
    Log(Selection),
    /// Show current baselines with their sessions and figures.
    Show(Selection),
    /// Check every digest, link and name; exit code 1 if one is wrong.
    Verify(StoreArgs),
}

#[derive(clap::Args)]
struct Selection {
    /// Only baselines whose profile/model/workload contains this.
    #[arg(value_name = "TEXT")]
    contains: Option<String>,
    #[command(flatten)]
    place: StoreArgs,
}

#[derive(clap::Args)]
struct StoreArgs {
    /// Folder or URL of the baselines.
    #[arg(long, value_name = "DIR", default_value = BASELINES)]
    baselines: PathBuf,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    match &args.command {
        Command::Log(selection) => log(selection, output),
        Command::Show(selection) => show(selection, output),
        Command::Verify(place) => verify(place, output),
    }
}

fn log(selection: &Selection, output: &mut Output) -> Result<Status> {
    let store = Store::open(&selection.place.baselines)?;
    let history = |key: &Key| {
        let mut history = store.history(key)?;
        history.iter_mut().flat_map(|blessed| &mut blessed.sessions).for_each(Report::forget_samples);
        Ok(history)
    };
    let histories = keys(&store, selection)?.par_iter().map(history).collect::<Vec<Result<_>>>();
    let histories = histories.into_iter().collect::<Result<Vec<_>, _>>()?;
    match selection.place.json {
        true => output.json(&text::log_document(&histories))?,
        false => output.text(text::log(&histories))?,
    }
    Ok(Status::Good)
}

fn show(selection: &Selection, output: &mut Output) -> Result<Status> {
    let store = Store::open(&selection.place.baselines)?;
    let found =
        keys(&store, selection)?.iter().map(|key| store.latest(key)).collect::<Result<Vec<_>, _>>()?;
    match selection.place.json {
        true => output.json(&text::show_document(&found, &store))?,
        false => output.text(text::show(&found, &store))?,
    }
    Ok(Status::Good)
}

fn verify(place: &StoreArgs, output: &mut Output) -> Result<Status> {
    let audit = Store::open(&place.baselines)?.verify()?;
    match place.json {
        true => output.json(&text::audit_document(&audit))?,
        false => output.text(text::audit(&audit))?,
    }
    Ok(if audit.findings.is_empty() { Status::Good } else { Status::Failed })
}

/// The keys that are meant; none at all is an error.
fn keys(store: &Store, selection: &Selection) -> Result<Vec<Key>> {
    let all = store.keys()?;
    let place = selection.place.baselines.display();
    if all.is_empty() {
        return Err(Failure::bad_input(format!("{place}: there is no baseline")).with_help(
            "bless a report: `anemeter bless REPORT`; a damaged one is found by `anemeter baselines verify`",
        ));
    }
    let Some(text) = &selection.contains else { return Ok(all) };
    let found: Vec<Key> = all.iter().filter(|key| key.to_string().contains(text)).cloned().collect();
    if found.is_empty() {
        let names: Vec<String> = all.iter().take(5).map(ToString::to_string).collect();
        return Err(Failure::bad_input(format!("{place}: no baseline has `{text}` in its name"))
            .with_help(format!("there are {}", names.join(", "))));
    }
    Ok(found)
}
