//! Every rule against its examples, and the table as a whole.

use super::rule::Check;
use super::testing::Case;
use super::*;

fn ids(case: &Case) -> Vec<&'static str> {
    let report = lint(&case.subject, &case.setting, &[]).unwrap();
    report.findings.iter().map(|finding| finding.rule).collect()
}

#[test]
fn every_rule_fires_on_its_example_and_not_on_the_other() {
    for rule in rules() {
        let (breaks, keeps) = rule.examples;
        let case = breaks();
        assert!(ids(&case).contains(&rule.id), "{} does not fire: {:?}", rule.id, ids(&case));
        let case = keeps();
        assert!(!ids(&case).contains(&rule.id), "{} fires on what keeps it", rule.id);
        let unchecked = lint(&case.subject, &case.setting, &[]).unwrap().not_checked;
        assert!(unchecked.iter().all(|skipped| skipped.rule != rule.id), "{} was not checked", rule.id);
    }
}

#[test]
fn examples_are_programs_that_verify() {
    for rule in rules() {
        for example in [rule.examples.0, rule.examples.1] {
            for part in example().subject.packages {
                let findings = verify::findings(&part.model);
                // Rules about faulty interfaces and types need programs that are never written.
                let is_faulty = ["A03", "A04", "A13", "A17", "A26"].contains(&rule.id);
                assert!(findings.is_empty() || is_faulty, "{}: {:?}", rule.id, findings.first());
            }
        }
    }
}

#[test]
fn the_table_is_complete_and_in_order() {
    let expected: Vec<String> =
        (1..=56).map(|n| format!("A{n:02}")).chain((1..=7).map(|n| format!("C{n:02}"))).collect();
    assert_eq!(rules().iter().map(|rule| rule.id).collect::<Vec<_>>(), expected);
    for rule in rules() {
        assert!(rule.why.len() > 40 && rule.remedy.len() > 15, "{} explains too little", rule.id);
        assert!(!rule.evidence.is_empty(), "{} has no evidence", rule.id);
        assert!(!rule.title.ends_with('.') && rule.why.ends_with('.'), "{}", rule.id);
    }
}

/// Placement is predicted per shape: what keeps single operations off has to be found at each.
#[test]
fn rules_that_keep_operations_off_look_at_every_shape() {
    for rule in rules().iter().filter(|rule| rule.off && !matches!(rule.check, Check::Shape(_))) {
        let case = rule.examples.0();
        let report = lint(&case.subject, &case.setting, &[]).unwrap();
        let own = report.findings.iter().filter(|finding| finding.rule == rule.id);
        assert!(own.map(|finding| &finding.place).all(|place| place.operation.is_none()), "{}", rule.id);
    }
}

#[test]
fn missing_inputs_are_listed_and_not_passed() {
    let case = testing::case(|b| vec![testing::x(b, &[1, 64, 1, 32])]);
    let report = lint(&case.subject, &case.setting, &[]).unwrap();
    let unchecked: Vec<_> = report.not_checked.iter().map(|skipped| skipped.rule).collect();
    assert_eq!(unchecked, ["A49", "A53", "A54", "A55", "C02"]);
}
