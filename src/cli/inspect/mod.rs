//! `anemeter inspect`: what is in a package or an asset.

mod asset;
mod cost;
mod pipeline;
mod text;

use std::path::PathBuf;

use super::{Output, Result, Status};
use crate::bundle::{Bundle, MANIFEST, packages_of};
use crate::coreai::asset::Asset;
use crate::evaluate::summary::Summary;
use crate::package::{ErrorKind, Package};
use cost::{Costs, GivenBandwidth};

/// Show the content of any Core ML package or compiled model, or of a Core AI asset: functions, inputs, outputs, states, operations, weights, cost.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  anemeter inspect model.mlpackage\n  anemeter inspect model.mlpackage --weights\n  \
anemeter inspect model.mlpackage --cost --bandwidth M4=64\n  anemeter inspect model.mlpackage --mil | less\n  anemeter inspect model.mlpackage --json | jq .functions\n  anemeter inspect model.aimodel --weights"
)]
pub(super) struct Args {
    /// The .mlpackage, .mlmodelc or .aimodel to inspect, a folder of packages, or a bundle; of a pipeline, its models are listed.
    package: PathBuf,
    /// Count operations by kind in each function.
    #[arg(long)]
    ops: bool,
    /// List the weights, largest first.
    #[arg(long)]
    weights: bool,
    /// Print the program as readable MIL, or that of an asset as readable aicode.
    #[arg(long)]
    mil: bool,
    /// Show FLOPs, memory traffic and arithmetic intensity of each function of a package.
    #[arg(long)]
    cost: bool,
    /// Show the bandwidth bound on tokens/s for this chip, such as M4=64 in GB/s; repeatable [default: the chips of the
    /// hardware profiles].
    #[arg(long, value_name = "CHIP=GB/s", requires = "cost")]
    bandwidth: Vec<GivenBandwidth>,
    /// Print one JSON document per package with everything but the MIL; with --cost, the costs.
    #[arg(long, conflicts_with_all = ["mil", "weights", "ops"])]
    json: bool,
}

impl Args {
    /// Whether what is asked for is inside a single program.
    fn looks_inside(&self) -> bool {
        self.ops || self.weights || self.mil || self.cost
    }
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let path = &args.package;
    if Asset::is_at(path) {
        return asset::inspect(path, args, output);
    }
    let is_folder = path.is_dir() && !Package::is_at(path);
    if !is_folder || (!path.join(MANIFEST).exists() && packages_of(path)?.is_empty()) {
        return match Package::open(path) {
            Ok(package) => inspect(&package, args, output),
            Err(error) if error.kind() == ErrorKind::Pipeline && !args.looks_inside() => {
                pipeline::list(args, error, output)
            }
            Err(error) => Err(error.into()),
        };
    }
    let bundle = Bundle::open_to_run(path)?;
    let is_of_packages = bundle.manifest().only_runtime().is_none();
    for chunk in &bundle.manifest().chunks {
        if let Some(file) = chunk.package() {
            inspect(&Package::open(bundle.path(&file.name))?, args, output)?;
        }
        // Costs are those of packages: where there are any, nobody misses those of assets.
        if let Some(asset) = chunk.asset.as_ref().filter(|_| !(args.cost && is_of_packages)) {
            asset::inspect(&bundle.path(&asset.file.name), args, output)?;
        }
    }
    Ok(Status::Good)
}

/// Shows one package; several follow one another, as JSON a document each.
fn inspect(package: &Package, args: &Args, output: &mut Output) -> Result<Status> {
    if args.mil {
        output.text(&package.model().program)?;
        return Ok(Status::Good);
    }
    let costs = args.cost.then(|| Costs::of(package, &args.bandwidth)).transpose()?;
    if let Some(costs) = costs.as_ref().filter(|_| args.json) {
        output.json(costs)?;
        return Ok(Status::Good);
    }
    let summary = Summary::of(package);
    if args.json {
        output.json(&summary)?;
        return Ok(Status::Good);
    }
    text::overview(&summary, output)?;
    if args.ops {
        text::operations(&summary, output)?;
    }
    if args.weights {
        text::weight_list(&summary.weights, output)?;
    }
    if let Some(costs) = costs {
        costs.print(output)?;
    }
    Ok(Status::Good)
}
