//! The Core ML runtime: packages are compiled, cached, loaded function by function and predicted by Core ML. A compiled
//! model is loaded as it is.
//!
//! This is one of the crate's unsafe islands, and nothing of Objective-C leaves it. Every message to Core ML is sent
//! inside an autorelease pool; what Core ML may leave out is an `Option` here, whatever its headers promise.
#![allow(unsafe_code)]

mod array;
mod compile;
mod error;
mod image;
mod model;
mod plan;
mod session;
mod state;
mod units;
mod wait;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::compiled::CompileCache;
use super::{
    Availability, Compilation, LoadOptions, LoadedModel, Loading, Placement, Runtime, RuntimeError, Session,
};
use anemeter_base::hardware::os_version;
use anemeter_base::vocabulary::RuntimeName;
use anemeter_mil::Model;
use anemeter_mil::package::{Form, Package};
use model::FunctionModel;

/// States and functions by name came with this version of macOS.
const OLDEST_MACOS: u32 = 15;

/// Core ML.
#[derive(Debug, Default)]
pub struct CoreMlRuntime {
    cache: Option<PathBuf>,
}

impl CoreMlRuntime {
    /// Core ML with the user's cache of compiled models.
    pub const fn new() -> CoreMlRuntime {
        CoreMlRuntime { cache: None }
    }

    /// Core ML with compiled models in this folder.
    pub fn with_cache(folder: impl Into<PathBuf>) -> CoreMlRuntime {
        CoreMlRuntime { cache: Some(folder.into()) }
    }

    /// A package compiled, and what that took; a compiled model took nothing.
    pub(super) fn compile(
        &self,
        package: &Package,
        options: &LoadOptions,
    ) -> Result<(PathBuf, Option<Compilation>), RuntimeError> {
        match package.form() {
            Form::Package => {
                let compiled = compile::compiled(package, &self.cache()?, options.load_limit)?;
                let compilation = Compilation { elapsed: compiled.elapsed, cached: compiled.cached };
                Ok((compiled.path, Some(compilation)))
            }
            Form::Compiled => Ok((package.path().to_owned(), None)),
            Form::Stage => Err(RuntimeError::StageOfPipeline(package.path().to_owned())),
            Form::Asset => Err(RuntimeError::asset(package.path(), RuntimeName::CoreMl)),
        }
    }

    fn cache(&self) -> Result<CompileCache, RuntimeError> {
        let cache = self.cache.clone().map(CompileCache::at).or_else(CompileCache::of_user);
        cache.ok_or_else(|| {
            RuntimeError::Environment(
                "there is no folder for compiled models: neither ANEMETER_CACHE_DIR nor HOME is set"
                    .to_owned(),
            )
        })
    }
}

impl Runtime for CoreMlRuntime {
    fn name(&self) -> RuntimeName {
        RuntimeName::CoreMl
    }

    fn availability(&self) -> Availability {
        let version = os_version();
        match version.major {
            Some(major) if major < OLDEST_MACOS => Availability::Unavailable(format!(
                "it takes macOS {OLDEST_MACOS} or later, this is {}",
                version.text
            )),
            _ => Availability::Ready,
        }
    }

    fn load(&self, package: &Package, options: &LoadOptions) -> Result<Arc<dyn LoadedModel>, RuntimeError> {
        let (compiled, compilation) = self.compile(package, options)?;
        let loading = Loading { compilation, ..Loading::default() };
        Ok(Arc::new(CoreMlLoaded {
            model: package.shared_model(),
            compiled,
            options: *options,
            functions: Mutex::default(),
            loading: Mutex::new(loading),
        }))
    }
}

/// A compiled package whose functions are loaded when they are first needed.
struct CoreMlLoaded {
    model: Arc<Model>,
    compiled: PathBuf,
    options: LoadOptions,
    functions: Mutex<Vec<Arc<FunctionModel>>>,
    loading: Mutex<Loading>,
}

impl CoreMlLoaded {
    /// A function, loaded now if it has not been.
    fn function(&self, name: &str) -> Result<Arc<FunctionModel>, RuntimeError> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.iter().find(|function| function.name() == name) {
            return Ok(Arc::clone(function));
        }
        let known: Vec<&str> = self.model.interfaces().iter().map(|i| i.function.as_str()).collect();
        if !known.contains(&name) {
            let known = known.into_iter().map(ToOwned::to_owned).collect();
            return Err(RuntimeError::NoFunction { name: name.to_owned(), known });
        }
        let is_only = known.len() == 1;
        let (function, report) = FunctionModel::load(&self.compiled, name, is_only, &self.options)?;
        self.remember(report);
        let function = Arc::new(function);
        functions.push(Arc::clone(&function));
        Ok(function)
    }

    fn remember(&self, report: model::LoadReport) {
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        loading.functions.push(report.load);
        loading.units = report.units.or(loading.units);
        loading.remarks.extend(report.remarks);
    }

    fn remark(&self, remark: String) {
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if !loading.remarks.contains(&remark) {
            loading.remarks.push(remark);
        }
    }

    fn compiled(&self) -> &Path {
        &self.compiled
    }
}

impl LoadedModel for CoreMlLoaded {
    fn model(&self) -> &Model {
        &self.model
    }

    fn session(self: Arc<Self>) -> Box<dyn Session> {
        Box::new(session::CoreMlSession::new(self))
    }

    fn prepare(&self, functions: &[&str]) -> Result<(), RuntimeError> {
        functions.iter().try_for_each(|name| self.function(name).map(drop))
    }

    fn loading(&self) -> Loading {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn placement(&self, functions: &[&str]) -> Result<Option<Placement>, RuntimeError> {
        let plans: Result<Vec<_>, _> =
            functions.iter().map(|name| plan::of_function(self.compiled(), name, &self.options)).collect();
        Ok(Some(Placement::new(&plans?)))
    }
}
