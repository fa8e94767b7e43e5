//! Codes of whole weights, extreme ones too.

use super::testing::{correlated, loss};
use super::*;
use crate::compress::testing::normal;

const KINDS: &[&str] = &[
    "int4",
    "int4:block=16:asym",
    "int4:channel",
    "int4:tensor",
    "int8",
    "lut2:group=4",
    "lut4",
    "lut4:scale",
    "lut6:group=8",
];

fn solve(gram: &Gram, weights: &[f32], kind: &str) -> SolvedRows {
    Solver::new(gram, 0.0).solve("w", weights, kind.parse().unwrap()).unwrap()
}

#[test]
fn extreme_weights_and_statistics_are_defined() {
    let columns = 64;
    let mut dead = correlated(columns, 40);
    let (mut duplicated, mut ten) = (Gram::new(columns), Gram::new(columns));
    let twice: Vec<f32> = normal(300 * 32, 8).chunks(32).flat_map(|row| [row, row].concat()).collect();
    duplicated.add(&twice);
    ten.add(&normal(10 * columns, 2));
    let mut silent: Vec<f32> = normal(200 * columns, 4);
    silent.iter_mut().step_by(4).for_each(|input| *input = 0.0);
    dead.add(&silent);
    let values = normal(16 * columns, 3);
    let mut outlier = values.clone();
    outlier[70] = 60_000.0;
    let weights =
        [vec![0.0; 16 * columns], vec![-0.37; 16 * columns], vec![6e-8; 16 * columns], values, outlier];
    for gram in [Gram::new(columns), dead, duplicated, ten] {
        for weights in &weights {
            for kind in KINDS {
                let found = solve(&gram, weights, kind);
                assert_eq!((found.read.len(), found.codes.len()), (weights.len(), weights.len()));
                let numbers = found.read.iter().chain(&found.parameters).chain(&found.scales);
                assert!(numbers.clone().all(|x| x.is_finite()), "{kind}");
                assert!(found.loss.noise.is_finite(), "{kind}");
            }
        }
        let more = Solver::new(&gram, 0.0).correction(0.1).of(&weights[3]);
        assert!(more.len() == weights[3].len() && more.iter().all(|x| x.is_finite()));
        assert_eq!(solve(&gram, &weights[0], "int4").read, weights[0], "zeros stay zeros");
        assert_eq!(solve(&gram, &weights[0], "lut4").read, weights[0]);
        let constant = solve(&gram, &weights[1], "lut4:group=4").read;
        assert!(constant.iter().all(|x| (x + 0.37).abs() < 1e-3), "one entry is enough");
    }
}

#[test]
fn numbers_that_are_none_are_refused_by_name() {
    let gram = correlated(32, 64);
    let mut weights = normal(4 * 32, 1);
    weights[40] = f32::NAN;
    let error = Solver::new(&gram, 0.0).solve("w", &weights, "int4".parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "weight `w` has an element that is NaN and cannot be compressed");
    let mut gram = Gram::new(2);
    gram.add(&[f32::INFINITY, 0.0]);
    let error = Solver::new(&gram, 0.0).solve("w", &[0.0; 4], "lut4".parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "the inputs of weight `w` on the calibration text are not finite");
    assert!(
        Solver::new(&gram, 0.0).check("w").is_err() && Solver::new(&correlated(2, 9), 0.0).check("w").is_ok()
    );
    let error = Solver::new(&gram, 0.0).solve("w", &[0.0; 4], "sparse:0.5".parse().unwrap());
    assert!(error.is_err());
}

#[test]
fn what_is_lost_on_the_inputs_falls_below_that_of_rounding_with_few_tokens_too() {
    let weights = normal(32 * 96, 6);
    let truth = correlated(96, 4000);
    for tokens in [10, 200, 2000] {
        let mut seen = Gram::new(96);
        seen.add(&[0.0; 96]);
        let gram = if tokens == 10 { correlated(96, 10) } else { correlated(96, tokens) };
        for kind in ["int4", "lut4:group=16"] {
            let factor = Factor::new(&truth, 1, 0.0);
            let found = loss(&factor, &weights, &solve(&gram, &weights, kind).read);
            let blind = loss(&factor, &weights, &solve(&seen, &weights, kind).read);
            assert!(found < blind, "{kind} after {tokens} tokens: {found}, {blind} without data");
        }
    }
}

#[test]
fn strips_of_rows_give_what_all_rows_give() {
    let (gram, weights) = (correlated(48, 300), normal(32 * 48, 7));
    for kind in ["int4:block=16", "lut4:group=16", "lut3:group=8:scale"] {
        let whole = solve(&gram, &weights, kind);
        let halves: Vec<SolvedRows> = weights.chunks(16 * 48).map(|rows| solve(&gram, rows, kind)).collect();
        assert_eq!(whole.codes, [&halves[0].codes[..], &halves[1].codes].concat(), "{kind}");
        assert_eq!(whole.parameters, [&halves[0].parameters[..], &halves[1].parameters].concat(), "{kind}");
    }
}

#[test]
fn without_statistics_each_element_is_rounded_for_itself() {
    let weights = normal(32 * 64, 12);
    let mut silent = Gram::new(64);
    silent.add(&[0.0; 64]);
    for kind in KINDS {
        let precision = kind.parse().unwrap();
        let blind = Solver::blind(64).solve("w", &weights, precision).unwrap();
        let same = Solver::new(&silent, 0.0).solve("w", &weights, precision).unwrap();
        let squares = |solved: &SolvedRows| -> f64 {
            weights.iter().zip(&solved.read).map(|(a, b)| f64::from(a - b).powi(2)).sum()
        };
        assert!(squares(&blind) < 1.05 * squares(&same), "{kind}: {} {}", squares(&blind), squares(&same));
    }
}
