//! Reports become a baseline, if nothing speaks against it.

use crate::baseline::{
    BlessError, Blessed, Blessing, Facts, Judgement, Proposal, Provenance, Refusal, Sessions, Store, Tree,
    refusals,
};
use crate::gate::{self, Date, GatesFile, Look, Options, Outcome, Policy, Status};
use crate::hardware::Profiles;
use crate::report::Report;

/// What a gate says of a report against the present baseline, with a sentence to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// It is not slower than allowed.
    Pass(String),
    /// It cannot be told.
    Inconclusive(String),
    /// It is slower or worse than allowed.
    Fail(String),
    /// The two cannot be compared.
    NotComparable(String),
}

/// Judges a report against the present baseline.
pub type Gate<'a> = dyn FnMut(&Report, &Blessed) -> Judged + 'a;

/// The gate over blessed sessions, as `anemeter gate` judges.
pub fn stored_gate(
    profiles: &Profiles,
    file: &GatesFile,
    today: Date,
) -> impl Fn(&Report, &Blessed) -> Judged {
    move |report, present| {
        let policy = Policy::new(&profiles.of_key(&report.header.hardware_profile_key), file);
        let options = Options { today, look: Look::only(), allow_cross_hardware: false };
        let sessions: Vec<&Report> = present.sessions.iter().collect();
        let verdict = match gate::judge(report, &sessions, &policy, &options) {
            Ok(verdict) => verdict,
            Err(error) => return Judged::NotComparable(error.to_string()),
        };
        let listed = |status| {
            let checks = verdict.with(status).map(|check| format!("{}: {}", check.label(), check.reason));
            checks.collect::<Vec<_>>().join("; ")
        };
        match verdict.outcome {
            Outcome::Pass => Judged::Pass(String::new()),
            Outcome::Fail => Judged::Fail(listed(Status::Fail)),
            Outcome::Inconclusive => Judged::Inconclusive(listed(Status::Inconclusive)),
        }
    }
}

/// What to bless, and what is known about it. Git is one of the facts, so that a scratch folder needs none.
pub struct Wish<'a> {
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
}

/// Why nothing was blessed.
#[derive(Debug)]
pub enum NotBlessed {
    /// Something speaks against it; everything that does.
    Refused(Vec<Refusal>),
    /// The store or the present baseline is not good.
    Store(BlessError<Vec<Refusal>>),
}

/// Makes reports the baseline of their key.
pub fn bless(store: &Store, wish: &Wish<'_>, gate: &mut Gate<'_>) -> Result<Blessing, NotBlessed> {
    let facts = Facts { profiles: wish.profiles, tree: wish.tree.clone() };
    let refused = refusals(&wish.reports, &facts);
    if !refused.is_empty() {
        return Err(NotBlessed::Refused(refused));
    }
    let proposal = Proposal {
        reports: wish.reports.clone(),
        sessions: wish.sessions,
        provenance: wish.provenance.clone(),
    };
    let blessing = store.bless(&proposal, |present| match present {
        None => Ok(Judgement { gate: "first baseline".to_owned(), accepted_regression: None }),
        Some(present) => judge(wish, present, gate),
    });
    blessing.map_err(|error| match error {
        BlessError::Refused(refused) => NotBlessed::Refused(refused),
        other => NotBlessed::Store(other),
    })
}

/// Asks the gate about every report; one that fails decides.
fn judge(wish: &Wish<'_>, present: &Blessed, gate: &mut Gate<'_>) -> Result<Judgement, Vec<Refusal>> {
    let mut refused: Vec<Refusal> =
        wish.reports.iter().filter_map(|r| other_packages(wish, present, r)).collect();
    let mut words: Vec<String> = Vec::new();
    let mut failed = false;
    for report in &wish.reports {
        let (kind, text, help) = match gate(report, present) {
            Judged::Pass(text) => ("pass", text, None),
            Judged::Inconclusive(text) => ("inconclusive", text, None),
            Judged::Fail(text) => {
                ("fail", text, Some("mend it, or say why it is accepted: --accept-regression REASON"))
            }
            Judged::NotComparable(text) => (
                "not comparable",
                text,
                Some("measure as before, or say why it is accepted: --accept-regression REASON"),
            ),
        };
        let word = if text.is_empty() { kind.to_owned() } else { format!("{kind}: {text}") };
        if let Some(help) = help {
            failed = true;
            if wish.accept_regression.is_none() {
                let found = format!("the gate against the present baseline says {word}");
                refused.push(Refusal { found, help: help.to_owned() });
            }
        }
        words.push(word);
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    words.dedup();
    let accepted_regression = wish.accept_regression.clone().filter(|_| failed);
    Ok(Judgement { gate: words.join("; "), accepted_regression })
}

/// A session can only be added to a baseline of the same packages.
fn other_packages(wish: &Wish<'_>, present: &Blessed, report: &Report) -> Option<Refusal> {
    let same = present.provenance.package_digests == report.subject.package_digests;
    (wish.sessions == Sessions::Added && !same).then(|| Refusal {
        found: "the report measured other packages than the present baseline".to_owned(),
        help: "sessions of a baseline measure the same packages: bless it without --add-session".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Key;
    use crate::baseline::testing::{scaled, session, store};

    fn wish(profiles: &Profiles, report: Report) -> Wish<'_> {
        Wish {
            reports: vec![report],
            sessions: Sessions::New,
            profiles,
            tree: Tree::NotAsked,
            provenance: Provenance::default(),
            accept_regression: None,
        }
    }

    fn refused(result: Result<Blessing, NotBlessed>) -> Vec<String> {
        match result.unwrap_err() {
            NotBlessed::Refused(refused) => refused.into_iter().map(|refusal| refusal.found).collect(),
            NotBlessed::Store(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_scratch_folder_needs_no_repository() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let never = &mut |_: &Report, _: &Blessed| -> Judged { panic!("there is nothing to compare with") };
        let blessing = bless(&store, &wish(&profiles, session(1)), never).unwrap();
        assert_eq!(blessing.blessed.provenance.gate, "first baseline");
        assert_eq!(store.keys().unwrap(), [Key::of(&session(1))]);
    }

    #[test]
    fn a_failing_gate_needs_a_reason() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let mut gate =
            |_: &Report, present: &Blessed| Judged::Fail(format!("slower than {}", present.number));
        bless(&store, &wish(&profiles, session(1)), &mut gate).unwrap();
        let mut slower = wish(&profiles, scaled(2, 1.2));
        assert_eq!(
            refused(bless(&store, &slower, &mut gate)),
            ["the gate against the present baseline says fail: slower than 1"]
        );
        slower.accept_regression = Some("a larger vocabulary".to_owned());
        let provenance = bless(&store, &slower, &mut gate).unwrap().blessed.provenance;
        assert_eq!(provenance.gate, "fail: slower than 1");
        assert_eq!(provenance.accepted_regression.as_deref(), Some("a larger vocabulary"));
        slower.reports = vec![session(3)];
        let passing = &mut |_: &Report, _: &Blessed| Judged::Pass(String::new());
        let provenance = bless(&store, &slower, passing).unwrap().blessed.provenance;
        assert_eq!((provenance.gate.as_str(), provenance.accepted_regression), ("pass", None));
    }

    #[test]
    fn the_stored_gate_tells_slower_from_other() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let (file, today) = (GatesFile::built_in().unwrap(), Date::parse("2026-03-01").unwrap());
        let mut gate = stored_gate(&profiles, &file, today);
        bless(&store, &wish(&profiles, session(1)), &mut gate).unwrap();
        let present = store.latest(&Key::of(&session(1))).unwrap();
        let slower = gate(&scaled(2, 1.5), &present);
        assert!(matches!(&slower, Judged::Fail(text) if text.contains("TTFT p50 at 128")), "{slower:?}");
        let mut other = session(2);
        other.runtime.threads = Some(1);
        let other = gate(&other, &present);
        assert!(matches!(&other, Judged::NotComparable(text) if text.contains("threads")), "{other:?}");
        assert!(!matches!(gate(&session(2), &present), Judged::Fail(_)));
    }

    #[test]
    fn sessions_are_added_to_the_same_packages_only() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let mut gate = |_: &Report, _: &Blessed| Judged::Inconclusive("too noisy".to_owned());
        bless(&store, &wish(&profiles, session(1)), &mut gate).unwrap();
        let mut other = session(2);
        other.subject.package_digests = vec!["xxh3:09".to_owned()];
        if let Some(verification) = &mut other.verification {
            verification.package_digests = other.subject.package_digests.clone();
        }
        let mut added = wish(&profiles, other);
        added.sessions = Sessions::Added;
        assert_eq!(
            refused(bless(&store, &added, &mut gate)),
            ["the report measured other packages than the present baseline"]
        );
        added.reports = vec![session(2), session(3)];
        let blessed = bless(&store, &added, &mut gate).unwrap().blessed;
        assert_eq!(
            (blessed.sessions.len(), blessed.provenance.gate.as_str()),
            (3, "inconclusive: too noisy")
        );
    }

    #[test]
    fn what_may_not_be_blessed_is_refused_before_any_gate() {
        let (_folder, store) = store();
        let profiles = Profiles::built_in().unwrap();
        let mut report = session(1);
        report.verification = None;
        report.launches.truncate(2);
        let never = &mut |_: &Report, _: &Blessed| -> Judged { panic!("it is refused before") };
        assert_eq!(refused(bless(&store, &wish(&profiles, report), never)).len(), 2);
        assert!(store.keys().unwrap().is_empty());
    }
}
