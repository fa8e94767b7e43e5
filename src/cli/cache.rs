//! `anemeter cache`: models that Core ML has compiled.

use serde::Serialize;

use super::units::Bytes;
use super::{Failure, Output, Result, Status};
use crate::render::Table;
use crate::runtime::{CacheEntry, CompileCache};

/// List or remove compiled Core ML models.
#[derive(clap::Args)]
#[command(
    after_help = "Compiled models are cached by the digest of their package and the build of the system, in ANEMETER_CACHE_DIR \
or the cache folder of the system. A removed model is compiled again when it is next loaded.\n\n\
Examples:\n  anemeter cache list\n  anemeter cache clear"
)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// List compiled models.
    List {
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Remove all compiled models that no process is writing.
    Clear {
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
}

/// The cache, or what was removed from it.
#[derive(Serialize)]
struct Listing<'a> {
    folder: String,
    bytes: u64,
    models: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    digest: &'a str,
    build: &'a str,
    bytes: u64,
    path: String,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let Some(cache) = CompileCache::of_user() else {
        return Err(Failure::bad_input(
            "there is no cache folder: neither ANEMETER_CACHE_DIR nor HOME is set",
        ));
    };
    let failed = |e: std::io::Error| Failure::at(cache.folder(), e);
    let (entries, json, done) = match args.action {
        Action::List { json } => (cache.list().map_err(failed)?, json, "in"),
        Action::Clear { json } => (cache.clear().map_err(failed)?, json, "removed from"),
    };
    let bytes = entries.iter().map(|entry| entry.bytes).sum();
    let folder = cache.folder().display().to_string();
    if json {
        let models = entries.iter().map(model).collect();
        return output.json(&Listing { folder, bytes, models }).map(|()| Status::Good);
    }
    if !entries.is_empty() {
        let mut table = Table::new(&["package", "system build", ">size"]);
        for entry in &entries {
            table.row([entry.digest.clone(), entry.build.clone(), Bytes(entry.bytes).to_string()]);
        }
        output.text(table)?;
    }
    let count = entries.len();
    let models = if count == 1 { "compiled model" } else { "compiled models" };
    output.line(format_args!("{count} {models}, {}, {done} {}", Bytes(bytes), folder.escape_debug()))?;
    Ok(Status::Good)
}

fn model(entry: &CacheEntry) -> Model<'_> {
    let CacheEntry { path, digest, build, bytes } = entry;
    Model { digest, build, bytes: *bytes, path: path.display().to_string() }
}
