//! From answers to figures: what each case got right at each length, and all cases together.

use std::cmp::Reverse;

use serde::Serialize;
use serde_json::Value;

use super::{Call, Case, find_calls};
use crate::generate::Finish;
use anemeter_base::vocabulary::KvForm;
use anemeter_measure::report::SeqLenQuality;

/// What was right of what was found and of what was expected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Items that are both.
    pub matched: usize,
    /// Items of the answer.
    pub found: usize,
    /// Items of the case.
    pub expected: usize,
}

impl Counts {
    /// The harmonic mean of precision and recall; 1 where nothing was expected and nothing found.
    pub fn f1(self) -> f64 {
        match self.found + self.expected {
            0 => 1.0,
            all => 2.0 * self.matched as f64 / all as f64,
        }
    }

    fn plus(self, other: Counts) -> Counts {
        Counts {
            matched: self.matched + other.matched,
            found: self.found + other.found,
            expected: self.expected + other.expected,
        }
    }
}

/// What became of a case at one length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseResult {
    /// Id of the case.
    pub id: String,
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// What the model wrote.
    pub answer: String,
    /// Tokens of the answer.
    pub tokens: usize,
    /// Why it ended.
    pub finish: Finish,
    /// The calls in it.
    pub calls: Vec<Call>,
    /// What looks like a call and cannot be read.
    pub unreadable: usize,
    /// Matches of names and arguments.
    pub counts: Counts,
    /// Matches of names only.
    pub names: Counts,
    /// Whether the calls are exactly the expected ones, in any order.
    pub exact: bool,
    /// Whether the case expects a call.
    pub expects_call: bool,
    /// Tokens up to and including the one in which the first valid call begins: one that can be read, of a tool on
    /// offer.
    pub ttfa: Option<usize>,
}

/// An answer before it is scored.
pub struct Answer<'a> {
    /// Its text, special tokens included.
    pub text: &'a str,
    /// Bytes of the text that the first n + 1 tokens give, for each n.
    pub ends: &'a [usize],
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Why it ended.
    pub finish: Finish,
}

/// Scores an answer to a case.
pub fn score(case: &Case, answer: &Answer<'_>) -> CaseResult {
    let found = find_calls(answer.text);
    let first = found.iter().find(|found| found.call.as_ref().is_some_and(|call| case.offers(&call.name)));
    let ttfa = first.map(|first| answer.ends.iter().take_while(|&&end| end <= first.begin).count() + 1);
    let unreadable = found.iter().filter(|found| found.call.is_none()).count();
    let calls: Vec<Call> = found.into_iter().filter_map(|found| found.call).collect();
    let (counts, names) = compare(&case.expected, &calls);
    let complete = |counts: Counts| counts.matched == counts.found && counts.matched == counts.expected;
    CaseResult {
        id: case.id.clone(),
        prompt_tokens: answer.prompt_tokens,
        answer: answer.text.to_owned(),
        tokens: answer.ends.len(),
        finish: answer.finish,
        calls,
        unreadable,
        counts,
        names,
        exact: complete(counts) && unreadable == 0,
        expects_call: !case.expected.is_empty(),
        ttfa,
    }
}

/// Items of names and arguments, and of names only. Calls of the same name are paired, those that share most
/// arguments first; of equally good pairs the earlier.
fn compare(expected: &[Call], found: &[Call]) -> (Counts, Counts) {
    let items = |calls: &[Call]| calls.iter().map(|call| 1 + call.arguments.len()).sum();
    let mut counts = Counts { matched: 0, found: items(found), expected: items(expected) };
    let mut names = Counts { matched: 0, found: found.len(), expected: expected.len() };
    let mut pairs: Vec<(Reverse<usize>, usize, usize)> = Vec::new();
    for (wanted, call) in expected.iter().enumerate() {
        let twins = found.iter().enumerate().filter(|(_, twin)| twin.name == call.name);
        pairs.extend(twins.map(|(given, twin)| (Reverse(call.shared_arguments(twin)), wanted, given)));
    }
    pairs.sort_unstable();
    let (mut met, mut taken) = (vec![false; expected.len()], vec![false; found.len()]);
    for (Reverse(shared), wanted, given) in pairs {
        if met[wanted] || taken[given] {
            continue;
        }
        (met[wanted], taken[given]) = (true, true);
        names.matched += 1;
        counts.matched += 1 + shared;
    }
    (counts, names)
}

/// What became of all cases at one length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeqLenResult {
    /// The length.
    pub seq_len: usize,
    /// Cases whose prompt is too long for it.
    pub too_long: Vec<String>,
    /// Results of the cases that fit.
    pub cases: Vec<CaseResult>,
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// The cache form.
    pub kv: KvForm,
    /// Figures of each length.
    pub per_seq_len: Vec<SeqLenQuality>,
    /// The difference of F1 between the best and the worst length, over the cases that fit all lengths that any fits.
    pub f1_drift: Option<f64>,
    /// Median of the tokens to the first action, over all cases and lengths.
    pub ttfa_p50: Option<f64>,
    /// 95th percentile of the same.
    pub ttfa_p95: Option<f64>,
    /// Every case at each length.
    pub results: Vec<SeqLenResult>,
}

/// Puts the figures together.
pub fn evaluate(kv: KvForm, results: Vec<SeqLenResult>) -> Evaluation {
    let all: Vec<&CaseResult> = results.iter().flat_map(|result| &result.cases).collect();
    let (ttfa_p50, ttfa_p95) = actions(&all);
    let per_seq_len = results.iter().map(quality).collect();
    Evaluation { kv, per_seq_len, f1_drift: drift(&results), ttfa_p50, ttfa_p95, results }
}

fn quality(result: &SeqLenResult) -> SeqLenQuality {
    let cases: Vec<&CaseResult> = result.cases.iter().collect();
    let (ttfa_p50, ttfa_p95) = actions(&cases);
    let share = |count: usize| if cases.is_empty() { 0.0 } else { count as f64 / cases.len() as f64 };
    let sum = |of: fn(&CaseResult) -> Counts| {
        cases.iter().map(|case| of(case)).fold(Counts::default(), Counts::plus).f1()
    };
    SeqLenQuality {
        seq_len: result.seq_len,
        cases: cases.len(),
        too_long: result.too_long.len(),
        f1: sum(|case| case.counts),
        name_f1: sum(|case| case.names),
        exact: share(cases.iter().filter(|case| case.exact).count()),
        without_call: cases.iter().filter(|case| case.expects_call && case.ttfa.is_none()).count(),
        ttfa_p50,
        ttfa_p95,
    }
}

/// Median and 95th percentile of the tokens to the first action.
fn actions(cases: &[&CaseResult]) -> (Option<f64>, Option<f64>) {
    let expecting = cases.iter().filter(|case| case.expects_call);
    let mut tokens: Vec<usize> = expecting.map(|case| case.ttfa.unwrap_or(usize::MAX)).collect();
    tokens.sort_unstable();
    (at_rank(&tokens, 50), at_rank(&tokens, 95))
}

/// The value that so many of a hundred are at or below; no value where that one has no call.
fn at_rank(sorted: &[usize], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).filter(|&&tokens| tokens != usize::MAX).map(|&tokens| tokens as f64)
}

fn drift(results: &[SeqLenResult]) -> Option<f64> {
    let used: Vec<&SeqLenResult> = results.iter().filter(|result| !result.cases.is_empty()).collect();
    let is_common = |id: &str| used.iter().all(|result| result.cases.iter().any(|case| case.id == id));
    let f1 = |result: &&SeqLenResult| {
        let common = result.cases.iter().filter(|case| is_common(&case.id));
        common.map(|case| case.counts).reduce(Counts::plus).map(Counts::f1)
    };
    let scores: Option<Vec<f64>> = used.iter().map(f1).collect();
    let scores = scores.filter(|scores| scores.len() > 1)?;
    let (least, most) = scores.iter().fold((1.0f64, 0.0f64), |(low, high), &f1| (low.min(f1), high.max(f1)));
    Some(most - least)
}

/// A prompt that tells a model about its tools where the chat template does not.
pub(super) fn instructions(tools: &[Value]) -> String {
    let tools: Vec<String> = tools.iter().map(Value::to_string).collect();
    format!(
        "You may call tools. These are the tools, as JSON:\n<tools>\n{}\n</tools>\n\
         To call one, answer with a JSON object of its name and its arguments and nothing else:\n\
         <tool_call>\n{{\"name\": \"NAME\", \"arguments\": {{…}}}}\n</tool_call>",
        tools.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::parse_cases;

    fn case(expected: &str) -> Case {
        let line = format!(
            r#"{{"id": "a", "messages": [{{"role": "user"}}], "tools": [{{"name": "f"}}, {{"name": "g"}}], "expected": {expected}}}"#
        );
        parse_cases(&line).unwrap().remove(0)
    }

    /// One token per byte.
    fn scored(case: &Case, text: &str) -> CaseResult {
        let ends: Vec<usize> = (1..=text.len()).collect();
        score(case, &Answer { text, ends: &ends, prompt_tokens: 1, finish: Finish::Stop })
    }

    #[test]
    fn items_by_hand() {
        let case = case(r#"{"name": "f", "arguments": {"x": 1, "y": "a"}}"#);
        // Name and x are right, y is not: two of three expected, two of three found.
        let result = scored(&case, r#"ok <tool_call>{"name": "f", "arguments": {"x": 1.0, "y": "b"}}"#);
        assert_eq!(result.counts, Counts { matched: 2, found: 3, expected: 3 });
        assert_eq!((result.names.f1(), result.exact, result.ttfa), (1.0, false, Some(4)));
        // Another tool: nothing is right, whatever its arguments.
        let result = scored(&case, r#"{"name": "g", "arguments": {"x": 1, "y": "a"}}"#);
        assert_eq!((result.counts.f1(), result.names.f1(), result.ttfa), (0.0, 0.0, Some(1)));
        // A tool that is not on offer counts as found, and is no action.
        let result = scored(&case, r#"{"name": "h"}"#);
        assert_eq!((result.counts, result.ttfa), (Counts { matched: 0, found: 1, expected: 3 }, None));
        let result = scored(&case, r#"{"name": "f", "arguments": {"y": "a", "x": 1}}"#);
        assert_eq!((result.counts.f1(), result.exact), (1.0, true));
        assert_eq!(scored(&case, "<tool_call>{").unreadable, 1);
    }

    #[test]
    fn several_calls_and_none() {
        let two = case(r#"[{"name": "f", "arguments": {"x": 1}}, {"name": "f", "arguments": {"x": 2}}]"#);
        let text = r#"[{"name": "f", "arguments": {"x": 2}}, {"name": "f", "arguments": {"x": 1}}]"#;
        assert!(scored(&two, text).exact, "in any order");
        let once = scored(&two, r#"{"name": "f", "arguments": {"x": 2}}"#);
        assert_eq!(once.counts, Counts { matched: 2, found: 2, expected: 4 });
        let none = case("null");
        assert!(scored(&none, "It is sunny.").exact);
        let called = scored(&none, r#"{"name": "f"}"#);
        assert_eq!((called.counts.f1(), called.exact, called.expects_call), (0.0, false, false));
    }

    #[test]
    fn ranks_by_hand() {
        assert_eq!(at_rank(&[], 50), None);
        assert_eq!((at_rank(&[7], 50), at_rank(&[7], 95)), (Some(7.0), Some(7.0)));
        let twenty: Vec<usize> = (1..=20).collect();
        assert_eq!((at_rank(&twenty, 50), at_rank(&twenty, 95)), (Some(10.0), Some(19.0)));
        assert_eq!((at_rank(&[1, 2, usize::MAX], 50), at_rank(&[1, 2, usize::MAX], 95)), (Some(2.0), None));
    }
}
