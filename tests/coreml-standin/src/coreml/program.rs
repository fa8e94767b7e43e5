//! LoadedModel programs, shared by all models and states of the same compiled folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anemeter::mil::{Feature, Interface, Interfaces, Model};
use anemeter::runtime::{self, LoadOptions, LoadedModel, Session};

use super::code;
use super::compile;
use crate::foundation::error::Failure;

/// One function of a compiled model. Functions that declare the same states share them.
#[derive(Clone)]
pub(super) struct Function {
    pub(super) interface: Interface,
    /// What was compiled, and which of its functions go together.
    family: Family,
    loaded: Arc<dyn LoadedModel>,
}

/// Which states can be used together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Family {
    compiled: PathBuf,
    states: Vec<String>,
}

static LOADED: Mutex<BTreeMap<Family, Weak<dyn LoadedModel>>> = Mutex::new(BTreeMap::new());

impl Function {
    /// Opens a function of a compiled model; the default one if none is named.
    pub(super) fn open(compiled: &Path, name: Option<&str>) -> Result<Function, Failure> {
        let model = compile::content(compiled)?.into_model();
        let name = name.unwrap_or(model.default_function());
        let Some(interface) = model.interface(name).cloned() else {
            let known: Vec<_> =
                model.interfaces().iter().map(|interface| interface.function.as_str()).collect();
            let text =
                format!("The model does not have a function named {name}; it has {}.", known.join(", "));
            return Err(Failure::new(code::GENERIC, text));
        };
        let family = Family { compiled: compiled.to_owned(), states: state_types(&interface) };
        let loaded = load(&family, model)?;
        Ok(Function { interface, family, loaded })
    }

    pub(super) fn family(&self) -> &Family {
        &self.family
    }

    /// A session with states of its own.
    pub(super) fn session(&self) -> Box<dyn Session> {
        Arc::clone(&self.loaded).session()
    }
}

/// The functions of a family, loaded once.
fn load(family: &Family, model: Model) -> Result<Arc<dyn LoadedModel>, Failure> {
    let mut known = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|_, loaded| loaded.strong_count() > 0);
    if let Some(loaded) = known.get(family).and_then(Weak::upgrade) {
        return Ok(loaded);
    }
    let loaded =
        runtime::cpu().load_model(only(family, model), &LoadOptions::default()).map_err(|error| {
            Failure::new(code::GENERIC, "Failed to build the model execution plan.").caused_by(
                "com.apple.mil",
                3,
                error.to_string(),
            )
        })?;
    known.insert(family.clone(), Arc::downgrade(&loaded));
    Ok(loaded)
}

/// The model with the functions of a family and no others.
fn only(family: &Family, mut model: Model) -> Model {
    let belongs = |interface: &Interface| state_types(interface) == family.states;
    let kept: Vec<Interface> = model.interfaces().iter().filter(|one| belongs(one)).cloned().collect();
    model.program.functions.retain(|function| kept.iter().any(|one| one.function == function.name));
    if let Interfaces::Many { functions, default } = &mut model.interfaces {
        *default = kept.first().map_or_else(String::new, |first| first.function.clone());
        *functions = kept;
    }
    model
}

fn state_types(interface: &Interface) -> Vec<String> {
    interface.states.iter().map(|Feature { name, ty, .. }| format!("{name}: {ty:?}")).collect()
}
