//! Every rule finds its example and nothing in what keeps it.

use super::*;

fn found(program: &Program) -> Vec<&'static str> {
    lint("model.aimodel", program).iter().map(|finding| finding.rule.id).collect()
}

#[test]
fn every_rule_finds_what_breaks_it_only() {
    for rule in rules() {
        let (breaks, keeps) = rule.examples;
        let id = rule.text.id;
        assert!(found(&breaks()).contains(&id), "{id} finds its example");
        assert!(!found(&keeps()).contains(&id), "{id} finds nothing in what keeps it");
    }
}

#[test]
fn rules_are_in_order_and_say_why_and_who_says_so() {
    let ids: Vec<_> = rules().iter().map(|rule| rule.text.id).collect();
    assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    for Rule { text, .. } in rules() {
        assert!(!text.title.is_empty() && !text.why.is_empty() && !text.remedy.is_empty(), "{}", text.id);
        assert!(!text.evidence.is_empty(), "{}", text.id);
        assert!(rule(text.slug).is_some_and(|found| found.text.id == text.id));
        assert!(anemeter_mil::lint::rule(text.slug).is_none(), "{} is also a rule for packages", text.slug);
    }
}

#[test]
fn findings_name_their_place() {
    let (breaks, _) = rule("rank-over-5").unwrap().examples;
    let findings = lint("model.aimodel", &breaks());
    let places: Vec<_> = findings.iter().map(|finding| finding.place.path()).collect();
    assert_eq!(places, ["model.aimodel/main/x", "model.aimodel/main/%1"]);
}
