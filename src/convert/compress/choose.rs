//! Bits for each weight under a budget for all: the choice alone, from what each candidate costs and loses.
//!
//! A multiple-choice knapsack, solved greedily on the lower convex hull of each weight's candidates in the plane of
//! bytes and loss (Sinha & Zoltners 1979), which is bit allocation by equal slopes (Shoham & Gersho 1988).

use super::precision::Precision;
use super::{CompressError, Result};

/// A weight to choose a precision for.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Its name.
    pub name: String,
    /// How many elements it has.
    pub elements: u64,
    /// What it may be stored as.
    pub candidates: Vec<Candidate>,
}

/// One precision of a weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// A precision that the weight may get.
    pub precision: Precision,
    /// Bytes of the weight then.
    pub bytes: u64,
    /// What the model loses by it, in any unit that adds up over weights, such as nats of divergence.
    pub loss: f64,
}

/// Picks a candidate for each weight so that all take at most `bits` per element on average and lose as little as
/// possible: starting from the smallest, whatever saves most loss per byte is bought until nothing more fits.
pub fn choose(choices: &[Choice], bits: f64) -> Result<Vec<usize>> {
    let elements: u64 = choices.iter().map(|choice| choice.elements).sum();
    let budget = (bits * elements as f64 / 8.0).floor();
    let frontiers: Vec<Vec<usize>> = choices.iter().map(frontier).collect::<Result<_, _>>()?;
    let bytes = |choice: usize, candidate: usize| choices[choice].candidates[candidate].bytes as f64;
    let loss = |choice: usize, candidate: usize| choices[choice].candidates[candidate].loss;
    let mut chosen: Vec<usize> = vec![0; choices.len()];
    let mut spent: f64 = (0..choices.len()).map(|choice| bytes(choice, frontiers[choice][0])).sum();
    if spent > budget {
        let least = spent * 8.0 / elements.max(1) as f64;
        return Err(CompressError::new(format!(
            "{bits} bits per element cannot be reached: the narrowest candidates take {least:.2}"
        ))
        .with_help("allow more bits, or narrower precisions"));
    }
    let mut steps: Vec<(f64, usize, usize)> = Vec::new();
    for (choice, frontier) in frontiers.iter().enumerate() {
        for (step, pair) in frontier.windows(2).enumerate() {
            let saved = loss(choice, pair[0]) - loss(choice, pair[1]);
            let cost = bytes(choice, pair[1]) - bytes(choice, pair[0]);
            steps.push((saved / cost, choice, step + 1));
        }
    }
    steps.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    for (_, choice, step) in steps {
        let cost = bytes(choice, frontiers[choice][step]) - bytes(choice, frontiers[choice][chosen[choice]]);
        if step == chosen[choice] + 1 && spent + cost <= budget {
            chosen[choice] = step;
            spent += cost;
        }
    }
    Ok(chosen.iter().zip(&frontiers).map(|(&step, frontier)| frontier[step]).collect())
}

/// The candidates worth having, from the smallest on: each further one saves less loss per byte than the one before.
fn frontier(choice: &Choice) -> Result<Vec<usize>> {
    let Choice { name, candidates, .. } = choice;
    if let Some(bad) = candidates.iter().find(|candidate| candidate.loss.is_nan()) {
        return Err(CompressError::new(format!(
            "the loss of weight `{name}` as {} is not a number",
            bad.precision
        )));
    }
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&candidates[a], &candidates[b]);
        a.bytes.cmp(&b.bytes).then(a.loss.total_cmp(&b.loss))
    });
    let rate = |from: usize, to: usize| {
        let (from, to) = (&candidates[from], &candidates[to]);
        (from.loss - to.loss) / (to.bytes - from.bytes) as f64
    };
    let mut hull: Vec<usize> = Vec::new();
    for next in order {
        let Some(&last) = hull.last() else {
            hull.push(next);
            continue;
        };
        if candidates[next].loss >= candidates[last].loss {
            continue;
        }
        while let [.., before, last] = hull[..] {
            if rate(before, last) > rate(before, next) {
                break;
            }
            hull.pop();
        }
        hull.push(next);
    }
    match hull.is_empty() {
        true => Err(CompressError::new(format!("there is no candidate for weight `{name}`"))),
        false => Ok(hull),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(name: &str, losses: &[(u64, f64)]) -> Choice {
        let candidate = |&(bytes, loss): &(u64, f64)| Candidate { precision: Precision::Keep, bytes, loss };
        Choice { name: name.to_owned(), elements: 8, candidates: losses.iter().map(candidate).collect() }
    }

    #[test]
    fn bits_go_where_they_help_most() {
        let choices = [
            choice("robust", &[(4, 1.0), (6, 0.9), (8, 0.8)]),
            choice("sensitive", &[(4, 10.0), (6, 4.0), (8, 0.5)]),
        ];
        assert_eq!(choose(&choices, 4.0).unwrap(), [0, 0]);
        assert_eq!(choose(&choices, 5.0).unwrap(), [0, 1]);
        assert_eq!(choose(&choices, 6.0).unwrap(), [0, 2]);
        assert_eq!(choose(&choices, 8.0).unwrap(), [2, 2]);
        let error = choose(&choices, 3.9).unwrap_err();
        let expected = "3.9 bits per element cannot be reached: the narrowest candidates take 4.00";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn candidates_that_cost_more_and_lose_more_are_never_chosen() {
        let choices = [choice("w", &[(8, 0.5), (4, 1.0), (6, 2.0), (5, 0.99)])];
        for (bits, chosen) in [(4.0, 1), (6.0, 1), (8.0, 0)] {
            assert_eq!(choose(&choices, bits).unwrap(), [chosen]);
        }
        assert!(choose(&[choice("w", &[])], 8.0).is_err());
        assert!(choose(&[choice("w", &[(1, f64::NAN)])], 8.0).is_err());
    }

    proptest::proptest! {
        #[test]
        fn budgets_are_kept_and_more_never_hurts(
            losses in proptest::collection::vec(proptest::collection::vec((1u64..16, 0.0f64..10.0), 1..5), 1..6),
        ) {
            let choices: Vec<Choice> = losses.iter().map(|losses| choice("w", losses)).collect();
            let mut before = f64::INFINITY;
            for bits in [4.0, 8.0, 12.0, 16.0] {
                let Ok(chosen) = choose(&choices, bits) else { continue };
                let picked = || chosen.iter().zip(&choices).map(|(&i, choice)| choice.candidates[i]);
                assert!(picked().map(|c| c.bytes).sum::<u64>() as f64 <= bits * choices.len() as f64);
                let loss: f64 = picked().map(|c| c.loss).sum();
                assert!(bits < 16.0 || loss <= before + 1e-9);
                before = loss;
            }
        }
    }
}
