//! One function of a compiled model, loaded.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use objc2::rc::{Retained, autoreleasepool};
use objc2_core_ml::MLModel;

use super::compile::file_url;
use super::units::{configuration, units_of};
use super::wait::{CompletionWait, SendHandle};
use crate::{FunctionLoad, LoadOptions, RuntimeError};
use anemeter_base::vocabulary::ComputeUnits;

/// What Core ML does in a load that takes long.
const MEANWHILE: &str = "Core ML is compiling the function for the Neural Engine, which takes minutes the first time on a \
                         machine and again after each update of the system, and seconds later";

/// A loaded function. One prediction runs at a time.
pub(super) struct FunctionModel {
    name: String,
    model: Mutex<SendHandle<Retained<MLModel>>>,
}

/// What loading a function took and found.
pub(super) struct LoadReport {
    pub(super) load: FunctionLoad,
    pub(super) units: Option<ComputeUnits>,
    pub(super) remarks: Vec<String>,
}

impl FunctionModel {
    /// Loads a function by its name; the only function of a model also without, should Core ML not take the name.
    pub(super) fn load(
        compiled: &Path,
        name: &str,
        is_only: bool,
        options: &LoadOptions,
    ) -> Result<(FunctionModel, LoadReport), RuntimeError> {
        let began = Instant::now();
        let mut remarks = Vec::new();
        let model = match load(compiled, name, Some(name), options) {
            Err(refused @ RuntimeError::CoreMl { .. }) if is_only => {
                // The first failure says more, so that it is the one to report if this fails too.
                let model = load(compiled, name, None, options).map_err(|_| refused)?;
                remarks.push(format!("Core ML refused the name of the only function `{name}` and took none"));
                model
            }
            loaded => loaded?,
        };
        let units = autoreleasepool(|_| {
            // SAFETY: a plain getter.
            let configuration = unsafe { model.configuration() };
            units_of(&configuration)
        });
        if units != Some(options.units) {
            let found = units.map_or("unknown ones".to_owned(), |units| units.to_string());
            remarks.push(format!("asked for the compute units {}, Core ML says {found}", options.units));
        }
        let load = FunctionLoad { function: name.to_owned(), elapsed: began.elapsed() };
        let function = FunctionModel { name: name.to_owned(), model: Mutex::new(SendHandle(model)) };
        Ok((function, LoadReport { load, units, remarks }))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The model, for one user at a time.
    pub(super) fn lock(&self) -> MutexGuard<'_, SendHandle<Retained<MLModel>>> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn load(
    compiled: &Path,
    name: &str,
    function: Option<&str>,
    options: &LoadOptions,
) -> Result<Retained<MLModel>, RuntimeError> {
    let doing = format!("load the function `{name}`");
    let url = file_url(compiled, &doing)?;
    let waiting = CompletionWait { doing, meanwhile: MEANWHILE, limit: options.load_limit };
    waiting.wait(|handler| {
        let configuration = configuration(options, function);
        // SAFETY: URL and configuration are live, and the handler takes what the method gives: a model or nil, an error or nil.
        unsafe {
            MLModel::loadContentsOfURL_configuration_completionHandler(&url.0, &configuration, handler);
        }
    })
}
