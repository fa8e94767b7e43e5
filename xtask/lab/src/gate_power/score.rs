//! Many simulated gates, counted: false alarms, regressions found, minutes.

use anemeter::gate::Outcome;
use anyhow::Result;
use rayon::prelude::*;

use super::machine::{MACHINES, Machine};
use super::rules::{Gate, Rule};
use super::simulate::Regression;

/// How often each outcome came out of gates whose candidate has a true regression.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rates {
    pub(crate) fails: f64,
    pub(crate) passes: f64,
    pub(crate) minutes: f64,
}

impl Rates {
    pub(crate) fn inconclusive(&self) -> f64 {
        (1.0 - self.fails - self.passes).max(0.0)
    }
}

/// A rule on a machine.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) rule: Rule,
    pub(crate) machine: &'static str,
    /// With no change, with 8 % and with 10 % somewhere.
    pub(crate) rates: [Rates; 3],
}

/// Regressions that are tried, in per cent, and how many times as many gates each gets.
const REGRESSIONS: [(f64, usize); 3] = [(0.0, TIMES_UNCHANGED), (8.0, 1), (10.0, 1)];
/// False alarms are rare, so that it takes more gates to count them.
pub(crate) const TIMES_UNCHANGED: usize = 4;

/// Scores every rule on every machine.
pub(crate) fn score(gates: usize, seed: u64) -> Result<Vec<Row>> {
    let gate = Gate::new()?;
    let mut rows = Vec::new();
    for rule in Rule::ALL {
        for machine in &MACHINES {
            let mut rates = [Rates::default(); 3];
            for (rate, (pct, times)) in rates.iter_mut().zip(REGRESSIONS) {
                *rate = count(&gate, rule, machine, pct, gates * times, seed)?;
            }
            rows.push(Row { rule, machine: machine.name, rates });
        }
    }
    Ok(rows)
}

fn count(gate: &Gate, rule: Rule, machine: &Machine, pct: f64, gates: usize, seed: u64) -> Result<Rates> {
    let judged = (0..gates as u64).into_par_iter().map(|number| -> Result<Rates> {
        let seed = mixed(seed.wrapping_add(number));
        let mut random = fastrand::Rng::with_seed(seed);
        let regression = if pct > 0.0 { Regression::somewhere(pct, &mut random) } else { Regression::NONE };
        let judged = gate.judge(rule, machine, regression, seed & (u64::MAX >> 8))?;
        let is = |outcome: Outcome| f64::from(u8::from(judged.outcome == outcome));
        Ok(Rates { fails: is(Outcome::Fail), passes: is(Outcome::Pass), minutes: judged.minutes })
    });
    let sum = judged.try_reduce(Rates::default, |a, b| {
        Ok(Rates { fails: a.fails + b.fails, passes: a.passes + b.passes, minutes: a.minutes + b.minutes })
    })?;
    let share = |count: f64| count / gates as f64;
    Ok(Rates { fails: share(sum.fails), passes: share(sum.passes), minutes: share(sum.minutes) })
}

/// Neighbouring numbers become seeds without a pattern.
fn mixed(number: u64) -> u64 {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 27
}

/// What is asked of the gate that a table does not show; empty if all is well.
pub(crate) fn misses(rows: &[Row]) -> Vec<String> {
    let mut misses = Vec::new();
    for row in rows.iter().filter(|row| row.rule != Rule::Naive) {
        let [none, eight, ten] = row.rates;
        let mut ask = |good: bool, what: String| {
            if !good {
                misses.push(format!("{} on {}: {what}", row.rule.name(), row.machine));
            }
        };
        ask(none.fails <= 0.005, format!("{:.2} % false alarms, at most 0.5 % wanted", none.fails * 100.0));
        ask(ten.passes <= 0.01, format!("{:.2} % of 10 % pass, at most 1 % wanted", ten.passes * 100.0));
        let found = if row.rule == Rule::Stored { 0.97 } else { 0.99 };
        if row.machine == "typical" {
            let text = format!("{:.2} % of 8 % found, {} % wanted", eight.fails * 100.0, found * 100.0);
            ask(eight.fails >= found, text);
        }
    }
    misses
}

/// The table of a score, as Markdown.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| rule | machine | no change: fails | inconclusive | 8 %: fails / passes | 10 %: fails / passes | minutes |\n\
         |---|---|--:|--:|--:|--:|--:|\n",
    );
    let pct = |share: f64| format!("{:.1}", share * 100.0);
    for Row { rule, machine, rates: [none, eight, ten] } in rows {
        out += &format!(
            "| {} | {machine} | {:.2} % | {} % | {} / {} % | {} / {} % | {:.1} |\n",
            rule.name(),
            none.fails * 100.0,
            pct(none.inconclusive()),
            pct(eight.fails),
            pct(eight.passes),
            pct(ten.fails),
            pct(ten.passes),
            none.minutes
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_gates_keep_their_error_rates() {
        let gate = Gate::new().unwrap();
        let typical = &MACHINES[1];
        let rates = |rule, pct, gates| count(&gate, rule, typical, pct, gates, 1).unwrap();
        for rule in [Rule::Stored, Rule::Paired, Rule::Compare] {
            let none = rates(rule, 0.0, 60);
            assert!(none.fails == 0.0 && none.passes > 0.85, "{rule:?} {none:?}");
            let ten = rates(rule, 10.0, 20);
            assert!(ten.passes == 0.0 && ten.fails > 0.85, "{rule:?} {ten:?}");
        }
    }

    #[test]
    fn what_is_missed_is_named() {
        let rates = [
            Rates { fails: 0.01, passes: 0.9, minutes: 5.0 },
            Rates { fails: 0.9, passes: 0.0, minutes: 5.0 },
            Rates { fails: 0.9, passes: 0.02, minutes: 5.0 },
        ];
        let rows = [Rule::Stored, Rule::Naive].map(|rule| Row { rule, machine: "typical", rates });
        let expected = [
            "stored baseline (S) on typical: 1.00 % false alarms, at most 0.5 % wanted",
            "stored baseline (S) on typical: 2.00 % of 10 % pass, at most 1 % wanted",
            "stored baseline (S) on typical: 90.00 % of 8 % found, 97 % wanted",
        ];
        assert_eq!(misses(&rows), expected);
        assert!(table(&rows).contains("| typical | 1.00 % | 9.0 % | 90.0 / 0.0 % | 90.0 / 2.0 % | 5.0 |"));
    }
}
