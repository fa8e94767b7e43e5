//! What Apple's module says of assets, with the oldest and the newest wheel: `xtask/python/coreai_assets.py`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use anemeter::coreai::asset::{self, Asset};
use xtask::process::read;
use xtask::project::{Project, make_empty};

const SCRIPT: &str = "xtask/python/coreai_assets.py";
/// What the summary of every asset that is written has to say.
const SYSTEM: &str = "27.0";
/// Assets that one call of the script is given, so that command lines stay short.
const AT_ONCE: usize = 100;

#[derive(Deserialize)]
struct Version {
    version: String,
}

/// What parsing, verifying and summing up an asset came to.
#[derive(Deserialize)]
struct Parsed {
    asset: String,
    #[serde(default)]
    functions: Vec<String>,
    #[serde(default)]
    system: Option<String>,
    #[serde(default)]
    error: Option<String>,
}

/// What running a function of two assets came to.
#[derive(Deserialize)]
struct Compared {
    asset: String,
    function: String,
    #[serde(default)]
    tensors: usize,
    #[serde(default)]
    differ: Vec<String>,
    #[serde(default)]
    error: Option<String>,
    /// Whether Apple's runtime takes not even Apple's own file.
    #[serde(default)]
    first_fails_too: bool,
}

/// Lines of the script: the version of the wheel, and the rest.
fn lines<T: DeserializeOwned>(
    project: &Project,
    python: &Path,
    what: &str,
    paths: &[PathBuf],
) -> Result<(String, Vec<T>)> {
    let mut version = String::new();
    let mut found = Vec::new();
    for paths in paths.chunks(AT_ONCE) {
        let mut command = project.command(python);
        let text = read(command.arg(project.root.join(SCRIPT)).arg(what).args(paths))?;
        let mut lines = text.lines();
        version = serde_json::from_str::<Version>(lines.next().unwrap_or_default())?.version;
        let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("read `{line}`"));
        found.extend(lines.map(parse).collect::<Result<Vec<T>>>()?);
    }
    Ok((version, found))
}

/// Has every wheel parse, verify and sum up assets; tells the versions of the wheels.
pub(super) fn read_by_all(project: &Project, pythons: &[PathBuf], assets: &[PathBuf]) -> Result<String> {
    let mut versions = Vec::new();
    for python in pythons {
        let (version, found) = lines::<Parsed>(project, python, "read", assets)?;
        ensure!(found.len() == assets.len(), "{version}: {} of {} assets", found.len(), assets.len());
        for Parsed { asset, functions, system, error } in &found {
            if let Some(error) = error {
                anyhow::bail!("coreai-core {version} does not accept {asset}: {error}");
            }
            ensure!(!functions.is_empty(), "coreai-core {version} finds no function in {asset}");
            let system = system.as_deref();
            ensure!(system == Some(SYSTEM), "coreai-core {version}: {asset} is for {system:?}, not {SYSTEM}");
        }
        versions.push(format!("coreai-core {version}"));
    }
    Ok(format!("{}, for {SYSTEM}", versions.join(" and ")))
}

/// Reads assets and writes them again; Apple's runtime is to give the same bits of both, with every wheel.
pub(super) fn rewritten(
    project: &Project,
    pythons: &[PathBuf],
    assets: &[PathBuf],
    folder: &Path,
) -> Result<String> {
    let folder = folder.join("rewritten");
    make_empty(&folder)?;
    let (mut pairs, mut copies) = (Vec::new(), Vec::new());
    for path in assets {
        let read = Asset::open(path)?;
        let copy = folder.join(path.file_name().context("an asset has no name")?);
        asset::write(read.program(), read.metadata(), &copy)?;
        pairs.extend([path.clone(), copy.clone()]);
        copies.push(copy);
    }
    let versions = read_by_all(project, pythons, &copies)?;
    let mut counts = Vec::new();
    for python in pythons {
        let (version, found) = lines::<Compared>(project, python, "same", &pairs)?;
        let (mut same, mut tensors, mut refused) = (0, 0, 0);
        for Compared { asset, function, tensors: count, differ, error, first_fails_too } in &found {
            match error {
                None => {
                    ensure!(
                        differ.is_empty(),
                        "coreai-core {version}: {asset} {function} gives other {differ:?}"
                    );
                    (same, tensors) = (same + 1, tensors + count);
                }
                Some(_) if *first_fails_too => refused += 1,
                Some(error) => anyhow::bail!("coreai-core {version}: {asset} {function}: {error}"),
            }
        }
        println!(
            "  {version}: {same} functions and {tensors} tensors the same, {refused} fail as Apple's own do"
        );
        counts.push(format!("{version}: {same} functions with {tensors} tensors"));
    }
    Ok(format!("read and written again, the same bits ({}); accepted by {versions}", counts.join(", ")))
}
