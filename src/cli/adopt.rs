//! `anemeter adopt`: a bundle around packages that others made.

use std::path::PathBuf;

use super::units::Bytes;
use super::{Output, Result, Status};
use crate::adopt::{self, Adopted, Request};
use crate::render::Table;

/// Adopt packages that others made: write a bundle around them, which every command takes.
#[derive(clap::Args)]
#[command(
    after_help = "Packages of coremltools, of other exporters or of a colleague are linked into the bundle where the file system can, else \
copied; they are not changed. export.json says `origin: adopted` and has their digests. A package that is to be measured once needs no \
bundle: every command that takes a bundle takes a package or a folder of packages, too.\n\n\
Examples:\n  anemeter adopt resnet.mlpackage -o resnet\n  anemeter adopt chunks/ -o model --tokenizer tokenizer.json --contract contract.yaml"
)]
pub(super) struct Args {
    /// Packages, or folders of packages, in the order in which they run.
    #[arg(required = true, value_name = "PACKAGE")]
    packages: Vec<PathBuf>,
    /// Folder of the bundle.
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    /// tokenizer.json of a language model; chat template and special tokens are read from the files beside it.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// How the packages are driven as a language model, in YAML: which inputs are ids, mask, positions and caches, which outputs are
    /// logits.
    #[arg(long, value_name = "FILE")]
    contract: Option<PathBuf>,
    /// Name of the model [default: that of the first package].
    #[arg(long)]
    name: Option<String>,
    /// Replace a bundle that is there already.
    #[arg(long)]
    overwrite: bool,
    /// Print export.json.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let adopted = adopt::adopt(&Request {
        packages: args.packages.clone(),
        output: args.out.clone(),
        tokenizer: args.tokenizer.clone(),
        contract: args.contract.clone(),
        name: args.name.clone(),
        overwrite: args.overwrite,
    })?;
    match args.json {
        true => output.json(adopted.bundle.manifest())?,
        false => print(&adopted, output)?,
    }
    Ok(Status::Good)
}

fn print(Adopted { bundle, linked, copied }: &Adopted, output: &mut Output) -> Result<()> {
    let manifest = bundle.manifest();
    output.line(format_args!("{}: made by others", manifest.name.escape_debug()))?;
    let mut table = Table::new(&["package", ">size", "functions", "digest"]);
    for chunk in &manifest.chunks {
        let functions: Vec<&str> = chunk.functions.iter().map(|function| function.name.as_str()).collect();
        let size = Bytes(chunk.file.bytes).to_string();
        table.row([chunk.file.name.clone(), size, functions.join(" "), chunk.file.digest.clone()]);
    }
    output.text(table.indented(2))?;
    if let Some(contract) = &manifest.contract {
        output.line(format_args!("contract: {contract}"))?;
    }
    output.line(format_args!("{linked} files linked, {copied} copied"))?;
    output.line(format_args!("wrote {}", bundle.folder().display()))
}
