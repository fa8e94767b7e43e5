//! What must hold for a model as a whole, whether it was read or is to be written.

use super::error::quoted;
use crate::{Feature, Interface, Interfaces, Opset, Program};

/// The function of a model that describes only one.
pub(super) const MAIN: &str = "main";
/// How deep blocks, types and values may each nest.
pub(super) const DEEPEST: usize = 64;
/// Far above MIL's limit of 5; it bounds the length of error messages.
pub(super) const HIGHEST_RANK: usize = 64;

/// Checks that a specification version is one of those that ML programs have.
pub(super) fn spec_version(version: i32) -> Result<(), String> {
    let mut versions: Vec<i32> = Opset::all().map(Opset::spec_version).collect();
    versions.sort_unstable();
    match versions[..] {
        [first, .., last] if !versions.contains(&version) => {
            Err(format!("has specification version {version}; supported are {first} to {last}"))
        }
        _ => Ok(()),
    }
}

/// Checks that a program's format version is supported.
pub(super) fn program_version(version: i64) -> Result<(), String> {
    const SUPPORTED: i64 = 1;
    match version {
        SUPPORTED => Ok(()),
        other => Err(format!("has program version {other}; supported is {SUPPORTED}")),
    }
}

/// Checks that the interfaces describe exactly the functions of the program, and inputs and states once each.
pub(super) fn interfaces(interfaces: &Interfaces, program: &Program) -> Result<(), String> {
    let described = match interfaces {
        Interfaces::Single(interface) => std::slice::from_ref(interface),
        Interfaces::Many { functions, .. } => functions,
    };
    let sorted = |names: &mut dyn Iterator<Item = &str>| {
        let mut names: Vec<String> = names.map(quoted).collect();
        names.sort_unstable();
        names
    };
    let names = sorted(&mut described.iter().map(|i| &*i.function));
    let present = sorted(&mut program.functions.iter().map(|f| &*f.name));
    if names != present {
        let (names, present) = (list(&names), list(&present));
        return Err(format!("the description has the functions {names}, the program has {present}"));
    }
    match interfaces {
        Interfaces::Single(interface) if interface.function != MAIN => {
            let name = quoted(&interface.function);
            return Err(format!("the only function is {name}, expected `{MAIN}`"));
        }
        Interfaces::Many { functions, default } if !functions.iter().any(|f| f.function == *default) => {
            return Err(format!("the default function {} is not described", quoted(default)));
        }
        _ => {}
    }
    described.iter().try_for_each(features)
}

/// The first of some sorted names that is there twice.
pub(super) fn repeated<'n>(names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let mut last = None;
    for name in names {
        if last == Some(name) {
            return last;
        }
        last = Some(name);
    }
    None
}

fn features(interface: &Interface) -> Result<(), String> {
    let all = [&interface.inputs, &interface.outputs, &interface.states];
    if all.into_iter().flatten().any(|feature| feature.name.is_empty()) {
        return Err("a feature has no name".to_owned());
    }
    distinct(&interface.inputs, "input")?;
    distinct(&interface.states, "state")
}

/// Only outputs may repeat a name.
fn distinct(features: &[Feature], what: &str) -> Result<(), String> {
    let mut names: Vec<&str> = features.iter().map(|f| &*f.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("the {what} {} is described twice", quoted(pair[0]))),
        None => Ok(()),
    }
}

fn list(names: &[String]) -> String {
    const SHOWN: usize = 8;
    match names.get(..SHOWN) {
        Some(shown) if names.len() > SHOWN => format!("{}, …", shown.join(", ")),
        _ => names.join(", "),
    }
}
