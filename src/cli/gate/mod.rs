//! `anemeter gate`: a report against its baseline.

mod baseline;
mod rerun;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::bless::BASELINES;
use super::output::warn;
use super::report::terminal_table;
use super::{Failure, Output, Status};
use crate::gate::{self, Date, GatesFile, Look, Options, Outcome, Policy, Verdict};
use crate::generate::utc_time;
use crate::hardware::Profiles;
use crate::render;
use crate::report::Report;

/// Judge a report by its baseline: did anything get worse than allowed?
#[derive(clap::Args)]
#[command(
    after_help = "Exit code 0: nothing is worse than allowed; 1: something is; 2: the two cannot be compared; 3: noise leaves it \
open, and the output says how many more launches would settle it. With GITHUB_ACTIONS set, annotations go to standard error.\n\n\
Examples:\n  anemeter gate reports/a\n  anemeter gate reports/a --baseline reports/old --format md\n  \
anemeter gate reports/a --format junit > gate.xml\n  anemeter gate reports/a --rerun smollm2 --budget 20m"
)]
pub(super) struct Args {
    /// The report file, or a folder with a report.json, as a path or URL.
    report: PathBuf,
    /// Folder or URL of the baselines.
    #[arg(long, value_name = "DIR", default_value = BASELINES)]
    baselines: PathBuf,
    /// Compare with this report instead of a blessed one; several are sessions of one baseline, oldest first.
    #[arg(long, value_name = "REPORT", num_args = 1.., conflicts_with = "baselines")]
    baseline: Vec<PathBuf>,
    /// Compare speeds of different hardware profiles. Says little, is marked as such and blesses nothing.
    #[arg(long)]
    allow_cross_hw: bool,
    /// How to print the verdict.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Limits and waivers [default: those of configs/gates.yaml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Hardware profiles [default: those of configs/hardware_profiles.yaml].
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// While it is inconclusive, measure more launches of this bundle; they are added to a copy of the report beside it.
    #[arg(long, value_name = "BUNDLE")]
    rerun: Option<PathBuf>,
    /// Time for those launches, such as 90s, 20m or 1h.
    #[arg(long, value_name = "TIME", default_value = "20m", value_parser = duration, requires = "rerun")]
    budget: Duration,
    /// The workload that the report was measured with [default: that of configs/bench.yaml].
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

/// Everything that a verdict needs.
struct Case {
    report: Report,
    sessions: Vec<Report>,
    policy: Policy,
    allow_cross_hardware: bool,
}

impl Case {
    fn open(args: &Args) -> Result<Case, Failure> {
        let report = super::report::read(&args.report)?;
        let profiles = super::bench::profiles(args.profiles.as_deref())?;
        let file = args.config.as_deref().map_or_else(GatesFile::built_in, GatesFile::read)?;
        let sessions = baseline::sessions(args, &report)?;
        let policy = policy(&profiles, &report, &file);
        Ok(Case { report, sessions, policy, allow_cross_hardware: args.allow_cross_hw })
    }

    fn judge(&self, look: Look) -> Result<Verdict, Failure> {
        let options = Options { today: today()?, look, allow_cross_hardware: self.allow_cross_hardware };
        let sessions: Vec<&Report> = self.sessions.iter().collect();
        Ok(gate::judge(&self.report, &sessions, &self.policy, &options)?)
    }
}

/// The day, for waivers.
pub(super) fn today() -> Result<Date, Failure> {
    let today = utc_time(SystemTime::now(), "%Y-%m-%d");
    Date::parse(&today).ok_or_else(|| Failure::bad_input(format!("the clock says {today}, which is no day")))
}

/// What is allowed on the profile of a report.
pub(super) fn policy(profiles: &Profiles, report: &Report, file: &GatesFile) -> Policy {
    Policy::new(&profiles.of_key(&report.header.hardware_profile_key), file)
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    let mut case = Case::open(args)?;
    if args.allow_cross_hw {
        warn("warning: --allow-cross-hw: speeds of different hardware may be compared; this blesses nothing");
    }
    let verdict = match &args.rerun {
        Some(bundle) => rerun::settle(&mut case, args, bundle)?,
        None => case.judge(Look::only())?,
    };
    print(&verdict, args.format, output)?;
    if std::env::var_os("GITHUB_ACTIONS").is_some() {
        render::annotations(&verdict).iter().for_each(warn);
    }
    Ok(status(verdict.outcome))
}

pub(super) fn status(outcome: Outcome) -> Status {
    match outcome {
        Outcome::Pass => Status::Good,
        Outcome::Fail => Status::Failed,
        Outcome::Inconclusive => Status::Inconclusive,
    }
}

fn print(verdict: &Verdict, format: Format, output: &mut Output) -> Result<(), Failure> {
    match format {
        Format::Json => output.json(verdict),
        Format::Md => output.text(render::verdict_markdown(verdict)),
        Format::Junit => output.text(render::junit(verdict)?),
        Format::Text => output.text(text(verdict)),
    }
}

/// A verdict for the terminal.
pub(super) fn text(verdict: &Verdict) -> String {
    let tables = render::verdict_tables(verdict);
    let tables: String = tables.iter().map(|table| format!("\n{}", terminal_table(table))).collect();
    format!("{}\n{tables}", render::headline(verdict).escape_debug())
}

/// A time such as `90s`, `20m` or `1h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time such as 90s, 20m or 1h");
    let unit = text.chars().last().filter(|c| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1.0,
        'm' => 60.0,
        'h' => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    if !(number > 0.0 && number * seconds <= 7.0 * 86_400.0) {
        return Err(format!("`{text}` is not between nothing and a week"));
    }
    Ok(Duration::from_secs_f64(number * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("20m"), Ok(Duration::from_secs(1200)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "20", "m", "-3m", "0s", "20d", "nanm", "1e9h", "3µ"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
