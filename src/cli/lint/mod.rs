//! `anemeter lint`: what keeps a package off the Neural Engine, or breaks it.

mod explain;
mod markdown;
mod text;

use std::path::PathBuf;

use clap::ValueEnum;

use super::{Failure, Output, Status};
use crate::lint::{ActivationRange, Config, Device, Setting, Subject, Target, lint, sarif};

/// Check a package against static rules: what keeps it off the Neural Engine, slows it there, or breaks it.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  anemeter lint model.mlpackage\n  anemeter lint exports/model --target ios18 --device a17\n  \
anemeter lint model.mlpackage --format sarif > lint.sarif\n  anemeter lint --explain A12\n\n\
Exits with 1 if there are errors. Placement is predicted, not measured."
)]
pub(super) struct Args {
    /// The .mlpackage, or a folder of packages such as an export writes.
    #[arg(required_unless_present = "explain")]
    package: Option<PathBuf>,
    /// The system it is meant for; macos15 unless the configuration says otherwise.
    #[arg(long)]
    target: Option<Target>,
    /// The chip it is meant for.
    #[arg(long)]
    device: Option<Device>,
    /// How to print the findings.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// A configuration with waivers, in YAML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Sequence lengths that the model was trained at, such as 512,1024.
    #[arg(long, value_name = "LENGTHS", value_delimiter = ',')]
    training_shapes: Option<Vec<u64>>,
    /// Compute units that runs ask for, such as cpu+ane.
    #[arg(long, value_name = "UNITS")]
    compute_units: Option<String>,
    /// Largest magnitudes of activations: a JSON list of {"function", "tensor", "max_abs"}.
    #[arg(long, value_name = "FILE")]
    activations: Option<PathBuf>,
    /// List every place of a rule, not only the first ones.
    #[arg(long)]
    all: bool,
    /// Explain a rule and its evidence; `all` lists the rules.
    #[arg(long, value_name = "ID", conflicts_with = "package")]
    explain: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
    Sarif,
    Md,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    if let Some(id) = &args.explain {
        return explain::explain(id, output);
    }
    let Some(path) = &args.package else {
        return Err(Failure::bad_input("no package is given"));
    };
    let config = args.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    let subject = Subject::open(path)?;
    let setting = setting(args, &config, &subject)?;
    let report = lint(&subject, &setting, &config.waivers)?;
    match args.format {
        Format::Text => text::print(&report, args.all, output)?,
        Format::Json => output.json(&report)?,
        Format::Sarif => output.json(&sarif::log(&report))?,
        Format::Md => markdown::print(&report, output)?,
    }
    Ok(if report.counts.errors > 0 { Status::Failed } else { Status::Good })
}

/// Options over the configuration over what the export says.
fn setting(args: &Args, config: &Config, subject: &Subject) -> Result<Setting, Failure> {
    let activations = args.activations.as_deref().map(ActivationRange::read).transpose()?;
    let training_shapes = [&args.training_shapes, &config.training_shapes, &subject.training_shapes];
    let compute_units = [&args.compute_units, &config.compute_units, &subject.compute_units];
    Ok(Setting {
        target: args.target.or(config.target).unwrap_or_default(),
        device: args.device.or(config.device),
        training_shapes: training_shapes.into_iter().find_map(Clone::clone),
        compute_units: compute_units.into_iter().find_map(Clone::clone),
        activations,
    })
}
