//! A report as SARIF 2.1.0, the format that code hosts show findings from.

use serde_json::{Value, json};

use super::{ExportConfig, FindingGroup, Report, RuleText, Severity, rule};
use crate::graph::generic;

const SCHEMA: &str =
    "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/master/Schemata/sarif-schema-2.1.0.json";

/// A report as a SARIF document; waived findings are suppressed results. Findings of a bundle are in the configuration
/// that it was exported with, where a change can mend them; without one they are in the package. `rules` are all that were
/// checked.
pub fn log(report: &Report, rules: &[RuleText], config: Option<&ExportConfig>) -> Value {
    let result = |finding: &FindingGroup| result(report, finding, rules, config);
    let open = report.findings.iter().map(result);
    let waived = report.waived.iter().map(|waived| {
        let mut result = result(&waived.finding);
        result["suppressions"] = json!([{ "kind": "external", "justification": waived.reason }]);
        result
    });
    let not_checked = report.not_checked.iter();
    let not_checked = not_checked.map(|skipped| json!({ "rule": skipped.rule, "needs": skipped.needs }));
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": "anemeter",
                    "semanticVersion": env!("CARGO_PKG_VERSION"),
                    "rules": rules.iter().map(descriptor).collect::<Value>(),
                },
            },
            "results": open.chain(waived).collect::<Value>(),
            "columnKind": "unicodeCodePoints",
            "properties": {
                "target": report.target,
                "device": report.device,
                "notChecked": not_checked.collect::<Value>(),
            },
        }],
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

fn descriptor(rule: &RuleText) -> Value {
    let help = format!("{} Evidence: {}.", sentence(rule.remedy), rule.evidence.join("; "));
    json!({
        "id": rule.id,
        "name": rule.slug,
        "shortDescription": { "text": rule.title },
        "fullDescription": { "text": rule.why },
        "help": { "text": help },
        "defaultConfiguration": { "level": level(rule.severity) },
        "properties": { "confidence": rule.confidence, "tags": ["neural-engine"] },
    })
}

/// Text with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn result(
    report: &Report,
    finding: &FindingGroup,
    rules: &[RuleText],
    config: Option<&ExportConfig>,
) -> Value {
    let place = &finding.place;
    let function = place.function.as_ref().map(|function| {
        let path = format!("{}/{function}", place.package);
        json!({ "name": function, "fullyQualifiedName": path, "kind": "function" })
    });
    let operation = place
        .operation
        .as_ref()
        .map(|op| json!({ "name": op.name, "fullyQualifiedName": place.path(), "kind": "member" }));
    let fingerprint = format!(
        "{}/{}/{}/{}",
        finding.rule,
        generic(&place.path()),
        place.tensor.as_deref().map(generic).unwrap_or_default(),
        place.dimension.map_or(String::new(), |n| n.to_string())
    );
    let hash = xxhash_rust::xxh3::xxh3_64(fingerprint.as_bytes());
    // Packages are binary: hosts that ask for a line get the first.
    let package = physical(&artifact(report, &place.package), 1);
    let source = config.map(|config| {
        let key = rule(finding.rule).and_then(|rule| rule.decided_by);
        physical(&config.path, config.line_of(key))
    });
    let mut result = json!({
        "ruleId": finding.rule,
        "ruleIndex": rules.iter().position(|rule| rule.id == finding.rule),
        "level": level(finding.severity),
        "message": { "text": format!("{}: {}; {}", finding.title, report.location(finding), finding.message) },
        "locations": [{
            "physicalLocation": source.as_ref().unwrap_or(&package),
            "logicalLocations": function.into_iter().chain(operation).collect::<Value>(),
        }],
        "partialFingerprints": { "primaryLocationLineHash": format!("{hash:016x}:1") },
        "properties": {
            "tensor": place.tensor,
            "dimension": place.dimension,
            "layers": finding.layers,
            "places": finding.places,
        },
    });
    if source.is_some() {
        let message = json!({ "text": "the package that was exported" });
        result["relatedLocations"] = json!([{ "id": 1, "physicalLocation": package, "message": message }]);
    }
    result
}

/// A line of a file.
fn physical(path: &str, line: usize) -> Value {
    json!({ "artifactLocation": { "uri": uri(path) }, "region": { "startLine": line } })
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
