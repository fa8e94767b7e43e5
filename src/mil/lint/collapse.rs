//! One finding for the same place of all layers and all shapes, so that a model of 40 layers is not 40 times as loud.

use std::collections::BTreeMap;

use super::Finding;
use super::report::FindingGroup;
use crate::graph::{generic, layer_in};

/// Findings by rule, each with the layers and the number of shapes it was found at.
pub(super) fn collapse(findings: &[Finding]) -> Vec<FindingGroup> {
    let mut groups: BTreeMap<Key, usize> = BTreeMap::new();
    let mut reported: Vec<FindingGroup> = Vec::new();
    for finding in findings {
        let index = *groups.entry(Key::of(finding)).or_insert_with(|| {
            reported.push(FindingGroup::new(finding));
            reported.len() - 1
        });
        let group = &mut reported[index];
        group.add(finding);
    }
    reported.iter_mut().for_each(FindingGroup::count);
    reported.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.rule.cmp(b.rule)));
    reported
}

/// What the same finding in another layer or at another shape has in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    rule: &'static str,
    severity: super::Severity,
    package: String,
    function: Option<String>,
    operation: Option<(String, String)>,
    tensor: Option<String>,
    dimension: Option<usize>,
}

impl Key {
    fn of(finding: &Finding) -> Key {
        let place = &finding.place;
        let operation = place.operation.as_ref().map(|op| (op.kind.clone(), generic(&op.name)));
        // A layer known only through a weight leaves an operation's own name as it is.
        let is_named = place.operation.as_ref().is_none_or(|op| layer_in(&op.name).is_some());
        let tensor = place.tensor.as_deref();
        Key {
            rule: finding.rule.id,
            severity: finding.severity,
            package: place.package.clone(),
            function: place.function.clone(),
            operation,
            tensor: tensor.map(|name| if is_named { generic(name) } else { name.to_owned() }),
            dimension: place.dimension,
        }
    }
}
