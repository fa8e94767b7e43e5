//! A report as SARIF 2.1.0, the format that code hosts show findings from.

use serde::Serialize;
use serde_json::{Value, json};

use super::report::Reported;
use super::{Report, Rule, Severity, rules};
use crate::view::generic;

const SCHEMA: &str =
    "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/master/Schemata/sarif-schema-2.1.0.json";

/// A SARIF document.
#[derive(Debug, Serialize)]
pub struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tool: Tool,
    results: Vec<Outcome>,
    column_kind: &'static str,
    properties: Value,
}

#[derive(Debug, Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    name: &'static str,
    semantic_version: &'static str,
    rules: Vec<Descriptor>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    id: &'static str,
    short_description: Text,
    full_description: Text,
    help: Text,
    default_configuration: Configuration,
    properties: Value,
}

#[derive(Debug, Serialize)]
struct Configuration {
    level: &'static str,
}

#[derive(Debug, Serialize)]
struct Text {
    text: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    rule_id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_index: Option<usize>,
    level: &'static str,
    message: Text,
    locations: Vec<Location>,
    partial_fingerprints: Value,
    properties: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suppressions: Vec<Suppression>,
}

#[derive(Debug, Serialize)]
struct Suppression {
    kind: &'static str,
    justification: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    physical_location: PhysicalLocation,
    logical_locations: Vec<LogicalLocation>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    region: Region,
}

#[derive(Debug, Serialize)]
struct ArtifactLocation {
    uri: String,
}

/// Packages are binary: hosts that ask for a line get the first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LogicalLocation {
    name: String,
    fully_qualified_name: String,
    kind: &'static str,
}

/// A report as a SARIF document; waived findings are suppressed results.
pub fn log(report: &Report) -> Log {
    let open = report.findings.iter().map(|finding| outcome(report, finding, None));
    let waived = report.waived.iter().map(|waived| outcome(report, &waived.finding, Some(&waived.reason)));
    let not_checked: Vec<Value> = report
        .not_checked
        .iter()
        .map(|skipped| json!({ "rule": skipped.rule, "needs": skipped.needs }))
        .collect();
    let driver = Driver {
        name: "anemeter",
        semantic_version: env!("CARGO_PKG_VERSION"),
        rules: rules().iter().map(|rule| descriptor(rule)).collect(),
    };
    let run = Run {
        tool: Tool { driver },
        results: open.chain(waived).collect(),
        column_kind: "unicodeCodePoints",
        properties: json!({ "target": report.target, "device": report.device, "notChecked": not_checked }),
    };
    Log { schema: SCHEMA, version: "2.1.0", runs: vec![run] }
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

fn descriptor(rule: &Rule) -> Descriptor {
    Descriptor {
        id: rule.id,
        short_description: Text { text: rule.title.to_owned() },
        full_description: Text { text: rule.why.to_owned() },
        help: Text { text: format!("{} Evidence: {}.", sentence(rule.remedy), rule.evidence.join("; ")) },
        default_configuration: Configuration { level: level(rule.severity) },
        properties: json!({ "confidence": rule.confidence, "tags": ["neural-engine"] }),
    }
}

/// Text with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn outcome(report: &Report, finding: &Reported, reason: Option<&String>) -> Outcome {
    let place = &finding.place;
    let path = generic(&place.path());
    let mut logical = Vec::new();
    if let Some(function) = &place.function {
        let name = format!("{}/{function}", place.package);
        logical.push(LogicalLocation {
            name: function.clone(),
            fully_qualified_name: name,
            kind: "function",
        });
    }
    if let Some(op) = &place.operation {
        logical.push(LogicalLocation {
            name: op.name.clone(),
            fully_qualified_name: place.path(),
            kind: "member",
        });
    }
    let location = Location {
        physical_location: PhysicalLocation {
            artifact_location: ArtifactLocation { uri: uri(&artifact(report, &place.package)) },
            region: Region { start_line: 1 },
        },
        logical_locations: logical,
    };
    let fingerprint = format!(
        "{}/{path}/{}/{}",
        finding.rule,
        place.tensor.as_deref().map(generic).unwrap_or_default(),
        place.dimension.map_or(String::new(), |n| n.to_string())
    );
    let hash = xxhash_rust::xxh3::xxh3_64(fingerprint.as_bytes());
    Outcome {
        rule_id: finding.rule,
        rule_index: rules().iter().position(|rule| rule.id == finding.rule),
        level: level(finding.severity),
        message: Text {
            text: format!("{}: {}; {}", finding.title, report.location(finding), finding.message),
        },
        locations: vec![location],
        partial_fingerprints: json!({ "primaryLocationLineHash": format!("{hash:016x}:1") }),
        properties: json!({
            "tensor": place.tensor,
            "dimension": place.dimension,
            "layers": finding.layers,
            "places": finding.places,
        }),
        suppressions: reason
            .map(|reason| Suppression { kind: "external", justification: reason.clone() })
            .into_iter()
            .collect(),
    }
}

/// The path of a package within what was looked at.
fn artifact(report: &Report, package: &str) -> String {
    let subject = report.subject.trim_end_matches('/');
    let is_itself = package.is_empty() || subject == package || subject.ends_with(&format!("/{package}"));
    if is_itself { subject.to_owned() } else { format!("{subject}/{package}") }
}

/// A path as a URI reference.
fn uri(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    path.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uri_references() {
        assert_eq!(uri("a b/größe.mlpackage"), "a%20b/gr%C3%B6%C3%9Fe.mlpackage");
        assert_eq!(sentence("give it in fp16"), "Give it in fp16.");
    }
}
