//! Reports become a baseline, if nothing speaks against it.

use crate::advice::Remedy;
use crate::baseline::{
    BlessError, Blessed, Blessing, Facts, Judgement, Proposal, Provenance, Refusal, Refusals, Sessions,
    Store, Tree, noise, refusals,
};
use crate::evaluate::{Baseline, GateRules};
use crate::gate::{InterimLook, Outcome, Status, Steadiness};
use crate::hardware::Profiles;
use crate::report::Report;

/// What a gate says of a report against the present baseline, with a sentence to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateVerdict {
    /// It is not slower than allowed.
    Pass(String),
    /// It cannot be told.
    Inconclusive(String),
    /// It cannot be told, because the machine changed or was not steady.
    OpenByMachine(String),
    /// It is slower or worse than allowed.
    Fail(String),
    /// The two cannot be compared.
    NotComparable(String),
}

/// Judges a report against the present baseline.
pub type Gate<'a> = dyn FnMut(&Report, &Blessed) -> GateVerdict + 'a;

/// The gate over blessed sessions, as `anemeter gate` judges.
pub fn stored_gate(rules: &GateRules) -> impl Fn(&Report, &Blessed) -> GateVerdict {
    move |report, present| {
        let judged = rules.judge(report, Baseline::Sessions(&present.sessions), InterimLook::only());
        let verdict = match judged {
            Ok(verdict) => verdict,
            Err(error) => return GateVerdict::NotComparable(error.to_string()),
        };
        let listed = |status| {
            let checks = verdict.with(status).map(|check| format!("{}: {}", check.label(), check.reason));
            checks.collect::<Vec<_>>().join("; ")
        };
        match verdict.outcome {
            Outcome::Pass => GateVerdict::Pass(String::new()),
            Outcome::Fail => GateVerdict::Fail(listed(Status::Fail)),
            Outcome::Inconclusive if verdict.is_open_by_machine() => {
                GateVerdict::OpenByMachine(listed(Status::Inconclusive))
            }
            Outcome::Inconclusive => GateVerdict::Inconclusive(listed(Status::Inconclusive)),
        }
    }
}

/// What to bless, and what is known about it. Git is one of the facts, so that a scratch folder needs none.
pub struct BlessRequest<'a> {
    /// Reports, a session each.
    pub reports: Vec<Report>,
    /// What happens to the sessions of the present baseline.
    pub sessions: Sessions,
    /// Profiles that machines are matched to.
    pub profiles: &'a Profiles,
    /// The tree that is blessed from.
    pub tree: Tree,
    /// Who blesses, when, at which commit.
    pub provenance: Provenance,
    /// Why a failing gate is to be overruled.
    pub accept_regression: Option<String>,
    /// How steady the machine must have been.
    pub steadiness: Steadiness,
    /// Why a session of a busy machine is good enough.
    pub accept_noise: Option<String>,
}

/// Makes reports the baseline of their key.
pub fn bless(
    store: &Store,
    request: &BlessRequest<'_>,
    gate: &mut Gate<'_>,
) -> Result<Blessing, BlessError<Refusals>> {
    let facts = Facts { profiles: request.profiles, tree: request.tree.clone() };
    let mut refused = refusals(&request.reports, &facts);
    let noise = noise(&request.reports, &request.steadiness);
    let accepted_noise = request.accept_noise.clone().filter(|_| !noise.is_empty());
    if request.accept_noise.is_none() {
        refused.extend(noise);
    }
    if !refused.is_empty() {
        return Err(BlessError::Refused(Refusals(refused)));
    }
    let proposal = Proposal {
        reports: request.reports.clone(),
        sessions: request.sessions,
        provenance: Provenance { accepted_noise, ..request.provenance.clone() },
    };
    store.bless(&proposal, |present| match present {
        None => Ok(Judgement { gate: "first baseline".to_owned(), ..Judgement::default() }),
        Some(present) => judge(request, present, gate),
    })
}

/// Asks the gate about every report; one that fails decides.
fn judge(request: &BlessRequest<'_>, last: &Blessed, gate: &mut Gate<'_>) -> Result<Judgement, Refusals> {
    let mut refused: Vec<Refusal> =
        request.reports.iter().filter_map(|r| other_packages(request, last, r)).collect();
    let mut words: Vec<String> = Vec::new();
    let (mut failed, mut open_by_machine) = (false, false);
    for report in &request.reports {
        let (kind, text, remedy) = match gate(report, last) {
            GateVerdict::Pass(text) => ("pass", text, None),
            GateVerdict::Inconclusive(text) => ("inconclusive", text, None),
            GateVerdict::OpenByMachine(text) => ("inconclusive", text, Some(Remedy::AcceptNoise)),
            GateVerdict::Fail(text) => ("fail", text, Some(Remedy::AcceptRegression)),
            GateVerdict::NotComparable(text) => {
                ("not comparable", text, Some(Remedy::AcceptOtherMeasurement))
            }
        };
        let word = if text.is_empty() { kind.to_owned() } else { format!("{kind}: {text}") };
        if let Some(remedy) = remedy {
            let by_machine = matches!(remedy, Remedy::AcceptNoise);
            failed |= !by_machine;
            open_by_machine |= by_machine;
            let reason = if by_machine { &request.accept_noise } else { &request.accept_regression };
            if reason.is_none() {
                let found = format!("the gate against the present baseline says {word}");
                refused.push(Refusal { found, remedy });
            }
        }
        words.push(word);
    }
    if !refused.is_empty() {
        return Err(Refusals(refused));
    }
    words.dedup();
    let accepted_regression = request.accept_regression.clone().filter(|_| failed);
    let accepted_noise = request.accept_noise.clone().filter(|_| open_by_machine);
    Ok(Judgement { gate: words.join("; "), accepted_regression, accepted_noise })
}

/// A session can only be added to a baseline of the same packages.
fn other_packages(request: &BlessRequest<'_>, present: &Blessed, report: &Report) -> Option<Refusal> {
    let same = present.provenance.package_digests == report.subject.package_digests;
    (request.sessions == Sessions::Added && !same).then(|| Refusal {
        found: "the report measured other packages than the present baseline".to_owned(),
        remedy: Remedy::NewBaseline,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Key;
    use crate::baseline::testing::{scaled, session, store};

    fn request(profiles: &Profiles, report: Report) -> BlessRequest<'_> {
        BlessRequest {
            reports: vec![report],
            sessions: Sessions::New,
            profiles,
            tree: Tree::NotAsked,
            provenance: Provenance::default(),
            accept_regression: None,
            steadiness: Steadiness::default(),
            accept_noise: None,
        }
    }

    fn refused(result: Result<Blessing, BlessError<Refusals>>) -> Vec<String> {
        match result.unwrap_err() {
            BlessError::Refused(refused) => refused.0.into_iter().map(|refusal| refusal.found).collect(),
            error => panic!("{error}"),
        }
    }

    #[test]
    fn a_scratch_folder_needs_no_repository() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let never =
            &mut |_: &Report, _: &Blessed| -> GateVerdict { panic!("there is nothing to compare with") };
        let blessing = bless(&store, &request(&profiles, session(1)), never).unwrap();
        assert_eq!(blessing.blessed.provenance.gate, "first baseline");
        assert_eq!(store.keys().unwrap(), [Key::of(&session(1))]);
    }

    #[test]
    fn a_failing_gate_needs_a_reason() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let mut gate =
            |_: &Report, present: &Blessed| GateVerdict::Fail(format!("slower than {}", present.number));
        bless(&store, &request(&profiles, session(1)), &mut gate).unwrap();
        let mut slower = request(&profiles, scaled(2, 1.2));
        let expected = ["the gate against the present baseline says fail: slower than 1"];
        assert_eq!(refused(bless(&store, &slower, &mut gate)), expected);
        slower.accept_regression = Some("a larger vocabulary".to_owned());
        let provenance = bless(&store, &slower, &mut gate).unwrap().blessed.provenance;
        assert_eq!(provenance.gate, "fail: slower than 1");
        assert_eq!(provenance.accepted_regression.as_deref(), Some("a larger vocabulary"));
        slower.reports = vec![session(3)];
        let passing = &mut |_: &Report, _: &Blessed| GateVerdict::Pass(String::new());
        let provenance = bless(&store, &slower, passing).unwrap().blessed.provenance;
        assert_eq!((provenance.gate.as_str(), provenance.accepted_regression), ("pass", None));
    }

    #[test]
    fn a_busy_machine_needs_a_reason() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let mut gate = |_: &Report, _: &Blessed| GateVerdict::Pass(String::new());
        let mut busy = session(1);
        busy.conditions_at_end.load_average = Some(4.0);
        let mut busy = request(&profiles, busy);
        let found = refused(bless(&store, &busy, &mut gate));
        assert!(matches!(&*found, [only] if only.contains("on a busy machine")), "{found:?}");
        busy.accept_noise = Some("a laptop".to_owned());
        let provenance = bless(&store, &busy, &mut gate).unwrap().blessed.provenance;
        assert_eq!(provenance.accepted_noise.as_deref(), Some("a laptop"));
        busy.reports = vec![session(2)];
        let provenance = bless(&store, &busy, &mut gate).unwrap().blessed.provenance;
        assert_eq!(provenance.accepted_noise, None, "there was nothing to accept");
    }

    #[test]
    fn a_report_is_blessed_once() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let mut gate = |_: &Report, _: &Blessed| GateVerdict::Pass(String::new());
        let mut again = request(&profiles, session(1));
        bless(&store, &again, &mut gate).unwrap();
        let error = bless(&store, &again, &mut gate).unwrap_err().to_string();
        assert!(
            error.ends_with("the report of 2026-02-01T12:00:00Z is a session of this baseline already"),
            "{error}"
        );
        again.reports = vec![session(2), session(2)];
        let error = bless(&store, &again, &mut gate).unwrap_err().to_string();
        assert_eq!(error, "the report of 2026-02-02T12:00:00Z is given more than once");
        again.reports = vec![session(1), session(2)];
        assert_eq!(bless(&store, &again, &mut gate).unwrap().blessed.sessions.len(), 2, "one of them is new");
    }

    #[test]
    fn the_stored_gate_tells_slower_from_other() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let rules = GateRules::read(None, None).unwrap();
        let mut gate = stored_gate(&rules);
        bless(&store, &request(&profiles, session(1)), &mut gate).unwrap();
        let present = store.latest(&Key::of(&session(1))).unwrap();
        let mut slower = scaled(2, 1.5);
        assert!(matches!(gate(&slower, &present), GateVerdict::Inconclusive(_)), "the same packages");
        slower.subject.package_digests = vec!["xxh3:09".to_owned()];
        let slower = gate(&slower, &present);
        assert!(matches!(&slower, GateVerdict::Fail(text) if text.contains("TTFT p50 at 128")), "{slower:?}");
        let mut other = session(2);
        other.runtime.threads = Some(1);
        let other = gate(&other, &present);
        assert!(matches!(&other, GateVerdict::NotComparable(text) if text.contains("threads")), "{other:?}");
        assert!(!matches!(gate(&session(2), &present), GateVerdict::Fail(_)));
    }

    #[test]
    fn what_the_machine_left_open_is_blessed_for_a_reason_only() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let rules = GateRules::read(None, None).unwrap();
        let mut gate = stored_gate(&rules);
        bless(&store, &request(&profiles, session(1)), &mut gate).unwrap();
        // A model that is 20 % slower, on a day when the canary moved by 3 %: neither proves the other.
        let mut slower = scaled(2, 1.2);
        slower.subject.package_digests = vec!["xxh3:09".to_owned()];
        if let Some(verification) = &mut slower.verification {
            verification.package_digests = slower.subject.package_digests.clone();
        }
        slower.launches.iter_mut().for_each(|launch| launch.canary_ms = launch.canary_ms.map(|ms| ms * 1.03));
        let mut laundered = request(&profiles, slower);
        let found = refused(bless(&store, &laundered, &mut gate));
        assert!(found[0].contains("inconclusive") && found[0].contains("canary"), "{found:?}");
        laundered.accept_noise = Some("the only machine there is".to_owned());
        let provenance = bless(&store, &laundered, &mut gate).unwrap().blessed.provenance;
        assert_eq!(provenance.accepted_noise.as_deref(), Some("the only machine there is"));
        assert_eq!(provenance.accepted_regression, None);
    }

    #[test]
    fn sessions_are_added_to_the_same_packages_only() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let mut gate = |_: &Report, _: &Blessed| GateVerdict::Inconclusive("too noisy".to_owned());
        bless(&store, &request(&profiles, session(1)), &mut gate).unwrap();
        let mut other = session(2);
        other.subject.package_digests = vec!["xxh3:09".to_owned()];
        if let Some(verification) = &mut other.verification {
            verification.package_digests = other.subject.package_digests.clone();
        }
        let mut added = request(&profiles, other);
        added.sessions = Sessions::Added;
        let expected = ["the report measured other packages than the present baseline"];
        assert_eq!(refused(bless(&store, &added, &mut gate)), expected);
        added.reports = vec![session(2), session(3)];
        let blessed = bless(&store, &added, &mut gate).unwrap().blessed;
        let gate = blessed.provenance.gate.as_str();
        assert_eq!((blessed.sessions.len(), gate), (3, "inconclusive: too noisy"));
    }

    #[test]
    fn what_may_not_be_blessed_is_refused_before_any_gate() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let mut report = session(1);
        report.verification = None;
        report.launches.truncate(2);
        let never = &mut |_: &Report, _: &Blessed| -> GateVerdict { panic!("it is refused before") };
        let error = bless(&store, &request(&profiles, report), never).unwrap_err().to_string();
        assert!(
            error.contains("that nobody verified") && error.contains("; ") && error.contains("launches"),
            "{error}"
        );
        assert!(store.keys().unwrap().is_empty());
    }
}
