//! Makes a bundle ready to run, with the time of each phase.

use std::sync::Arc;

use super::protocol::ModelUse;
use super::weights;
use crate::bundle::Bundle;
use crate::generate::{Clock, Driver, Generator, Text};
use crate::package::Package;
use crate::report::Load;
use crate::runtime::{self, LoadOptions};

/// A model that is ready to run.
pub(super) struct Ready {
    pub(super) generator: Generator,
    /// What it took; the first prediction is still to come.
    pub(super) load: Load,
    pub(super) weight_bytes_per_token: Option<u64>,
}

/// Opens and loads a bundle.
pub(super) fn open(model: &ModelUse, clock: &Arc<dyn Clock>) -> Result<Ready, String> {
    let began = clock.now();
    let bundle = Bundle::open(&model.bundle).map_err(|e| e.to_string())?;
    let chunks = &bundle.manifest().chunks;
    let packages = chunks.iter().map(|chunk| Package::open(bundle.path(&chunk.file.name)));
    let packages: Vec<Package> = packages.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let opened = clock.now();

    let runtime = runtime::choose(&model.runtime).map_err(|e| e.to_string())?;
    let options = LoadOptions { numerics: model.numerics.into(), threads: model.threads, memory: None };
    let loaded = packages.iter().map(|package| runtime.load(package, &options));
    let loaded: Vec<_> = loaded.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let sessions = loaded.into_iter().map(runtime::Loaded::session).collect();
    let driver =
        Driver::new(&bundle, sessions, Some(model.kv), Arc::clone(clock)).map_err(|e| e.to_string())?;
    let ready = clock.now();

    let shortest = driver.lengths().first().copied().unwrap_or(0);
    let bytes =
        packages.iter().map(|package| weights::bytes_per_token(package.model(), driver.form(), shortest));
    let weight_bytes_per_token = bytes.sum::<Option<u64>>();
    let text = Text::open(&bundle, None).map_err(|e| e.to_string())?.map(Arc::new);
    let ms = |from: std::time::Duration, to: std::time::Duration| to.saturating_sub(from).as_secs_f64() * 1e3;
    let load = Load {
        open_ms: ms(began, opened),
        compile_ms: None,
        load_ms: ms(opened, ready),
        first_prediction_ms: None,
    };
    Ok(Ready { generator: Generator::new(driver, text, Arc::clone(clock)), load, weight_bytes_per_token })
}
