//! `anemeter bench --sweep`: several configurations, one table.

use std::path::Path;

use super::upload::{REPORT, Upload};
use super::{Args, measure, profiles, write};
use crate::bundle::Bundle;
use crate::cli::output::{create_folder, write_file};
use crate::cli::table::Table;
use crate::cli::{Failure, Output, Status};
use crate::hardware::{Machine, System, match_profile};
use crate::report::Report;
use crate::runtime;
use crate::sweep::{Candidate, NotRun, Sweep, SweepConfig, SweepRow};

/// The file that has the table.
const SWEEP: &str = "sweep.json";

pub(super) fn run(args: &Args, path: &Path, output: &mut Output) -> Result<Status, Failure> {
    let sweep = SweepConfig::read(path)?;
    let (candidates, not_run) = split(&sweep, runtime::choose(&args.runtime)?.name());
    let reference = reference(&sweep, &candidates, &not_run).map_err(|problem| Failure::at(path, problem))?;
    let profiles = profiles(args.profiles.as_deref())?;
    let machine = Machine::detect(&System);
    let profile = match_profile(&profiles, &machine).profile;
    let bundles: Vec<Bundle> =
        candidates.iter().map(|candidate| Bundle::open(&candidate.bundle)).collect::<Result<_, _>>()?;
    let upload = Upload::open(args.out.as_deref(), SWEEP)?;
    let folder = super::local(args).map_or_else(|| Path::new(super::REPORTS).join("sweep"), Path::to_owned);
    create_folder(&folder)?;
    let mut reports: Vec<(String, Report)> = Vec::new();
    for (candidate, bundle) in candidates.iter().zip(&bundles) {
        super::note(format_args!("{}", candidate.name));
        let mut config = super::config(args)?;
        config.compute_units = candidate.units.or(config.compute_units);
        config.kv = candidate.kv.or(config.kv);
        config.threads = candidate.threads.or(config.threads);
        let report = measure(args, bundle, config, &profiles)?;
        let name = file_name(reports.len(), &candidate.name);
        write(&folder.join(&name), &report)?;
        if let Some(upload) = &upload {
            upload.copy(&folder.join(&name), &format!("{name}/"), &REPORT)?;
        }
        reports.push((candidate.name.clone(), report));
    }
    let limit = sweep.memory_limit_gb.map(|gb| gb * 1e9);
    let limit = limit.or(machine.safe_memory_bytes().map(|bytes| bytes as f64));
    let Some(result) = Sweep::new(&reports, &reference, &profile.shape_mix, limit) else {
        return Err(Failure::bad_input("the bundles have no shape in common")
            .with_help("export them with common shapes, or choose with --shapes"));
    };
    let result = result.without(not_run);
    let json = serde_json::to_vec_pretty(&result).map_err(|e| Failure::bad_input(format!("{SWEEP}: {e}")))?;
    write_file(&folder.join(SWEEP), &json)?;
    if let Some(upload) = &upload {
        upload.copy(&folder, "", &[SWEEP])?;
        super::note(format_args!("copied to {}", upload.place(SWEEP)));
    }
    match args.json {
        true => output.json(&result)?,
        false => print(&result, output)?,
    }
    let failed = result.rows.iter().any(|row| row.failed_launches > 0);
    Ok(if failed { Status::Failed } else { Status::Good })
}

/// What a runtime can run, and what it cannot.
fn split(sweep: &SweepConfig, runtime: &str) -> (Vec<Candidate>, Vec<NotRun>) {
    let (mut run, mut not_run) = (Vec::new(), Vec::new());
    for candidate in sweep.candidates() {
        match candidate.not_run_by(runtime) {
            Some(reason) => not_run.push(NotRun { name: candidate.name, reason }),
            None => run.push(candidate),
        }
    }
    (run, not_run)
}

/// Name of the candidate that others are compared with, known before anything is measured.
fn reference(sweep: &SweepConfig, run: &[Candidate], not_run: &[NotRun]) -> Result<String, String> {
    let wanted = sweep.reference.as_ref();
    let missing = not_run.iter().find(|left_out| wanted.is_none_or(|name| *name == left_out.name));
    match (wanted, run, missing) {
        (None, [first, ..], _) => Ok(first.name.clone()),
        (Some(name), [_, ..], None) => Ok(name.clone()),
        (_, [], Some(NotRun { reason, .. })) => Err(format!("nothing can be run: {reason}")),
        (_, _, Some(NotRun { name, reason })) => Err(format!("`reference` is `{name}`, but {reason}")),
        (_, [], None) => Err("nothing can be run".to_owned()),
    }
}

/// A folder's name for a candidate, in plain letters.
fn file_name(index: usize, name: &str) -> String {
    let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' });
    format!("{}-{}", index + 1, letters.take(80).collect::<String>().trim_start_matches('.'))
}

fn print(sweep: &Sweep, output: &mut Output) -> Result<(), Failure> {
    output.line(format_args!("shape {}, compared with {}", sweep.shape, sweep.reference.escape_debug()))?;
    output.text(table(sweep))?;
    match &sweep.best {
        Some(best) => output.line(format_args!("best: {}: {}", best.name.escape_debug(), best.reason)),
        None => output.line("best: none fits the memory limit"),
    }
}

fn table(sweep: &Sweep) -> String {
    let mut table = Table::new(&[
        "configuration",
        "units",
        "precision",
        ">batch",
        ">TTFT p50 ms",
        ">prefill speed-up",
        ">TPS p50",
        ">speed-up",
        ">peak MB",
        ">TPS per GB",
        ">package MB",
        ">compression",
    ]);
    for row in &sweep.rows {
        table.row(cells(row));
    }
    format!("{table}{}", not_run(sweep))
}

/// Rows without figures: their words would make a column too wide.
fn not_run(sweep: &Sweep) -> String {
    let names = sweep.rows.iter().map(|row| &row.name).chain(sweep.not_run.iter().map(|row| &row.name));
    let names = names.map(|name| name.escape_debug().to_string().chars().count());
    let width = names.max().unwrap_or(0);
    let line = |NotRun { name, reason }: &NotRun| {
        format!("{:width$}  not run: {reason}\n", name.escape_debug().to_string())
    };
    sweep.not_run.iter().map(line).collect()
}

fn cells(row: &SweepRow) -> Vec<String> {
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
    };
    let times = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}x"));
    vec![
        row.name.clone(),
        row.compute_units.clone(),
        row.precision.clone(),
        row.batch.to_string(),
        number(row.ttft_ms, 1),
        times(row.prefill_speed_up),
        number(row.tokens_per_second, 1),
        times(row.speed_up),
        number(row.memory_peak_bytes.map(|bytes| bytes / 1e6), 0),
        number(row.tokens_per_second_per_gb, 1),
        format!("{:.1}", row.package_bytes as f64 / 1e6),
        times(Some(row.compression_ratio)),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_reference_that_cannot_be_run_is_refused() {
        let named = |name: &str| Candidate {
            name: name.to_owned(),
            bundle: PathBuf::new(),
            units: None,
            kv: None,
            threads: None,
        };
        let left_out = [NotRun { name: "x all".to_owned(), reason: "it has no units".to_owned() }];
        let choose = |more: &str, run: &[Candidate], not_run: &[NotRun]| {
            let text =
                "schema: anemeter.sweep/1\nbundles: [{ name: x, path: p }]\ncompute_units: [cpu, all]\n";
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("sweep.yaml");
            write_file(&path, format!("{text}{more}").as_bytes()).unwrap();
            reference(&SweepConfig::read(&path).unwrap(), run, not_run)
        };
        let run = [named("x cpu")];
        assert_eq!(choose("", &run, &left_out).unwrap(), "x cpu");
        assert_eq!(choose("reference: x cpu", &run, &left_out).unwrap(), "x cpu");
        let refused = choose("reference: x all", &run, &left_out).unwrap_err();
        assert_eq!(refused, "`reference` is `x all`, but it has no units");
        assert_eq!(choose("", &[], &left_out).unwrap_err(), "nothing can be run: it has no units");
    }

    #[test]
    fn names_of_folders_are_plain() {
        assert_eq!(file_name(0, "fp16 io 2 threads"), "1-fp16-io-2-threads");
        assert_eq!(file_name(2, "../../etc"), "3--..-etc");
    }
}
