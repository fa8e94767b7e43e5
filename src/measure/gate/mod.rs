//! The gate: a report, its baseline and a policy become a verdict. Pure: no files, no clock.
//!
//! Speed is noise, so a verdict is pass, fail or inconclusive with stated error rates: [`judge`] compares with
//! blessed sessions, [`paired()`] with interleaved launches of the same session. What is exact is compared exactly.
//! `docs/gates.md` says how, and what the error rates are.

mod bands;
mod comparable;
mod decide;
mod exact;
mod needed;
mod paired;
mod policy;
mod rates;
mod same_packages;
mod series;
mod stored;
mod verdict;
mod waiver;

use anemeter_base::time::Date;
use anemeter_base::vocabulary::Choice;
pub use comparable::{Difference, GateError};
pub use paired::{Arm, draw_order};
pub use policy::{GatesFile, Minimum, Policy, Regression, Steadiness};
pub use rates::{InterimLook, paired_looks};
pub use stored::launch_dispersion_pct;
pub use verdict::{
    Check, Effect, Limit, Measure, Outcome, Range, Rule, SCHEMA, Side, Statistic, Status, Verdict,
};
pub use waiver::Waiver;

use crate::report::Report;

/// Blessed sessions below which a stored baseline says less than it could.
const SESSIONS_WANTED: usize = 3;

/// What a verdict depends on besides reports and policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The day, for waivers.
    pub today: Date,
    /// Which look at the launches this is.
    pub look: InterimLook,
    /// Whether speeds of different hardware profiles may be compared.
    pub allow_cross_hardware: bool,
}

/// Judges a report by blessed sessions, oldest first.
pub fn judge(
    candidate: &Report,
    sessions: &[&Report],
    policy: &Policy,
    options: &Options,
) -> Result<Verdict, GateError> {
    let newest = sessions.last().ok_or(GateError::NoBaseline)?;
    comparable::usable(candidate, "the report")?;
    for (index, session) in sessions.iter().enumerate() {
        check_comparable(candidate, session, policy, options)?;
        let which = match sessions.len() {
            1 => "the baseline".to_owned(),
            count => format!("session {} of {count} of the baseline", index + 1),
        };
        comparable::usable(session, &which)?;
    }
    let mut checks = stored::checks(candidate, sessions, policy, options.look);
    // Exact figures have no spread to average over sessions: the one that was blessed last counts.
    checks.extend(exact::checks(candidate, newest, policy));
    let mut warnings = Vec::new();
    // The variance between sessions counts with 1 + 1/sessions: 2 for one session, 1.33 for three.
    if sessions.len() < SESSIONS_WANTED {
        let count = sessions.len();
        warnings.push(format!(
            "the baseline has {count} of {SESSIONS_WANTED} sessions, so that smaller regressions stay inconclusive"
        ));
    }
    Ok(verdict(Rule::Stored, candidate, sessions, (checks, warnings), policy, options))
}

/// Judges a package by another that ran interleaved with it, in the order that was drawn and recorded. Both reports
/// have their launches in running order, failed ones too.
pub fn paired(
    baseline: &Report,
    candidate: &Report,
    order: &[Arm],
    policy: &Policy,
    options: &Options,
) -> Result<Verdict, GateError> {
    check_comparable(candidate, baseline, policy, options)?;
    comparable::usable(baseline, "the baseline")?;
    comparable::usable(candidate, "the candidate")?;
    let mut checks = paired::checks(baseline, candidate, order, policy, options.look)?;
    checks.extend(exact::checks(candidate, baseline, policy));
    Ok(verdict(Rule::Paired, candidate, &[baseline], (checks, Vec::new()), policy, options))
}

/// Refuses reports that were not measured alike, naming each difference.
pub fn check_comparable(
    candidate: &Report,
    session: &Report,
    policy: &Policy,
    options: &Options,
) -> Result<(), GateError> {
    let differences = comparable::differences(candidate, session, policy, options.allow_cross_hardware);
    if differences.is_empty() { Ok(()) } else { Err(GateError::NotComparable(differences)) }
}

fn verdict(
    rule: Rule,
    candidate: &Report,
    sessions: &[&Report],
    (mut checks, mut warnings): (Vec<Check>, Vec<String>),
    policy: &Policy,
    options: &Options,
) -> Verdict {
    let cross_hardware = sessions.iter().any(|session| comparable::crosses_hardware(candidate, session));
    warnings.extend(
        sessions.last().into_iter().flat_map(|newest| comparable::remarks(candidate, newest, policy)),
    );
    warnings.extend(bands::warnings(candidate, policy));
    warnings.extend(same_packages::apply(candidate, sessions, &mut checks));
    let profile = &candidate.header.hardware_profile_key;
    warnings.extend(waiver::apply(&policy.waivers, profile, options.today, &mut checks));
    checks.sort_by_key(|check| (check.measure, check.statistic, check.seq_len));
    Verdict {
        schema: SCHEMA.to_owned(),
        outcome: Outcome::of(&checks),
        rule,
        cross_hardware,
        same_packages: same_packages::are_measured(candidate, sessions),
        candidate: side(&[candidate]),
        baseline: side(sessions),
        false_alarm: options.look.false_alarms(),
        checks,
        warnings,
    }
}

fn side(sessions: &[&Report]) -> Side {
    let newest = sessions.last();
    let of = |text: fn(&Report) -> &str| newest.map(|report| text(report).to_owned()).unwrap_or_default();
    Side {
        name: newest.map(|report| report.subject.label()).unwrap_or_default(),
        created: of(|report| &report.header.created),
        hardware_profile_key: of(|report| &report.header.hardware_profile_key),
        runtime: of(|report| report.runtime.name.name()),
        package_digests: newest.map(|report| report.subject.package_digests.clone()).unwrap_or_default(),
        sessions: sessions.len(),
        launches: sessions.iter().map(|report| series::completed(report).len()).sum(),
    }
}

#[cfg(test)]
mod tests;
