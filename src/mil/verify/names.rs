//! Names: identifiers that Core ML can parse, unique where they must be.

use std::collections::BTreeSet;

use super::Report;
use crate::Model;

const RESERVED: &[&str] = &[
    "any", "bool", "program", "func", "tensor", "list", "dict", "tuple", "true", "false", "string", "bf16",
    "fp16", "fp32", "fp64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "state",
];

pub(super) fn check(model: &Model, report: &mut Report) {
    let mut functions = BTreeSet::new();
    for function in &model.program.functions {
        if !functions.insert(&function.name) {
            report.in_function(function, "name", "two functions have this name");
        }
        if let Some(problem) = problem(&function.name) {
            report.in_function(function, "name", problem);
        }
        for value in &function.values {
            if let Some(problem) = problem(&value.name) {
                report.in_function(function, format!("value `{}`", value.name), problem);
            }
        }
    }
}

fn problem(name: &str) -> Option<&'static str> {
    let mut letters = name.chars();
    let starts_well = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '@') {
        return Some("the name is not an identifier: a letter or `_`, then letters, digits, `_` or `@`");
    }
    RESERVED.contains(&name).then_some("the name is a reserved word of MIL")
}
