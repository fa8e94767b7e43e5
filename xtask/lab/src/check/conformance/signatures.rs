//! `--signatures`: the table of operations against the registry of coremltools, opset by opset.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anemeter::mil::op::{Arity, Default, OpDef, Param, Presence};
use anemeter::mil::{Opset, ops};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::python;
use xtask::outcome::Outcome;
use xtask::process::read;
use xtask::project::Project;

const EXCEPTIONS: &str = "xtask/signature-exceptions.toml";

/// opset -> operation -> parameters, as `dump_signatures.py` writes them.
type Registry = BTreeMap<String, BTreeMap<String, Vec<Theirs>>>;

/// A parameter as coremltools has it.
#[derive(Debug, Deserialize)]
struct Theirs {
    name: String,
    many: bool,
    #[serde(rename = "const")]
    constant: bool,
    optional: bool,
    group: Option<String>,
    dtypes: Option<BTreeSet<String>>,
    default: Option<Value>,
}

/// A difference: operation, aspect, and what differs. The opsets it shows in are the map's values.
type Differences = BTreeMap<(String, &'static str, String), Vec<String>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default)]
    exception: Vec<Exception>,
}

/// A difference that is meant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    op: String,
    /// Only differences that concern this parameter.
    parameter: Option<String>,
    aspect: String,
    reason: String,
}

impl Exception {
    fn covers(&self, op: &str, aspect: &str, text: &str) -> bool {
        let parameter = self.parameter.as_ref().is_none_or(|name| text.contains(&format!("`{name}`")));
        self.op == op && self.aspect == aspect && parameter
    }
}

/// Compares every operation of every opset.
pub(super) fn check(project: &Project) -> Result<Outcome> {
    let Some(python) = python::interpreter(project)? else {
        return Ok(Outcome::not_checked("operation signatures", "there is no python3"));
    };
    let dump = read(project.command(python).arg("xtask/python/dump_signatures.py"))?;
    let registry: Registry = serde_json::from_str(&dump).context("read the dumped signatures")?;
    let text =
        fs::read_to_string(project.root.join(EXCEPTIONS)).with_context(|| format!("read {EXCEPTIONS}"))?;
    let exceptions: Exceptions = toml::from_str(&text).with_context(|| format!("read {EXCEPTIONS}"))?;
    let compared: usize = registry.values().map(BTreeMap::len).sum();
    let excepted = judge(&compare(&registry, ops::find)?, &exceptions.exception)?;
    Ok(Outcome::Checked(format!(
        "{compared} signatures of {} opsets compared, {excepted} differences, all of them meant",
        registry.len()
    )))
}

fn compare(registry: &Registry, find: impl Fn(&str, Opset) -> Option<&'static OpDef>) -> Result<Differences> {
    let mut differences = Differences::new();
    for (opset_name, operations) in registry {
        let opset = Opset::all().find(|opset| opset.name() == opset_name);
        let opset = opset.with_context(|| format!("there is no opset `{opset_name}`"))?;
        let mut differs = |op: &str, aspect, text| {
            differences.entry((op.to_owned(), aspect, text)).or_default().push(opset_name.clone());
        };
        for (op, theirs) in operations {
            match find(op, opset) {
                None => differs(op, "missing", String::new()),
                Some(def) => compare_parameters(theirs, def.params, |aspect, text| differs(op, aspect, text)),
            }
        }
        let unknown: BTreeSet<_> = ops::all().filter(|def| def.since <= opset).map(|def| def.name).collect();
        for op in unknown.into_iter().filter(|op| !operations.contains_key(*op)) {
            differs(op, "extra", String::new());
        }
    }
    Ok(differences)
}

fn compare_parameters(theirs: &[Theirs], ours: &[Param], mut differs: impl FnMut(&'static str, String)) {
    for parameter in ours.iter().filter(|ours| theirs.iter().all(|theirs| theirs.name != ours.name)) {
        differs("parameter", format!("`{}` is ours only", parameter.name));
    }
    for parameter in theirs {
        let name = &parameter.name;
        let Some(ours) = ours.iter().find(|ours| ours.name == name) else {
            differs("parameter", format!("`{name}` is theirs only"));
            continue;
        };
        let mut flag = |aspect, theirs: bool, ours: bool| {
            if theirs != ours {
                differs(aspect, format!("`{name}`: theirs {theirs}, ours {ours}"));
            }
        };
        flag("many", parameter.many, ours.arity == Arity::Many);
        flag("const", parameter.constant, ours.constant);
        flag("optional", parameter.optional, ours.presence != Presence::Required);
        let ours_dtypes: BTreeSet<String> = ours.dtypes.iter().map(ToString::to_string).collect();
        if let Some(dtypes) = &parameter.dtypes
            && *dtypes != ours_dtypes
        {
            let only = |a: &BTreeSet<String>, b| a.difference(b).cloned().collect::<Vec<_>>().join(" ");
            let (only_theirs, only_ours) = (only(dtypes, &ours_dtypes), only(&ours_dtypes, dtypes));
            differs("dtypes", format!("`{name}`: only theirs [{only_theirs}], only ours [{only_ours}]"));
        }
        if !same_default(parameter.default.as_ref(), ours.presence) {
            let theirs = parameter.default.as_ref().map_or("none".to_owned(), Value::to_string);
            differs("default", format!("`{name}`: theirs {theirs}, ours {:?}", ours.presence));
        }
    }
    // A parameter of a single data type says nothing new by sharing it.
    let is_open = |dtypes: usize| dtypes != 1;
    let theirs = groups(theirs.iter().filter_map(|theirs| {
        let open = is_open(theirs.dtypes.as_ref().map_or(0, BTreeSet::len));
        theirs.group.clone().filter(|_| open).map(|group| (theirs.name.as_str(), group))
    }));
    let ours = groups(ours.iter().filter_map(|ours| {
        let open = is_open(ours.dtypes.len());
        ours.group.filter(|_| open).map(|group| (ours.name, group.to_string()))
    }));
    if theirs != ours {
        differs("groups", format!("theirs {theirs:?}, ours {ours:?}"));
    }
}

/// Parameters that must share their data type; the names of the groups mean nothing.
fn groups<'a>(parameters: impl Iterator<Item = (&'a str, String)>) -> BTreeSet<BTreeSet<&'a str>> {
    let mut by_group: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (name, group) in parameters {
        by_group.entry(group).or_default().insert(name);
    }
    by_group.into_values().filter(|members| members.len() > 1).collect()
}

fn same_default(theirs: Option<&Value>, ours: Presence) -> bool {
    match (theirs, ours) {
        (None, Presence::Required | Presence::Optional) => true,
        (Some(theirs), Presence::Default(ours)) => match ours {
            Default::Int(ours) => theirs.as_i64() == Some(i64::from(ours)),
            Default::Float(ours) => theirs.as_f64().is_some_and(|theirs| theirs as f32 == ours),
            Default::Bool(ours) => theirs.as_bool() == Some(ours),
            Default::Text(ours) => theirs.as_str() == Some(ours),
        },
        _ => false,
    }
}

/// How many differences the exceptions cover; any other one, and any exception without use, is an error.
fn judge(differences: &Differences, exceptions: &[Exception]) -> Result<usize> {
    let mut excepted = 0;
    let mut used = vec![false; exceptions.len()];
    let mut findings = Vec::new();
    for ((op, aspect, text), opsets) in differences {
        match exceptions.iter().position(|exception| exception.covers(op, aspect, text)) {
            Some(index) => (used[index], excepted) = (true, excepted + 1),
            None => findings.push(format!("{op} ({}): {aspect} {text}", opsets.join(" "))),
        }
    }
    for (exception, _) in exceptions.iter().zip(used).filter(|(_, used)| !used) {
        let Exception { op, aspect, .. } = exception;
        findings.push(format!("{op}: the exception for {aspect} covers nothing"));
    }
    for exception in exceptions.iter().filter(|exception| exception.reason.trim().is_empty()) {
        findings.push(format!("{}: the exception gives no reason", exception.op));
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} differences from coremltools that {EXCEPTIONS} does not explain", findings.len());
    }
    Ok(excepted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter::mil::op::domain::{FLOAT, INT};

    fn theirs(json: &str) -> Vec<Theirs> {
        serde_json::from_str(json).unwrap()
    }

    fn differences(json: &str, ours: &[Param]) -> Vec<String> {
        let mut found = Vec::new();
        compare_parameters(&theirs(json), ours, |aspect, text| found.push(format!("{aspect} {text}")));
        found
    }

    const THEIRS: &str = r#"[
        {"name": "x", "many": false, "const": false, "optional": false, "group": "T", "dtypes": ["fp16", "fp32"],
         "default": null},
        {"name": "e", "many": false, "const": true, "optional": true, "group": "T", "dtypes": ["fp16", "fp32"],
         "default": 1.5}]"#;

    #[test]
    fn equal_signatures_have_no_differences() {
        let ours =
            [Param::value("x", FLOAT).group('A'), Param::constant("e", FLOAT).group('A').or_float(1.5)];
        assert!(differences(THEIRS, &ours).is_empty());
    }

    #[test]
    fn every_aspect_is_compared() {
        let ours = [Param::constant("x", INT).many().optional(), Param::value("f", FLOAT)];
        assert_eq!(
            differences(THEIRS, &ours),
            [
                "parameter `f` is ours only",
                "many `x`: theirs false, ours true",
                "const `x`: theirs false, ours true",
                "optional `x`: theirs false, ours true",
                "dtypes `x`: only theirs [fp16 fp32], only ours [int32]",
                "parameter `e` is theirs only",
                r#"groups theirs {{"e", "x"}}, ours {}"#,
            ]
        );
        let other_default =
            [Param::value("x", FLOAT).group('A'), Param::constant("e", FLOAT).group('A').optional()];
        assert_eq!(differences(THEIRS, &other_default), ["default `e`: theirs 1.5, ours Optional"]);
    }

    #[test]
    fn exceptions_must_cover_something_and_say_why() {
        let differences: Differences =
            [(("add".to_owned(), "dtypes", "`x`: ..".to_owned()), vec!["ios15".to_owned()])].into();
        let exception = |op: &str, parameter: Option<&str>, reason: &str| Exception {
            op: op.into(),
            parameter: parameter.map(str::to_owned),
            aspect: "dtypes".into(),
            reason: reason.into(),
        };
        assert_eq!(judge(&differences, &[exception("add", Some("x"), "why")]).unwrap(), 1);
        assert!(judge(&differences, &[]).is_err());
        assert!(judge(&differences, &[exception("add", Some("y"), "why")]).is_err());
        assert!(judge(&differences, &[exception("add", None, " ")]).is_err());
    }
}
