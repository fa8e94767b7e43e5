//! `anemeter bench --sweep`: several configurations, one table.

use std::path::Path;

use super::{Args, measure, profiles, write};
use crate::bundle::Bundle;
use crate::cli::output::write_file;
use crate::cli::table::Table;
use crate::cli::{Failure, Output, Status};
use crate::hardware::{Machine, System, match_profile};
use crate::report::Report;
use crate::sweep::{Sweep, SweepConfig, SweepRow};

pub(super) fn run(args: &Args, path: &Path, output: &mut Output) -> Result<Status, Failure> {
    let sweep = SweepConfig::read(path)?;
    let candidates = sweep.candidates();
    let profiles = profiles(args.profiles.as_deref())?;
    let machine = Machine::detect(&System);
    let profile = match_profile(&profiles, &machine).profile;
    let bundles: Vec<Bundle> =
        candidates.iter().map(|candidate| Bundle::open(&candidate.bundle)).collect::<Result<_, _>>()?;
    let folder = args.out.clone().unwrap_or_else(|| Path::new(super::REPORTS).join("sweep"));
    super::create(&folder)?;
    let mut reports: Vec<(String, Report)> = Vec::new();
    for (candidate, bundle) in candidates.iter().zip(&bundles) {
        super::note(format_args!("{}", candidate.name));
        let mut config = super::config(args)?;
        config.kv = candidate.kv.or(config.kv);
        config.threads = candidate.threads.or(config.threads);
        let report = measure(args, bundle, config, &profiles)?;
        write(&folder.join(file_name(reports.len(), &candidate.name)), &report)?;
        reports.push((candidate.name.clone(), report));
    }
    let reference = sweep.reference.clone().unwrap_or_else(|| candidates[0].name.clone());
    let limit = sweep.memory_limit_gb.map(|gb| gb * 1e9);
    let limit = limit.or(machine.safe_memory_bytes().map(|bytes| bytes as f64));
    let Some(result) = Sweep::new(&reports, &reference, &profile.shape_mix, limit) else {
        return Err(Failure::bad_input("the bundles have no shape in common")
            .with_help("export them with common shapes, or choose with --shapes"));
    };
    let json =
        serde_json::to_vec_pretty(&result).map_err(|e| Failure::bad_input(format!("sweep.json: {e}")))?;
    write_file(&folder.join("sweep.json"), &json)?;
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

fn print(sweep: &Sweep, output: &mut Output) -> Result<(), Failure> {
    output.line(format_args!("shape {}, compared with {}", sweep.shape, sweep.reference.escape_debug()))?;
    output.text(table(sweep))?;
    match &sweep.best {
        Some(best) => output.line(format_args!("best: {}: {}", best.name.escape_debug(), best.reason)),
        None => output.line("best: none fits the memory limit"),
    }
}

fn table(sweep: &Sweep) -> Table {
    let mut table = Table::new(&[
        "configuration",
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
    table
}

fn cells(row: &SweepRow) -> Vec<String> {
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
    };
    let times = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}x"));
    vec![
        row.name.clone(),
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
    use super::*;

    #[test]
    fn names_of_folders_are_plain() {
        assert_eq!(file_name(0, "fp16 io 2 threads"), "1-fp16-io-2-threads");
        assert_eq!(file_name(2, "../../etc"), "3--..-etc");
    }
}
