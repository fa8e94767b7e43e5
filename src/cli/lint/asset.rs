//! `anemeter lint X.aimodel`: the rules for Core AI.

use std::path::Path;

use super::Args;
use crate::cli::{Failure, Result};
use crate::coreai::asset::Asset;
use crate::coreai::{lint, verify};
use crate::lint::{Config, Report, RuleText};

/// The systems that the rules are about.
const TARGET: &str = "Core AI 27";

/// Lints an asset. What only packages have is refused, not ignored.
pub(super) fn lint_asset(args: &Args, path: &Path, config: &Config) -> Result<Report> {
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
    let asset = Asset::open(path)?;
    verify(asset.program())?;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let found = lint::lint(&name, asset.program());
    Ok(Report::of_findings(path.display().to_string(), TARGET, &config.waivers, found))
}

/// The texts of the rules for assets.
pub(super) fn rule_texts() -> Vec<RuleText> {
    lint::rules().iter().map(|rule| rule.text).collect()
}
