//! Comparisons of made-up models, whose figures can be worked out by hand.

use super::*;
use crate::verify::OracleError;

const VOCABULARY: usize = 4;

/// Prefers the token after the last one, by 2 over the next and 1 more over the others.
fn logits_after(ids: &[u32]) -> Vec<f32> {
    let last = ids[ids.len() - 1] as usize;
    let mut logits = vec![0.0; VOCABULARY];
    logits[(last + 1) % VOCABULARY] = 3.0;
    logits[(last + 2) % VOCABULARY] = 1.0;
    logits
}

#[derive(Default)]
struct Counter {
    ids: Vec<u32>,
    fed: Vec<usize>,
    /// The call whose logits are spoilt, from 1.
    spoilt: usize,
}

impl Oracle for Counter {
    fn feed(&mut self, ids: &[u32]) -> Result<Vec<f32>, OracleError> {
        self.ids.extend(ids);
        self.fed.push(ids.len());
        let mut logits = logits_after(&self.ids);
        if self.fed.len() == self.spoilt {
            logits[0] = f32::NAN;
        }
        Ok(logits)
    }

    fn reset(&mut self) {
        self.ids.clear();
    }

    fn vocabulary(&self) -> usize {
        VOCABULARY
    }

    fn describe(&self) -> String {
        "counter".to_owned()
    }
}

/// Changes logits, given the length, the step and what they should be.
type Fault = fn(usize, usize, &mut Vec<f32>);

struct Faulty {
    kv: KvForm,
    seq_lens: Vec<usize>,
    fault: Fault,
}

impl Candidate for Faulty {
    fn kv(&self) -> KvForm {
        self.kv
    }

    fn seq_lens(&self) -> &[usize] {
        &self.seq_lens
    }

    fn logits(&mut self, seq_len: usize, prompt: &[u32], rest: &[u32]) -> Result<Vec<Vec<f32>>, String> {
        let all = [prompt, rest].concat();
        if all.len() > seq_len {
            return Err("too long".to_owned());
        }
        let step = |step: usize| {
            let mut logits = logits_after(&all[..prompt.len() + step]);
            (self.fault)(seq_len, step, &mut logits);
            logits
        };
        Ok((0..=rest.len()).map(step).collect())
    }
}

fn run(seq_lens: &[usize], prompts: &[Vec<u32>], fault: Fault) -> Result<(Report, Vec<usize>), VerifyError> {
    let mut oracle = Counter::default();
    let io = Faulty { kv: KvForm::Io, seq_lens: seq_lens.to_vec(), fault };
    let mut candidates: Vec<Box<dyn Candidate>> = vec![Box::new(io)];
    let options = Options { tokens: 4, thresholds: Thresholds::default() };
    let mut done = Vec::new();
    let report = compare(&mut oracle, &mut candidates, prompts, &options, &mut |now, total| {
        assert!(now <= total);
        done.push(now);
    })?;
    assert_eq!(done.last(), Some(&(seq_lens.len() * prompts.len())));
    Ok((report, oracle.fed))
}

#[test]
fn the_reference_runs_once_for_all_lengths_that_fit() {
    let (report, fed) = run(&[16, 8, 32], &[vec![0, 1, 2], vec![3]], |_, _, _| {}).unwrap();
    assert_eq!(fed, [3, 1, 1, 1, 1, 1, 1, 1]);
    assert!(report.passed && report.failures.is_empty() && report.differences.is_empty());
    let positions: Vec<_> = report.cells.iter().map(|c| (c.seq_len, c.phase, c.summary.positions)).collect();
    let expected = [8, 16, 32].map(|seq_len| [(seq_len, Phase::Prefill, 2), (seq_len, Phase::Decode, 6)]);
    assert_eq!(positions, expected.concat());
    let drift: Vec<_> = report.drift.iter().map(|d| (d.seq_len, d.against, d.summary.positions)).collect();
    assert_eq!(drift, [(8, 16, 8), (32, 16, 8)]);
    assert!(report.cells.iter().all(|cell| cell.summary.max_abs == 0.0));
}

#[test]
fn prompts_are_cut_to_what_fits() {
    let (report, fed) = run(&[16, 6], &[(0..9).map(|i| i % 4).collect()], |_, _, _| {}).unwrap();
    assert_eq!(fed, [4, 1, 1, 9, 1, 1, 1]);
    assert!(report.drift.is_empty(), "different tokens are not compared");
    let (_, fed) = run(&[1], &[vec![1, 2, 3]], |_, _, _| {}).unwrap();
    assert_eq!(fed, [1]);
}

#[test]
fn figures_are_those_of_the_fault() {
    let fault: Fault = |seq_len, step, logits| {
        if (seq_len, step) == (8, 2) {
            logits.iter_mut().for_each(|x| *x = -*x);
        }
    };
    let (report, _) = run(&[16, 8], &[vec![0, 1]], fault).unwrap();
    let cell =
        |seq_len, phase| report.cells.iter().find(|c| (c.seq_len, c.phase) == (seq_len, phase)).unwrap();
    assert_eq!(cell(8, Phase::Prefill).summary.cosine_min, Some(1.0));
    assert_eq!(cell(16, Phase::Decode).summary.cosine_min, Some(1.0));
    let broken = &cell(8, Phase::Decode).summary;
    assert_eq!((broken.cosine_min, broken.max_abs, broken.max_rel), (Some(-1.0), 6.0, 2.0));
    assert!((broken.top1 - 2.0 / 3.0).abs() < 1e-12);
    let failed: Vec<_> = report.failures.iter().map(|f| (f.at.as_str(), f.metric)).collect();
    let at = "io 8 decode";
    assert_eq!(failed[..3], [(at, "cosine"), (at, "kl"), (at, "top1")]);
    assert!(failed.contains(&("io 8 against 16", "drift_cosine")));
    assert!(failed.contains(&("io 8 prompt 0 position 4", "gap")));
    assert!(!report.passed);
}

#[test]
fn ties_are_within_the_error_seen_where_choices_agree() {
    let alone: Fault = |_, step, logits| {
        if step == 1 {
            flip(logits);
        }
    };
    let (report, _) = run(&[16], &[vec![0, 1]], alone).unwrap();
    let found = Difference {
        kv: KvForm::Io,
        seq_len: 16,
        phase: Phase::Decode,
        prompt: 0,
        position: 3,
        expected: 3,
        found: 0,
        gap: 2.0,
        tolerance: 0.0,
        tie: false,
    };
    assert_eq!(report.differences, std::slice::from_ref(&found));
    assert!(report.failures.iter().any(|f| f.metric == "gap" && f.found == Some(2.0)));

    let noisy: Fault = |_, step, logits| match step {
        1 => flip(logits),
        _ => logits.iter_mut().for_each(|x| *x -= 1.5),
    };
    let (report, _) = run(&[16], &[vec![0, 1]], noisy).unwrap();
    assert_eq!(report.differences, [Difference { tolerance: 3.0, tie: true, ..found }]);
    assert!(report.failures.iter().all(|f| f.metric != "gap" && f.metric != "top1"), "{:?}", report.failures);
}

/// The second choice wins by a hair.
fn flip(logits: &mut [f32]) {
    let ids = top(logits, 2);
    logits[ids[1]] = logits[ids[0]] + 0.001;
}

#[test]
fn nan_and_infinity_fail() {
    fn spoil(step: usize, logits: &mut [f32], bad: f32) {
        if step == 0 {
            logits[3] = bad;
        }
    }
    let nan: Fault = |_, step, logits| spoil(step, logits, f32::NAN);
    let inf: Fault = |_, step, logits| spoil(step, logits, f32::INFINITY);
    for (metric, fault) in [("nan", nan), ("inf", inf)] {
        let (report, _) = run(&[16], &[vec![0]], fault).unwrap();
        let failures: Vec<_> = report.failures.iter().filter(|f| f.at == "io 16 prefill").collect();
        assert!(failures.iter().any(|f| f.metric == metric && f.found == Some(1.0) && f.limit == 0.0));
        assert!(failures.iter().any(|f| f.metric == "cosine" && f.found.is_none()));
    }
}

#[test]
fn a_reference_that_is_not_finite_fails() {
    let mut oracle = Counter { spoilt: 2, ..Counter::default() };
    let io = Faulty { kv: KvForm::Io, seq_lens: vec![16], fault: |_, _, _| {} };
    let thresholds = Thresholds { top1: 0.0, top5: 0.0, ties_only: false, ..Thresholds::default() };
    let options = Options { tokens: 4, thresholds };
    let report = compare(&mut oracle, &mut [Box::new(io)], &[vec![0]], &options, &mut |_, _| {}).unwrap();
    let failures: Vec<_> = report.failures.iter().map(|f| (f.at.as_str(), f.metric, f.found)).collect();
    assert_eq!(failures, [("io 16 decode", "reference_non_finite", Some(1.0))]);
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let error = |seq_lens: &[usize], prompts: &[Vec<u32>], fault: Fault| {
        run(seq_lens, prompts, fault).unwrap_err().to_string()
    };
    let fine: Fault = |_, _, _| {};
    assert!(error(&[], &[vec![1]], fine).contains("no cache form"));
    assert!(error(&[8], &[vec![]], fine).contains("no prompt has a token"));
    let short: Fault = |_, _, logits| logits.truncate(3);
    assert_eq!(error(&[8], &[vec![1]], short), "io at length 8 gave 3 logits for a vocabulary of 4");
}
