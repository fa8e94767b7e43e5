//! Inputs, outputs and states of a prediction in files.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::cli::output::{note, warn};
use crate::cli::{Failure, Result};
use crate::mil::Model;
use crate::runtime::Session;
use crate::tensor::{DType, Tensor, TensorView};
use crate::tensor_files::{self, Content, Document, Format, NamedTensor};

/// The states of a file, in name order.
pub(super) fn read_states(path: &Path) -> Result<BTreeMap<String, Tensor>> {
    Ok(tensor_files::read_named(path)?.tensors)
}

/// The inputs of all files, in name order. A file of one array without a name is `NAME=FILE`, or the only input.
pub(super) fn read_inputs(files: &[PathBuf], model: &Model, function: &str) -> Result<Vec<NamedTensor>> {
    let mut inputs = BTreeMap::new();
    for file in files {
        let (name, path) = named_file(file);
        let tensors = match (tensor_files::read(path)?, name) {
            (Content::Named(tensors), _) => tensors,
            (Content::Unnamed(tensor), Some(name)) => BTreeMap::from([(name.to_owned(), tensor)]),
            (Content::Unnamed(tensor), None) => {
                BTreeMap::from([(only_input(path, model, function)?, tensor)])
            }
        };
        for (name, tensor) in tensors {
            if inputs.insert(name.clone(), tensor).is_some() {
                return Err(Failure::at(path, format!("input `{name}` is given twice")));
            }
        }
    }
    Ok(inputs.into_iter().collect())
}

/// `NAME=FILE.npy` as its parts. Other files name their tensors, and a path may have `=` in it.
fn named_file(argument: &Path) -> (Option<&str>, &Path) {
    let unnamed = Format::of(argument).ending == "npy" && !argument.exists();
    match argument.to_str().filter(|_| unnamed).and_then(|text| text.split_once('=')) {
        Some((name, path)) => (Some(name), Path::new(path)),
        None => (None, argument),
    }
}

/// The name of the one input that a function has.
fn only_input(path: &Path, model: &Model, function: &str) -> Result<String> {
    let inputs = model.interface(function).map_or(&[][..], |interface| &interface.inputs);
    if let [only] = inputs {
        return Ok(only.name.clone());
    }
    let names: Vec<String> = inputs.iter().map(|input| format!("`{}`", input.name)).collect();
    let problem = match &names[..] {
        [] => format!("function `{function}` has no inputs"),
        names => {
            format!("holds an array without a name, and `{function}` has the inputs {}", names.join(", "))
        }
    };
    Err(Failure::at(path, problem).with_help("say which it is: --inputs NAME=FILE.npy, once for each"))
}

/// Inputs as the function declares them, and a note of what was converted.
pub(super) fn as_declared(
    model: &Model,
    function: &str,
    inputs: Vec<NamedTensor>,
) -> Result<Vec<NamedTensor>> {
    let (inputs, notes) =
        tensor_files::as_declared(model.interface(function), inputs).map_err(Failure::bad_input)?;
    notes.iter().for_each(|converted| warn(format_args!("note: {converted}")));
    Ok(inputs)
}

/// Writes the outputs of the last prediction. A string is in the metadata, since no tensor holds it.
pub(super) fn write_outputs(
    path: &Path,
    model: &Model,
    function: &str,
    session: &dyn Session,
    metadata: Option<HashMap<String, String>>,
) -> Result<()> {
    let ending = Format::of(path).ending;
    if metadata.is_some() && !Format::of(path).holds_texts {
        note(format_args!(
            "note: .{ending} files hold no text: the label and the names of the classes are left out"
        ));
    }
    let interface = model.interface(function);
    let names = interface.iter().flat_map(|i| &i.outputs).map(|f| f.name.as_str());
    let views = names.filter_map(|name| Some((name.to_owned(), session.output(name)?)));
    write(path, views.filter(|(_, view)| view.dtype() != DType::String).collect(), metadata)
}

/// Writes every state.
pub(super) fn write_states(path: &Path, session: &dyn Session) -> Result<()> {
    let names = session.state_names();
    let views = names.iter().filter_map(|name| Some((name.clone(), session.state(name)?)));
    write(path, views.collect(), None)
}

/// A model may list an output twice; a file holds it once.
fn write(
    path: &Path,
    tensors: BTreeMap<String, TensorView<'_>>,
    texts: Option<HashMap<String, String>>,
) -> Result<()> {
    Ok(tensor_files::write(path, &Document { tensors, texts })?)
}
