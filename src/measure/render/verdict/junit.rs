//! A verdict as JUnit XML: a test case per check.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::rows::{headline, why};
use crate::gate::{Check, Status, Verdict};
use crate::render::{RenderError, Result};
use anemeter_base::text::visible;

/// What an inconclusive check is among tests, which know of no such thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JunitInconclusive {
    /// A skipped test: the run stays green.
    Skipped,
    /// A failed test.
    Failed,
}

/// A verdict as JUnit XML. What failed is a failure, what was not gated is skipped.
pub fn junit(verdict: &Verdict, inconclusive: JunitInconclusive) -> Result<String> {
    let mut report = Report::new("anemeter gate");
    let name = visible(&format!("{}/{}", verdict.candidate.hardware_profile_key, verdict.candidate.name));
    let mut suite = TestSuite::new(&name);
    suite.set_system_out(visible(&headline(verdict)));
    for warning in &verdict.warnings {
        suite.add_property(("warning", visible(warning).as_str()));
    }
    suite.add_test_cases(verdict.checks.iter().map(|check| {
        let mut case = TestCase::new(visible(&check.label()), status(check, inconclusive));
        case.set_classname(&name);
        case
    }));
    report.add_test_suite(suite);
    report.to_string().map_err(|error| RenderError::new("JUnit XML", error))
}

fn status(check: &Check, inconclusive: JunitInconclusive) -> TestCaseStatus {
    let mut status = match (check.status, inconclusive) {
        (Status::Pass, _) => TestCaseStatus::success(),
        (Status::Fail, _) | (Status::Inconclusive, JunitInconclusive::Failed) => {
            TestCaseStatus::non_success(NonSuccessKind::Failure)
        }
        (Status::Inconclusive, JunitInconclusive::Skipped) | (Status::NotGated, _) => {
            TestCaseStatus::skipped()
        }
    };
    if check.status != Status::Pass {
        status.set_type(check.status.label());
        status.set_message(visible(&why(check)));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::super::testing::verdict;
    use super::*;

    #[test]
    fn a_verdict_is_a_test_suite() {
        let strict = junit(&verdict(), JunitInconclusive::Failed).unwrap();
        assert!(strict.contains(r#"tests="5" skipped="1" errors="0" failures="2""#), "{strict}");
        let xml = junit(&verdict(), JunitInconclusive::Skipped).unwrap();
        assert!(xml.contains(r#"tests="5" skipped="2" errors="0" failures="1""#), "{xml}");
        insta::assert_snapshot!(xml);
    }

    #[test]
    fn names_leave_the_document_well_formed() {
        let mut verdict = verdict();
        let hostile = "a\u{fffe}\u{ffff}\u{0}\u{1b}[2J\u{85}]]><b>&\u{202e}";
        hostile.clone_into(&mut verdict.candidate.name);
        hostile.clone_into(&mut verdict.checks[0].reason);
        verdict.warnings = vec![hostile.to_owned()];
        let xml = junit(&verdict, JunitInconclusive::Skipped).unwrap();
        let is_xml = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..);
        assert!(xml.chars().all(is_xml), "{xml:?}");
        assert_eq!(xml.matches("a\\u{fffe}\\u{ffff}\\0\\u{1b}[2J\\u{85}").count(), 5, "{xml}");
        assert!(!xml.contains("<b>"), "{xml}");
    }
}
