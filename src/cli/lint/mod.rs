//! `anemeter lint`: what keeps a package off the Neural Engine, or breaks it.

mod asset;
mod explain;
mod markdown;
mod text;

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::Value;

use super::choice::choice;
use super::output::note;
use super::{Failure, Output, Result, Status};
use crate::lint::{ActivationRange, Config, Device, Report, Setting, Subject, Target, lint, rules, sarif};
use crate::vocabulary::{Choice, ComputeUnits};

/// Check a package or a bundle against static rules: what keeps it off the Neural Engine, slows it down there, or breaks it.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  anemeter lint model.mlpackage\n  anemeter lint exports/model --target ios18 --device a17\n  \
anemeter lint model.mlmodelc\n  anemeter lint model.aimodel\n  anemeter lint model.mlpackage --format sarif > lint.sarif\n  anemeter lint --explain A12\n\n\
Exits with 1 if there are errors. Placement is predicted, not measured."
)]
pub(super) struct Args {
    /// The .mlpackage, .mlmodelc or .aimodel, or a folder of packages such as a bundle.
    #[arg(required_unless_present = "explain")]
    package: Option<PathBuf>,
    /// System that the package is for [default: that of --waivers, or macos15].
    #[arg(long, value_parser = choice::<Target>())]
    target: Option<Target>,
    /// Chip that the package is for.
    #[arg(long, value_parser = choice::<Device>())]
    device: Option<Device>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Short for --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Waivers of findings, and settings of the lint, in YAML.
    #[arg(long, value_name = "FILE")]
    waivers: Option<PathBuf>,
    /// Sequence lengths that the model was trained on [default: those in export.json].
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    training_shapes: Option<Vec<u64>>,
    /// Compute units that Core ML may use [default: those of the bundle].
    #[arg(long, value_name = "UNITS", value_parser = choice::<ComputeUnits>())]
    compute_units: Option<ComputeUnits>,
    /// Activation ranges of a calibration: a JSON list of {"function", "tensor", "max_abs"}.
    #[arg(long, value_name = "FILE")]
    activations: Option<PathBuf>,
    /// List every finding of a rule, not only the first ones.
    #[arg(long)]
    all: bool,
    /// Explain a rule, given by its id or its name, and its evidence; `all` lists all rules.
    #[arg(long, value_name = "ID", conflicts_with = "package")]
    explain: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Tables for the terminal.
    Text,
    /// One JSON document.
    Json,
    /// SARIF for code scanning.
    Sarif,
    /// Markdown for a pull request.
    Md,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    if let Some(name) = &args.explain {
        return explain::explain(name, output);
    }
    let Some(path) = &args.package else {
        return Err(Failure::bad_input("no package is given"));
    };
    let is_rule = |name: &str| crate::lint::rule(name).is_some() || crate::coreai::lint::rule(name).is_some();
    let config =
        args.waivers.as_deref().map(|path| Config::read(path, is_rule)).transpose()?.unwrap_or_default();
    let assets = asset::assets_of(path);
    let subject = match Subject::open(path) {
        // A bundle of assets alone, or an asset.
        Err(_) if asset::is_of_assets(path, &assets) => {
            let report = asset::lint_assets(args, path, &assets, &config)?;
            return print(args, &report, || sarif::log(&report, &asset::rule_texts(), None), output);
        }
        opened => opened?,
    };
    for path in &assets {
        note(format_args!("note: {} has rules of its own: give it by itself", path.display()));
    }
    for stage in &subject.stages {
        let (name, kind) = (stage.name.escape_debug(), stage.kind);
        note(format_args!("note: {name} is a {kind} model and no ML program: no rule concerns it"));
    }
    let setting = setting(args, &config, &subject)?;
    let report = lint(&subject, &setting, &config.waivers)?;
    let texts: Vec<_> = rules().iter().map(|rule| rule.text()).collect();
    print(args, &report, || sarif::log(&report, &texts, subject.export_config.as_ref()), output)
}

fn print(args: &Args, report: &Report, sarif: impl Fn() -> Value, output: &mut Output) -> Result<Status> {
    match if args.json { Format::Json } else { args.format } {
        Format::Text => text::print(report, args.all, output)?,
        Format::Json => output.json(report)?,
        Format::Sarif => output.json(&sarif())?,
        Format::Md => markdown::print(report, output)?,
    }
    Ok(if report.counts.errors > 0 { Status::Failed } else { Status::Good })
}

/// Options over the configuration over what the export says.
fn setting(args: &Args, config: &Config, subject: &Subject) -> Result<Setting> {
    let activations = args.activations.as_deref().map(ActivationRange::read).transpose()?;
    let training_seq_lens = [&args.training_shapes, &config.training_shapes, &subject.training_seq_lens];
    let given_units = args.compute_units.map(|units| units.name().to_owned());
    let compute_units = [&given_units, &config.compute_units, &subject.compute_units];
    Ok(Setting {
        target: args.target.or(config.target).unwrap_or_default(),
        device: args.device.or(config.device),
        training_seq_lens: training_seq_lens.into_iter().find_map(Clone::clone),
        compute_units: compute_units.into_iter().find_map(Clone::clone),
        activations,
    })
}
