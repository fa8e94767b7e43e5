//! What several commands are given: files of settings, reports by path or URL, and times.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::output::{note, warn};
use super::{Failure, Result};
use crate::advice::Advice;
use crate::baseline::storage;
use crate::bundle::{Bundle, Origin};
use crate::compress::{CompressError, Precision};
use crate::evaluate::GateRules;
use crate::files;
use crate::hardware::Profiles;
use crate::harness::{BenchConfig, Processes};
use crate::report::Report;
use crate::schema;

/// Opens a bundle, or packages as one; says what contract they keep and what is wrong with the files beside them.
pub(super) fn open_bundle(path: &Path) -> Result<Bundle> {
    let bundle = Bundle::open_any(path)?;
    let manifest = bundle.manifest();
    if manifest.origin == Origin::Adopted {
        manifest.warnings.iter().for_each(|warning| warn(format_args!("warning: {warning}")));
    }
    if let Some(contract) = &manifest.contract {
        note(format_args!("contract: {contract}"));
    }
    Ok(bundle)
}

/// What a gate judges by.
#[derive(clap::Args)]
pub(super) struct GateFiles {
    /// Limits and waivers of the gate [default: configs/gates.yaml, built in].
    #[arg(long, value_name = "FILE")]
    gates: Option<PathBuf>,
    #[command(flatten)]
    profiles: ProfilesFile,
}

/// What hardware is known.
#[derive(clap::Args)]
pub(super) struct ProfilesFile {
    /// Hardware profiles [default: configs/hardware_profiles.yaml, built in].
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
}

impl GateFiles {
    pub(super) fn rules(&self) -> Result<GateRules> {
        Ok(GateRules::read(self.gates.as_deref(), self.profiles.profiles.as_deref())?)
    }

    /// The first of its flags that was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [("--gates", &self.gates), ("--profiles", &self.profiles.profiles)];
        given.into_iter().find_map(|(flag, file)| file.as_ref().map(|_| flag))
    }
}

impl ProfilesFile {
    pub(super) fn read(&self) -> Result<Profiles> {
        Ok(self.profiles.as_deref().map_or_else(Profiles::built_in, Profiles::read)?)
    }
}

/// The workload of a file, or the built-in one.
pub(super) fn workload(path: Option<&Path>) -> Result<BenchConfig> {
    Ok(path.map_or_else(BenchConfig::built_in, BenchConfig::read)?)
}

/// What starts workers of this very program.
pub(super) fn launcher() -> Result<Processes> {
    Processes::of_this_program().map_err(|e| Failure::bad_input(format!("cannot find this program: {e}")))
}

/// Whether a path is a URL.
pub(super) fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.contains("://"))
}

/// Reads a report file, `report.json` in a folder, or either by URL.
pub(super) fn read_report(path: &Path) -> Result<Report> {
    let Some(url) = path.to_str().filter(|_| is_url(path)) else {
        return Report::read(path).map_err(Failure::bad_input);
    };
    let url = url.trim_end_matches('/');
    let (folder, name) = match url.rsplit_once('/') {
        Some((folder, name)) if name.ends_with(".json") => (folder, name),
        _ => (url, "report.json"),
    };
    let storage = storage(Path::new(folder))?;
    let wrong = |problem: String| Failure::bad_input(format!("{}: {problem}", storage.place(name)));
    let stored = storage.read(name).map_err(Failure::bad_input)?;
    let stored = stored.ok_or_else(|| wrong("there is no report".to_owned()))?;
    Report::parse(&stored.bytes).map_err(|error| wrong(error.to_string()))
}

/// Whether a file is a report, of whatever version.
pub(super) fn holds_report(path: &Path) -> bool {
    let content = files::read(path, Report::LONGEST).unwrap_or_default();
    schema::stated(&content).is_some_and(|schema| schema.starts_with("anemeter.report/"))
}

/// A precision; a word that is none gets the list of those that are.
pub(super) fn precision(text: &str) -> Result<Precision, String> {
    let explained = |error: CompressError| match error.remedy() {
        Some(remedy) => format!("{error}; {remedy}"),
        None => error.to_string(),
    };
    text.parse().map_err(explained)
}

/// A size such as `512MiB`, `16GiB` or a number of bytes.
pub(super) fn bytes(text: &str) -> Result<usize, String> {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1usize)];
    let found = units.iter().find_map(|&(unit, size)| Some((text.strip_suffix(unit)?, size)));
    let bytes = found.and_then(|(number, size)| number.parse::<usize>().ok()?.checked_mul(size));
    bytes.filter(|&bytes| bytes > 0).ok_or_else(|| format!("`{text}` is not a size such as 512MiB or 16GiB"))
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
    fn sizes_may_have_a_unit() {
        assert_eq!((bytes("512MiB"), bytes("7")), (Ok(512 << 20), Ok(7)));
        for wrong in ["", "0", "0GiB", "-1", "MiB", "1.5GiB", "99999999999GiB", "1TB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

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
