//! Whether the machine was quiet while a session was measured. A baseline of a busy machine hides regressions: later
//! sessions of a quiet one are faster.

use crate::gate::{Steadiness, launch_dispersion_pct};
use crate::report::{Outcome, Report};
use crate::stats::spread;

/// One sign of a machine that was not quiet.
type Rule = fn(&Report, &Steadiness) -> Option<String>;

const RULES: &[Rule] = &[load, canary, launches];

/// What shows that the machine was not quiet, in the order of the rules.
pub(super) fn disturbances(report: &Report, bars: &Steadiness) -> Vec<String> {
    RULES.iter().filter_map(|rule| rule(report, bars)).collect()
}

/// Other processes wanted to run.
fn load(report: &Report, _: &Steadiness) -> Option<String> {
    let machine = &report.machine;
    // A runtime that chooses its threads itself may use every core.
    let own = report.runtime.threads.unwrap_or(machine.logical_cores);
    let during = report.launches.iter().map(|launch| &launch.conditions);
    let loads = during.chain([&report.conditions_at_start, &report.conditions_at_end]);
    let busy = loads.filter(|conditions| conditions.is_busy_beside(own, machine));
    let load = busy.filter_map(|conditions| conditions.load_average).max_by(f64::total_cmp)?;
    let cores = machine.logical_cores;
    Some(format!("the load average was {load:.1} on {cores} cores, of which the benchmark takes {own}"))
}

/// A fixed computation took now longer, now less.
fn canary(report: &Report, bars: &Steadiness) -> Option<String> {
    let completed = report.launches.iter().filter(|launch| launch.outcome == Outcome::Completed);
    let times: Vec<f64> = completed.filter_map(|launch| launch.canary_ms).collect();
    let (found, allowed) = (spread(&times)? * 100.0, bars.canary_shift_pct);
    (found > allowed)
        .then(|| format!("the canary differs by {found:.1} % between launches, {allowed} % is allowed"))
}

fn launches(report: &Report, bars: &Steadiness) -> Option<String> {
    let (found, allowed) = (launch_dispersion_pct(report)?, bars.dispersion_pct);
    (found > allowed).then(|| format!("launches differ by {found:.1} %, {allowed} % is allowed"))
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    fn found(change: impl Fn(&mut Report)) -> Vec<String> {
        let mut report = testing::session(1);
        change(&mut report);
        disturbances(&report, &Steadiness::default())
    }

    #[test]
    fn a_quiet_machine_shows_no_sign() {
        assert_eq!(found(|_| ()), [""; 0]);
        // The benchmark keeps two cores busy itself.
        assert_eq!(found(|report| report.conditions_at_end.load_average = Some(2.3)), [""; 0]);
        // One launch that was disturbed is what robust statistics are for.
        assert_eq!(found(|report| report.launches[3].canary_ms = Some(9.0)), [""; 0]);
    }

    #[test]
    fn each_sign_says_what_it_found() {
        let loaded = found(|report| report.launches[2].conditions.load_average = Some(3.25));
        assert_eq!(loaded, ["the load average was 3.2 on 2 cores, of which the benchmark takes 2"]);
        let restless = found(|report| {
            for (index, launch) in report.launches.iter_mut().enumerate() {
                launch.canary_ms = Some(1.5 + 0.1 * index as f64);
            }
        });
        assert_eq!(restless, ["the canary differs by 16.0 % between launches, 2 % is allowed"]);
        let dispersed = found(|report| {
            for (index, launch) in report.launches.iter_mut().enumerate() {
                for request in &mut launch.requests {
                    let factor = 1.0 + 0.1 * index as f64;
                    request.ttft_ms *= factor;
                    request.steps_ms.iter_mut().for_each(|step| *step *= factor);
                }
            }
        });
        assert!(matches!(&*dispersed, [only] if only.starts_with("launches differ by ")), "{dispersed:?}");
    }
}
