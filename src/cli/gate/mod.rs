//! `anemeter gate`: a report against its baseline.

mod rerun;

use std::path::PathBuf;
use std::time::Duration;

use super::bless::BASELINES;
use super::inputs::{GateFiles, duration, read_report};
use super::output::{note, warn, workflow_command};
use super::{Output, Result, Status};
use crate::baseline::Store;
use crate::evaluate::{Baseline, GateRules};
use crate::gate::{InterimLook, Outcome, Verdict};
use crate::render;
use crate::report::Report;
use crate::text::visible;

/// Gate a report against its blessed baseline: fail if speed, memory, residency or quality regressed beyond the limits.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code 0: no regression beyond the limits; 1: regression; 2: the two cannot be compared; 3: inconclusive \
because of noise, and the output names the launches that would decide it. With GITHUB_ACTIONS set, annotations go to standard error.\n\n\
Examples:\n  anemeter gate reports/a\n  anemeter gate reports/a --baseline reports/old --format md\n  \
anemeter gate reports/a --format junit > gate.xml\n  anemeter gate reports/a --rerun smollm2 --budget 20m"
)]
pub(super) struct Args {
    /// The report: a file, or a folder with a report.json; path or URL.
    report: PathBuf,
    /// Folder or URL of the baselines.
    #[arg(long, value_name = "DIR", default_value = BASELINES)]
    baselines: PathBuf,
    /// Use this report as the baseline instead of a blessed one; several are sessions of one baseline, oldest first.
    #[arg(long, value_name = "REPORT", num_args = 1.., conflicts_with = "baselines")]
    baseline: Vec<PathBuf>,
    /// Allow a baseline of another hardware profile. The verdict is marked as such.
    #[arg(long)]
    allow_cross_hw: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Short for --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    junit: Junit,
    #[command(flatten)]
    files: GateFiles,
    /// While the verdict is inconclusive, benchmark this bundle again; the launches are added to a copy of the report.
    #[arg(long, value_name = "BUNDLE")]
    rerun: Option<PathBuf>,
    /// Time limit for --rerun, such as 90s, 20m or 1h.
    #[arg(long, value_name = "TIME", default_value = "20m", value_parser = duration, requires = "rerun")]
    budget: Duration,
    /// The workload of the report, for --rerun [default: configs/bench.yaml, built in].
    #[arg(long, value_name = "FILE", requires = "rerun")]
    workload: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Tables for the terminal.
    Text,
    /// Markdown for a pull request.
    Md,
    /// One JSON document.
    Json,
    /// JUnit XML.
    Junit,
}

/// How JUnit XML tells what it has no word for.
#[derive(clap::Args)]
pub(super) struct Junit {
    /// What an inconclusive check is in JUnit XML.
    #[arg(long, value_name = "RESULT", value_enum, default_value_t = Inconclusive::Skipped)]
    junit_inconclusive: Inconclusive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Inconclusive {
    /// A skipped test.
    Skipped,
    /// A failed test.
    Failed,
}

impl Junit {
    /// A verdict as JUnit XML.
    pub(super) fn of(&self, verdict: &Verdict) -> Result<String> {
        let inconclusive = match self.junit_inconclusive {
            Inconclusive::Skipped => render::JunitInconclusive::Skipped,
            Inconclusive::Failed => render::JunitInconclusive::Failed,
        };
        Ok(render::junit(verdict, inconclusive)?)
    }
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let report = read_report(&args.report)?;
    let mut rules = args.files.rules()?;
    rules.allow_cross_hardware = args.allow_cross_hw;
    let sessions = sessions(args, &rules, &report)?;
    if args.allow_cross_hw {
        warn("warning: --allow-cross-hw: speeds of different hardware may be compared; this blesses nothing");
    }
    let verdict = match &args.rerun {
        Some(bundle) => rerun::run(args, bundle, report, &sessions, &rules)?,
        None => rules.judge(&report, Baseline::Sessions(&sessions), InterimLook::only())?,
    };
    print(&verdict, args, output)?;
    if verdict.outcome == Outcome::Inconclusive && args.rerun.is_none() {
        note(way_on(&verdict));
    }
    if std::env::var_os("GITHUB_ACTIONS").is_some() {
        render::annotations(&verdict).iter().for_each(workflow_command);
    }
    Ok(status(verdict.outcome))
}

/// What settles a verdict that is open.
fn way_on(verdict: &Verdict) -> &'static str {
    match verdict.more_launches() {
        Some(_) => "help: --rerun BUNDLE measures more launches while the verdict is inconclusive",
        None if verdict.is_open_by_machine() => {
            "help: more launches would not settle it: measure again when the machine is as it was, or measure the blessed \
             packages and these in turns with `anemeter compare`"
        }
        None => "help: more launches alone would not settle it",
    }
}

/// Sessions of the baseline, oldest first: those that were named, or the blessed ones.
fn sessions(args: &Args, rules: &GateRules, report: &Report) -> Result<Vec<Report>> {
    if args.baseline.is_empty() {
        return Ok(rules.blessed_sessions(&Store::open(&args.baselines)?, report)?);
    }
    let help = "name a report that `anemeter bench` wrote, or leave --baseline out for the blessed one";
    let read = args.baseline.iter().map(|path| read_report(path));
    read.collect::<Result<_, _>>().map_err(|failure| failure.about("baseline").with_help(help))
}

pub(super) fn status(outcome: Outcome) -> Status {
    match outcome {
        Outcome::Pass => Status::Good,
        Outcome::Fail => Status::Failed,
        Outcome::Inconclusive => Status::Inconclusive,
    }
}

fn print(verdict: &Verdict, args: &Args, output: &mut Output) -> Result<()> {
    match if args.json { Format::Json } else { args.format } {
        Format::Json => output.json(verdict),
        Format::Md => output.text(render::verdict_markdown(verdict)),
        Format::Junit => output.document(args.junit.of(verdict)?),
        Format::Text => output.text(text(verdict)),
    }
}

/// A verdict for the terminal.
pub(super) fn text(verdict: &Verdict) -> String {
    let tables = render::verdict_tables(verdict);
    let tables: String = tables.iter().map(|table| format!("\n{table}")).collect();
    format!("{}\n{tables}", visible(&render::headline(verdict)))
}
