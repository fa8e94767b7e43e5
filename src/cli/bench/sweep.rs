//! `anemeter bench --sweep`: several configurations, one table.

use std::path::Path;

use super::upload::{REPORT, Upload};
use super::{Args, measure, write};
use crate::cli::output::{create_folder, keep_measurement, write_file};
use crate::cli::{Failure, Output, Result, Status};
use crate::evaluate::sweep::SweepPlan;
use crate::hardware::{Machine, System, match_profile};
use crate::render::chart::{self, Theme};
use crate::render::{best, sweep_html, sweep_subtitle, sweep_tables};
use crate::runtime;
use crate::sweep::Sweep;

/// The file that has the table.
const SWEEP: &str = "sweep.json";
/// The page with the decision and the reports of all candidates.
const PAGE: &str = "sweep.html";

pub(super) fn run(args: &Args, path: &Path, output: &mut Output) -> Result<Status> {
    let plan = SweepPlan::read(path, runtime::choose(args.runtime.given())?.name())?;
    let profiles = args.profiles.read()?;
    let machine = Machine::detect(&System);
    let profile = match_profile(&profiles, &machine).profile;
    let upload = Upload::open(args.out.as_deref(), SWEEP)?;
    let folder = super::local(args).map_or_else(|| Path::new(super::REPORTS).join("sweep"), Path::to_owned);
    create_folder(&folder)?;
    // Before anything is measured, so that a sweep does not end in its middle.
    for (index, candidate) in plan.candidates().enumerate() {
        let report = folder.join(file_name(index, &candidate.name)).join(super::REPORT);
        keep_measurement(&report, args.force)?;
    }
    let workload = super::config(args, None)?;
    let mut reports = Vec::new();
    let result =
        plan.run(&workload, (&machine, &profile.production_mix), |index, candidate, bundle, config| {
            super::note(format_args!("{}", candidate.name));
            let name = file_name(index, &candidate.name);
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
    let mut written = vec![SWEEP.to_owned(), PAGE.to_owned()];
    write_file(&folder.join(PAGE), sweep_html(&result, &reports)?.as_bytes())?;
    for chart in chart::sweep(&result, Theme::File)? {
        let name = format!("{}.svg", chart.name);
        write_file(&folder.join(&name), chart.svg.as_bytes())?;
        written.push(name);
    }
    if let Some(upload) = &upload {
        let written: Vec<&str> = written.iter().map(String::as_str).collect();
        upload.copy(&folder, "", &written)?;
        super::note(format_args!("copied to {}", upload.place(SWEEP)));
    }
    match args.json {
        true => output.json(&result)?,
        false => print(&result, &folder, output)?,
    }
    let failed = result.rows.iter().any(|row| row.failed_launches > 0);
    Ok(if failed { Status::Failed } else { Status::Good })
}

/// A folder's name for a candidate, in plain letters.
fn file_name(index: usize, name: &str) -> String {
    let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' });
    format!("{}-{}", index + 1, letters.take(80).collect::<String>().trim_start_matches('.'))
}

fn print(sweep: &Sweep, folder: &Path, output: &mut Output) -> Result<()> {
    output.line(sweep_subtitle(sweep))?;
    for table in sweep_tables(sweep) {
        output.text(table)?;
        output.line("")?;
    }
    output.line(best(sweep))?;
    output.line(format_args!("page: {}", folder.join(PAGE).display()))
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
