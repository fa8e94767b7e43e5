//! `anemeter lint X.aimodel`: the rules for Core AI.

use std::fs;
use std::path::{Path, PathBuf};

use super::Args;
use crate::bundle::packages_of;
use crate::cli::{Failure, Result};
use crate::coreai::asset::Asset;
use crate::coreai::{lint, verify};
use crate::lint::{Config, Report, RuleText};
use crate::package::Package;

/// The systems that the rules are about.
const TARGET: &str = "Core AI 27";

/// The asset at a path, or those of a folder by name.
pub(super) fn assets_of(path: &Path) -> Vec<PathBuf> {
    if Asset::is_at(path) {
        return vec![path.to_owned()];
    }
    // Whoever opens packages there says what is wrong with a folder that cannot be read.
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut assets: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| Asset::is_at(path)).collect();
    assets.sort();
    assets
}

/// Whether there are assets at a path and no packages.
pub(super) fn is_of_assets(path: &Path, assets: &[PathBuf]) -> bool {
    let has_packages = || packages_of(path).is_ok_and(|found| found.iter().any(|path| Package::is_at(path)));
    !assets.is_empty() && !has_packages()
}

/// Lints assets. What only packages have is refused, not ignored.
pub(super) fn lint_assets(args: &Args, path: &Path, assets: &[PathBuf], config: &Config) -> Result<Report> {
    let for_packages = [
        ("--target", args.target.is_some()),
        ("--device", args.device.is_some()),
        ("--training-shapes", args.training_shapes.is_some()),
        ("--compute-units", args.compute_units.is_some()),
        ("--activations", args.activations.is_some()),
    ];
    if let Some((option, _)) = for_packages.iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::at(path, format!("is a Core AI asset, and {option} is for Core ML packages"))
            .with_help(format!("leave {option} out")));
    }
    let mut found = Vec::new();
    for path in assets {
        let asset = Asset::open(path)?;
        verify(asset.program())?;
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        found.extend(lint::lint(&name, asset.program()));
    }
    Ok(Report::of_findings(path.display().to_string(), TARGET, &config.waivers, found))
}

/// The texts of the rules for assets.
pub(super) fn rule_texts() -> Vec<RuleText> {
    lint::rules().iter().map(|rule| rule.text).collect()
}
