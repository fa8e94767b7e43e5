//! A verdict with a check of each kind.

use crate::gate::*;
use crate::stats::Unit;

fn side(sessions: usize, launches: usize) -> Side {
    Side {
        name: "tiny <b>|*".to_owned(),
        created: "2026-01-31T12:00:00Z".to_owned(),
        hardware_profile_key: "apple-m1-max-64gb".to_owned(),
        runtime: "coreml".to_owned(),
        package_digests: vec!["xxh3:01".to_owned()],
        sessions,
        launches,
    }
}

fn range(low: f64, high: f64) -> Option<Range> {
    Some(Range { low, high, confidence: 0.95 })
}

fn speed(seq_len: usize, status: Status, regression_pct: f64, reason: &str) -> Check {
    Check {
        measure: Measure::Ttft,
        statistic: Some(Statistic::P50),
        seq_len: Some(seq_len),
        case: None,
        status,
        reason: reason.to_owned(),
        more_launches: (status == Status::Inconclusive).then_some(4),
        machine: false,
        effect: Some(Effect {
            regression_pct,
            interval_pct: range(regression_pct - 2.0, regression_pct + 2.0),
            baseline: Some(412.0),
            candidate: Some(412.0 * (1.0 + regression_pct / 100.0)),
            interval_units: range(4.12 * (regression_pct - 2.0), 4.12 * (regression_pct + 2.0)),
            unit: Some(Unit::Milliseconds),
        }),
        limit: Some(Limit::RegressionPct(5.0)),
        false_alarm: Some(0.003),
        probability: Some(0.0002),
    }
}

fn exact(measure: Measure, status: Status, reason: &str) -> Check {
    let (statistic, seq_len, effect) = (None, None, None);
    Check {
        measure,
        statistic,
        seq_len,
        case: None,
        effect,
        limit: None,
        false_alarm: Some(0.0),
        probability: None,
        ..speed(0, status, 0.0, reason)
    }
}

/// A verdict with a check of each kind.
pub(in crate::render) fn verdict() -> Verdict {
    let mut tail = speed(512, Status::Pass, 3.0, "at most 9.2 % slower");
    tail.statistic = Some(Statistic::PooledTail);
    tail.seq_len = None;
    if let Some(effect) = &mut tail.effect {
        (effect.baseline, effect.candidate, effect.unit) = (None, None, None);
    }
    Verdict {
        schema: SCHEMA.to_owned(),
        outcome: Outcome::Fail,
        rule: Rule::Stored,
        cross_hardware: false,
        same_packages: false,
        candidate: side(1, 10),
        baseline: side(3, 24),
        false_alarm: 0.005,
        checks: vec![
            speed(512, Status::Fail, 8.1, "8.1 % slower, 5 % is allowed, and chance is ruled out"),
            speed(1024, Status::Inconclusive, 5.5, "5.5 % slower, 5 % is allowed, but chance may do that"),
            speed(2048, Status::Pass, -1.2, "at most 0.4 % slower"),
            tail,
            exact(Measure::Cosine, Status::NotGated, "waived until 2026-12-31: 100 % known\nissue"),
        ],
        warnings: vec!["the system is 15.5, the baseline's 15.4".to_owned()],
    }
}
