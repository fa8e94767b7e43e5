//! Options that take one of a closed set of names.

use std::fmt;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::runtime::runtimes;
use crate::vocabulary::{Choice, RuntimeName};

/// `auto`, or a value that was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrAuto<T> {
    Auto,
    Given(T),
}

impl<T: Choice> OrAuto<T> {
    fn of_name(name: &str) -> Option<OrAuto<T>> {
        if name == AUTO { Some(OrAuto::Auto) } else { T::of_name(name).map(OrAuto::Given) }
    }

    /// The value, unless it is left to the program.
    pub(super) fn given(self) -> Option<T> {
        match self {
            OrAuto::Auto => None,
            OrAuto::Given(value) => Some(value),
        }
    }
}

impl<T: Choice> fmt::Display for OrAuto<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.given().map_or(AUTO, Choice::name))
    }
}

/// What leaves a choice to the program.
pub(super) const AUTO: &str = "auto";

fn names<T: Choice>() -> impl Iterator<Item = &'static str> {
    T::ALL.iter().map(|value| value.name())
}

/// Takes the name of a value.
pub(super) fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let parser = PossibleValuesParser::new(names::<T>());
    parser.map(|name| T::of_name(&name).expect("the parser takes names of values only"))
}

/// Takes the name of a value, or `auto`.
pub(super) fn choice_or_auto<T: Choice>() -> impl TypedValueParser<Value = OrAuto<T>> {
    or_auto(names::<T>())
}

fn or_auto<T: Choice>(names: impl Iterator<Item = &'static str>) -> impl TypedValueParser<Value = OrAuto<T>> {
    let parser = PossibleValuesParser::new(std::iter::once(AUTO).chain(names));
    parser.map(|name| OrAuto::of_name(&name).expect("the parser takes `auto` and names of values only"))
}

/// Takes `auto`, or the name of a runtime that executes bundles.
pub(super) fn bundle_runtime() -> impl TypedValueParser<Value = OrAuto<RuntimeName>> {
    let runtimes = runtimes().into_iter().filter(|runtime| runtime.runs_bundles());
    or_auto(runtimes.map(|runtime| runtime.name().name()))
}
