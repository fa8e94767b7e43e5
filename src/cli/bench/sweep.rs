//! `anemeter bench --sweep`: several configurations, one table.

use std::path::Path;

use super::upload::{REPORT, Upload};
use super::{Args, measure, write};
use crate::cli::output::{create_folder, keep_measurement, write_file};
use crate::cli::{Failure, Output, Result, Status};
use crate::evaluate::sweep::SweepPlan;
use crate::hardware::{Machine, System, match_profile};
use crate::render::chart::{self, Theme};
use crate::render::{Table, html};
use crate::runtime;
use crate::sweep::{NotRun, Sweep, SweepRow};

/// The file that has the table.
const SWEEP: &str = "sweep.json";
/// The page with the reports of all candidates.
const PAGE: &str = "sweep.html";
/// The chart of size, speed and quality.
const FRONTIER: &str = "frontier.svg";

pub(super) fn run(args: &Args, path: &Path, output: &mut Output) -> Result<Status> {
    let plan = SweepPlan::read(path, runtime::choose(args.runtime.given())?.name())?;
    let profiles = args.profiles.read()?;
    let machine = Machine::detect(&System);
    let profile = match_profile(&profiles, &machine).profile;
    let upload = Upload::open(args.out.as_deref(), SWEEP)?;
    let folder = super::local(args).map_or_else(|| Path::new(super::REPORTS).join("sweep"), Path::to_owned);
    create_folder(&folder)?;
    let workload = super::config(args)?;
    let mut reports = Vec::new();
    let result =
        plan.run(&workload, (&machine, &profile.production_mix), |index, candidate, bundle, config| {
            super::note(format_args!("{}", candidate.name));
            let name = file_name(index, &candidate.name);
            keep_measurement(&folder.join(&name).join(super::REPORT), args.force)?;
            let report = measure(args, bundle, config, &profiles)?;
            write(&folder.join(&name), &report)?;
            if let Some(upload) = &upload {
                upload.copy(&folder.join(&name), &format!("{name}/"), &REPORT)?;
            }
            reports.push(report.clone());
            Ok::<_, Failure>(report)
        })?;
    let json = serde_json::to_vec_pretty(&result).map_err(|e| Failure::bad_input(format!("{SWEEP}: {e}")))?;
    write_file(&folder.join(SWEEP), &json)?;
    let mut written = vec![SWEEP, PAGE];
    write_file(&folder.join(PAGE), html(&reports)?.as_bytes())?;
    if let Some(chart) = chart::sweep(&result, Theme::File)? {
        write_file(&folder.join(FRONTIER), chart.svg.as_bytes())?;
        written.push(FRONTIER);
    }
    if let Some(upload) = &upload {
        upload.copy(&folder, "", &written)?;
        super::note(format_args!("copied to {}", upload.place(SWEEP)));
    }
    match args.json {
        true => output.json(&result)?,
        false => print(&result, output)?,
    }
    let failed = result.rows.iter().any(|row| row.failed_launches > 0);
    Ok(if failed { Status::Failed } else { Status::Good })
}

/// A folder's name for a candidate, in plain letters.
fn file_name(index: usize, name: &str) -> String {
    let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' });
    format!("{}-{}", index + 1, letters.take(80).collect::<String>().trim_start_matches('.'))
}

fn print(sweep: &Sweep, output: &mut Output) -> Result<()> {
    let reference = sweep.reference.escape_debug();
    output.line(format_args!("seq_len {}, compared with {reference}", sweep.seq_len))?;
    output.text(table(sweep))?;
    match &sweep.best {
        Some(best) => output.line(format_args!("best: {}: {}", best.name.escape_debug(), best.reason)),
        None => output.line("best: none is right, good enough and within the memory limit"),
    }
}

fn table(sweep: &Sweep) -> String {
    let configuration = ["configuration", "units", "precision", ">batch"];
    let speed = [">TTFT p50 ms", ">prefill speed-up", ">TPS p50", ">speed-up"];
    let size = [">peak MB", ">TPS per GB", ">package MB", ">compression"];
    let quality = [">KL", ">top-1", ">perplexity", "frontier"];
    let mut table = Table::new(&[configuration, speed, size, quality].concat());
    for row in &sweep.rows {
        table.row(cells(row));
    }
    format!("{table}{}{}", excluded(sweep), not_run(sweep))
}

/// Rows that cannot be the best, whatever their figures.
fn excluded(sweep: &Sweep) -> String {
    let line = |row: &SweepRow| {
        Some(format!("{}: not eligible: {}\n", row.name.escape_debug(), row.excluded.as_ref()?))
    };
    sweep.rows.iter().filter_map(line).collect()
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
        row.compute_units.to_string(),
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
        number(row.kl, 4),
        row.top1.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0)),
        number(row.perplexity, 3),
        if row.on_frontier { "yes" } else { "" }.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_folders_are_plain() {
        assert_eq!(file_name(0, "fp16 io 2 threads"), "1-fp16-io-2-threads");
        assert_eq!(file_name(2, "../../etc"), "3--..-etc");
    }
}
