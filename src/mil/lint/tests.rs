//! Every rule against its examples, and the table as a whole.

use std::collections::BTreeSet;

use super::rule::Check;
use super::testing::Case;
use super::*;
use anemeter_kernels::tensor::DType;

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
            for package in example().subject.packages {
                let findings = verify::findings(&package.model);
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
    let slugs: BTreeSet<_> = rules().iter().map(|rule| rule.slug).collect();
    assert_eq!(slugs.len(), rules().len(), "a slug is given twice");
    for rule in rules() {
        let is_kebab = rule.slug.split('-').all(|word| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        });
        assert!(is_kebab && super::rule(rule.slug).is_some_and(|found| found.id == rule.id), "{}", rule.slug);
        assert!(rule.why.len() > 40 && rule.remedy.len() > 15, "{} explains too little", rule.id);
        assert!(!rule.evidence.is_empty(), "{} has no evidence", rule.id);
        assert!(!rule.title.ends_with('.') && rule.why.ends_with('.'), "{}", rule.id);
    }
}

/// Placement is predicted per shape: what keeps single operations off has to be found at each.
#[test]
fn rules_that_keep_operations_off_look_at_every_shape() {
    for rule in rules()
        .iter()
        .filter(|rule| rule.off_ane && !matches!(rule.check, Check::Shape(_) | Check::OpTypes(..)))
    {
        let case = rule.examples.0();
        let report = lint(&case.subject, &case.setting, &[]).unwrap();
        let own = report.findings.iter().filter(|finding| finding.rule == rule.id);
        assert!(own.map(|finding| &finding.place).all(|place| place.operation.is_none()), "{}", rule.id);
    }
}

#[test]
fn waivers_name_a_rule_by_id_or_slug() {
    let case = testing::activated("silu", &[1, 64, 1, 32]);
    for (rule, waived) in [("a36", 1), ("native-silu-tanh", 1), ("A37", 0)] {
        let text = |text: &str| text.to_owned();
        let waiver = Waiver { rule: text(rule), places: text("*"), reason: text("a test") };
        assert_eq!(lint(&case.subject, &case.setting, &[waiver]).unwrap().counts.waived, waived, "{rule}");
    }
}

#[test]
fn missing_inputs_are_listed_and_not_passed() {
    let unchecked = |name: &str| -> Vec<&str> {
        let case = testing::case(|b| vec![testing::input(b, name, DType::F16, &[1, 64, 1, 32])]);
        let report = lint(&case.subject, &case.setting, &[]).unwrap();
        report.not_checked.iter().map(|skipped| skipped.rule).collect()
    };
    assert_eq!(unchecked("hidden"), ["A49", "A53", "A54", "A55", "C02"]);
    assert_eq!(unchecked("image"), ["A54", "A55"], "what is about text is not asked of an image");
}

#[test]
fn rules_about_text_say_nothing_of_other_models() {
    use super::testing::{conv, input};
    let found = |name: &str| {
        let case = testing::case(|b| {
            let x = input(b, name, DType::F16, &[8, 64, 1, 48]);
            vec![conv(b, x, (1024, 64))]
        });
        ids(&case)
    };
    for rule in ["A50", "C05", "C06"] {
        assert!(found("hidden").contains(&rule), "{rule}");
        assert!(!found("image").contains(&rule), "{rule}");
    }
}

#[test]
fn placement_counts_islands_transitions_and_cost() {
    use super::testing::{conv, on_input, reduce, unary};
    let case = on_input(&[1, 64, 1, 32], |b, x| {
        let y = conv(b, x, (64, 64));
        let sum = b.op("cumsum").arg("x", y).arg("axis", 3).named("sum").push().unwrap();
        let z = unary(b, "relu", sum);
        reduce(b, "reduce_sum", z, 1)
    });
    let report = lint(&case.subject, &case.setting, &[]).unwrap();
    let [placement] = &report.placements[..] else { panic!("one function, one shape") };
    assert_eq!((placement.basis, placement.operations, placement.on_ane), ("predicted", 4, 3));
    assert_eq!((placement.transitions, placement.islands.len()), (2, 1));
    let sum = &placement.islands[0].operations[0];
    assert_eq!((sum.kind.as_str(), sum.name.as_str(), &sum.reasons[..]), ("cumsum", "sum", &["A28"][..]));
    assert_eq!(placement.islands[0].reasons, ["A28"]);
    let tensor = 64 * 32 * 2;
    let (conv, each, reduced) = (2 * tensor + 64 * 64 * 2, 2 * tensor, tensor + 64);
    let total = conv + 2 * each + reduced;
    let expected = f64::from(total - each) / f64::from(total);
    assert!((placement.residency_by_cost.unwrap() - expected).abs() < 1e-12);
}

mod hostile {
    use proptest::prelude::*;

    use super::super::{Setting, Subject, lint, rules};
    use crate::{Dim, Model, Type, ops};

    /// Changes a model so that it need not make sense any more.
    fn damage(model: &mut Model, choices: &[(u8, u16, u64)]) {
        let kinds: Vec<&str> = ops::all().map(|def| def.name).collect();
        let Some(function) = model.program.functions.first_mut() else { return };
        for &(what, at, value) in choices {
            let at = usize::from(at);
            let (values, count) = (function.values.len(), function.body.operations.len());
            match what % 4 {
                0 if values > 0 => {
                    let (Type::Tensor(ty) | Type::State(ty)) = &mut function.values[at % values].ty else {
                        continue;
                    };
                    if let Some(dim) = ty.shape.last_mut() {
                        *dim = if value % 3 == 0 { Dim::Unknown } else { Dim::Fixed(value) };
                    }
                }
                1 if values > 0 => {
                    function.values[at % values].name = format!("layers_{value}_é");
                }
                2 if count > 0 => {
                    let op = &mut function.body.operations[at % count];
                    if op.kind != "const" {
                        kinds[at % kinds.len()].clone_into(&mut op.kind);
                    }
                }
                _ if count > 0 => {
                    let op = &mut function.body.operations[at % count];
                    op.inputs.truncate((value % 3) as usize);
                }
                _ => {}
            }
        }
    }

    proptest! {
        #[test]
        fn no_program_makes_it_panic(
            rule in 0..rules().len(),
            choices in proptest::collection::vec((any::<u8>(), any::<u16>(), any::<u64>()), 0..6),
        ) {
            let case = rules()[rule].examples.0();
            let Some(package) = case.subject.packages.into_iter().next() else { return Ok(()) };
            let mut model = package.model;
            damage(&mut model, &choices);
            let report = lint(&Subject::of(model), &Setting::default(), &[]);
            prop_assert!(report.is_ok_and(|report| !report.not_checked.is_empty()));
        }
    }
}
