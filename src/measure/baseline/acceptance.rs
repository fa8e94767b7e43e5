//! What reports must be to be blessed: rules over them, each with what was found.

use super::content::completed;
use super::key::Key;
use super::quiet::disturbances;
use crate::gate::Steadiness;
use crate::report::{LeakVerdict, Outcome, Report};
use anemeter_base::advice::{Advice, Remedy};
use anemeter_base::hardware::{Match, Profiles, match_profile};
use anemeter_base::vocabulary::Origin;

/// Fewer launches than this can never pass a gate.
const FEWEST_LAUNCHES: usize = 6;

/// What is known besides the reports.
pub struct Facts<'a> {
    /// Profiles that machines are matched to.
    pub profiles: &'a Profiles,
    /// The tree that is blessed from.
    pub tree: Tree,
}

/// The state of the files that are under version control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    /// They are those of the commit.
    Clean,
    /// These files differ from the commit.
    Changed(Vec<String>),
    /// There is no repository.
    NoRepository,
    /// There is a repository without a commit.
    NoCommit,
    /// It does not matter, as in a scratch folder.
    NotAsked,
}

/// Why reports may not be blessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found}")]
pub struct Refusal {
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub remedy: Remedy,
}

impl Advice for Refusal {
    fn remedy(&self) -> Option<Remedy> {
        Some(self.remedy.clone())
    }
}

/// Every reason why reports may not be blessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|refusal| &*refusal.found).collect::<Vec<_>>().join("; "))]
pub struct Refusals(pub Vec<Refusal>);

/// A rule about each report.
type Rule = fn(&Report, &Facts<'_>) -> Option<Refusal>;

const RULES: &[Rule] = &[
    imported,
    interpreter,
    verification,
    quality,
    profile,
    launches,
    failures,
    long_run,
    slowed_down,
    measured_tree,
];

/// Everything that speaks against blessing these reports together, in the order of the rules.
pub fn refusals(reports: &[Report], facts: &Facts<'_>) -> Vec<Refusal> {
    let mut found: Vec<Refusal> = tree(&facts.tree).into_iter().collect();
    found.extend(together(reports));
    for (index, report) in reports.iter().enumerate() {
        let which = which(reports, index);
        let refused = RULES.iter().filter_map(|rule| rule(report, facts));
        found.extend(
            refused.map(|refusal| Refusal { found: format!("{which} {}", refusal.found), ..refusal }),
        );
    }
    found
}

/// What shows of each report that its machine was not quiet.
pub fn noise(reports: &[Report], bars: &Steadiness) -> Vec<Refusal> {
    let disturbed = |(index, report): (usize, &Report)| {
        let signs = disturbances(report, bars);
        let which = which(reports, index);
        (!signs.is_empty()).then(|| Refusal {
            found: format!("{which} was measured on a busy machine: {}", signs.join("; ")),
            remedy: Remedy::AcceptNoise,
        })
    };
    reports.iter().enumerate().filter_map(disturbed).collect()
}

/// A report in words.
fn which(reports: &[Report], index: usize) -> String {
    match reports {
        [_] => "the report".to_owned(),
        _ => format!("report {}", index + 1),
    }
}

/// Nobody here knows how it was measured.
fn imported(report: &Report, _: &Facts<'_>) -> Option<Refusal> {
    let program = report.header.measured_by.as_ref()?;
    refuse(format!("was measured by another program: {program}"), Remedy::Measure)
}

/// An interpreter's times would stand for a device's.
fn interpreter(report: &Report, _: &Facts<'_>) -> Option<Refusal> {
    if !report.runtime.is_for_checking() {
        return None;
    }
    refuse(
        "was executed by Apple's CPU interpreter, which is for checking results and says nothing about a device",
        "measure on macOS 27, or with another runtime",
    )
}

fn refuse(found: impl Into<String>, remedy: impl Into<Remedy>) -> Option<Refusal> {
    Some(Refusal { found: found.into(), remedy: remedy.into() })
}

fn tree(tree: &Tree) -> Option<Refusal> {
    match tree {
        Tree::Clean | Tree::NotAsked => None,
        Tree::NoRepository => refuse(
            "there is no git repository here, so nothing says what was blessed",
            Remedy::BlessInRepository,
        ),
        Tree::NoCommit => refuse(
            "the git repository here has no commit, so nothing says what was blessed",
            Remedy::CommitFirst,
        ),
        Tree::Changed(files) => {
            let more = files.len().saturating_sub(3);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let files: Vec<&str> = files.iter().take(3).map(String::as_str).collect();
            let found = format!("files differ from the commit: {}{more}", files.join(", "));
            refuse(found, "commit or stash them, so that the commit says what was blessed")
        }
    }
}

/// Sessions of one baseline measure the same packages in the same way on the same hardware.
fn together(reports: &[Report]) -> Option<Refusal> {
    let (first, rest) = reports.split_first()?;
    let key = Key::of(first);
    for (index, report) in rest.iter().enumerate() {
        let (other, number) = (Key::of(report), index + 2);
        if other.profile != key.profile {
            let (first, other) = (&key.profile, &other.profile);
            return refuse(
                format!("report {number} is of {other}, report 1 of {first}: other hardware"),
                "bless each hardware profile on its own: speeds are never compared across them",
            );
        }
        if other != key {
            return refuse(
                format!("report {number} is of {other}, report 1 of {key}"),
                "sessions of a baseline measure the same model in the same way: bless them on their own",
            );
        }
        if report.subject.package_digests != first.subject.package_digests {
            return refuse(
                format!("report {number} measured other packages than report 1"),
                "sessions of a baseline measure the same packages: bless the newer one alone",
            );
        }
    }
    None
}

/// Packages that were exported must have passed `verify`, in the form and at the lengths that were measured. Those that
/// others made must not have failed it.
fn verification(report: &Report, _: &Facts<'_>) -> Option<Refusal> {
    let Some(verification) = &report.verification else {
        // Others made the packages: there may be no checkpoint to verify them against.
        if report.subject.origin == Origin::Adopted {
            return None;
        }
        return refuse("measured packages that nobody verified", Remedy::Verify);
    };
    if verification.package_digests != report.subject.package_digests {
        return refuse("carries the verification of other packages", Remedy::Verify);
    }
    if !verification.passed {
        let failures = verification.failures.join("; ");
        let found = format!("measured packages that failed verification: {failures}");
        return refuse(found, "mend the export: a baseline must be right before it is fast");
    }
    let is_exported = report.subject.origin == Origin::Exported;
    if is_exported && !verification.checkpoint_is_the_exported_one {
        return refuse("measured packages that were verified against another checkpoint", Remedy::Verify);
    }
    let form = report.subject.kv_form.filter(|_| is_exported)?;
    let compared = verification.compared.iter().find(|compared| compared.kv == form);
    let missing = |seq_len: &&usize| compared.is_none_or(|compared| !compared.seq_lens.contains(seq_len));
    let seq_len = report.workload.lengths().iter().find(missing)?;
    refuse(format!("measured form {form} at seq_len {seq_len}, which was not verified"), Remedy::Verify)
}

/// The packages must be within the limits of quality that `verify` was given.
fn quality(report: &Report, _: &Facts<'_>) -> Option<Refusal> {
    let beyond = report.quality_loss()?.failures();
    if beyond.is_empty() {
        return None;
    }
    let found = format!("measured packages that lose more than they may: {}", beyond.join("; "));
    refuse(found, "export at a higher precision, or verify with limits of quality that allow it")
}

/// The profile must be the one that the machine in the report has.
fn profile(report: &Report, facts: &Facts<'_>) -> Option<Refusal> {
    let stated = &report.header.hardware_profile_key;
    let Match { profile, reason, .. } = match_profile(facts.profiles, &report.machine);
    let own = &profile.key;
    let found = || format!("states the profile {stated}, but its machine matches {own}: {reason}");
    if stated == own { None } else { refuse(found(), Remedy::SameProfiles) }
}

fn launches(report: &Report, _: &Facts<'_>) -> Option<Refusal> {
    let completed = completed(report);
    if completed >= FEWEST_LAUNCHES {
        return None;
    }
    let found = format!("has {completed} completed launches, a baseline needs at least {FEWEST_LAUNCHES}");
    refuse(found, Remedy::MeasureMoreLaunches)
}

fn failures(report: &Report, _: &Facts<'_>) -> Option<Refusal> {
    let (launch, failure) = report.failures().next()?;
    let found = format!("has a launch that failed: launch {} {failure}", launch.index);
    refuse(found, "find out why, then measure again")
}

fn long_run(report: &Report, _: &Facts<'_>) -> Option<Refusal> {
    let soak = report.soak.as_ref()?;
    let leaks = soak.memory.as_ref().is_some_and(|memory| memory.verdict == LeakVerdict::Leak);
    let what = match (&soak.outcome, &soak.not_finite) {
        (Outcome::Failed(failure), _) => format!("has a long run that {failure}"),
        (_, Some(output)) => format!("has a long run with an output that is not a number: {output}"),
        _ if leaks => "has a long run whose memory grows".to_owned(),
        _ => return None,
    };
    refuse(what, "find out why, then measure again")
}

fn measured_tree(report: &Report, facts: &Facts<'_>) -> Option<Refusal> {
    let git = report.header.git.as_ref().filter(|git| git.dirty && facts.tree != Tree::NotAsked)?;
    let found = format!("was measured with files that differed from the commit {}", short(&git.commit));
    refuse(found, "commit first, then measure again")
}

/// A report that was slowed down to try a gate out is no example to follow.
fn slowed_down(report: &Report, _: &Facts<'_>) -> Option<Refusal> {
    let percent = report.runtime.slowed_down_pct?;
    refuse(format!("was slowed down by {percent} % on purpose"), Remedy::MeasureUnslowed)
}

/// The beginning of a commit's hash, which is enough to find it.
fn short(commit: &str) -> String {
    commit.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use crate::report::{Failure, Soak};
    use anemeter_base::engine::{Engine, EngineKind};
    use anemeter_base::hardware::PowerSource;
    use anemeter_base::vocabulary::RuntimeName;

    /// What is refused in a good report after a change.
    fn refused(change: impl Fn(&mut Report)) -> String {
        let mut report = testing::session(1);
        change(&mut report);
        listed(&[report], Tree::Clean)
    }

    fn listed(reports: &[Report], tree: Tree) -> String {
        let profiles = Profiles::built_in().unwrap();
        let found = refusals(reports, &Facts { profiles: &profiles, tree });
        found.iter().map(|refusal| format!("{}\n  {}\n", refusal.found, refusal.remedy)).collect()
    }

    #[test]
    fn what_was_slowed_down_on_purpose_is_refused() {
        let found = refused(|report| report.runtime.slowed_down_pct = Some(60));
        assert!(found.contains("was slowed down by 60 % on purpose"), "{found}");
    }

    #[test]
    fn what_an_interpreter_executed_is_no_measurement_of_a_device() {
        let engine = |kind| Engine {
            kind,
            version: "coreai-core 1.0.0b3".to_owned(),
            platform: "Linux".to_owned(),
            overheads: Vec::new(),
        };
        let by = |engine: Option<Engine>| {
            refused(move |report| {
                (report.runtime.name, report.runtime.engine) = (RuntimeName::CoreAi, engine.clone());
            })
        };
        let expected = "the report was executed by Apple's CPU interpreter, which is for checking results and says nothing \
                        about a device\n  measure on macOS 27, or with another runtime\n";
        assert_eq!(by(Some(engine(EngineKind::CpuInterpreter))), expected);
        assert_eq!(by(None), expected, "Core AI that does not say what it is");
        assert_eq!(by(Some(engine(EngineKind::SystemFramework))), "");
    }

    #[test]
    fn what_another_program_measured_is_refused() {
        let found = refused(|report| report.header.measured_by = Some("Apple's llm-benchmark".to_owned()));
        assert!(
            found.starts_with("the report was measured by another program: Apple's llm-benchmark"),
            "{found}"
        );
    }

    #[test]
    fn a_good_report_is_not_refused() {
        let battery = Some(PowerSource::Battery);
        assert_eq!(refused(|report| report.conditions_at_start.power_source = battery), "");
        assert_eq!(listed(&[testing::session(1), testing::session(2)], Tree::NotAsked), "");
    }

    #[test]
    fn a_busy_machine_is_an_objection_of_its_own() {
        let mut busy = testing::session(2);
        busy.conditions_at_start.load_average = Some(4.0);
        let found = noise(&[testing::session(1), busy], &Steadiness::default());
        insta::assert_snapshot!(Refusals(found), @"report 2 was measured on a busy machine: the load average was 4.0 on 2 cores, of which the benchmark takes 2");
    }

    #[test]
    fn each_rule_says_what_it_found() {
        insta::assert_snapshot!(refused(|report| report.verification = None), @r"
        the report measured packages that nobody verified
          verify the bundle against its checkpoint, then measure again
        ");
        insta::assert_snapshot!(refused(|report| report.verification.as_mut().unwrap().package_digests.clear()), @r"
        the report carries the verification of other packages
          verify the bundle against its checkpoint, then measure again
        ");
        insta::assert_snapshot!(refused(|report| {
            let found = report.verification.as_mut().unwrap();
            found.passed = false;
            found.failures = vec!["io 128 decode: cosine is 0.91, expected at least 0.999".to_owned()];
        }), @r"
        the report measured packages that failed verification: io 128 decode: cosine is 0.91, expected at least 0.999
          mend the export: a baseline must be right before it is fast
        ");
        insta::assert_snapshot!(refused(|report| report.verification.as_mut().unwrap().checkpoint_is_the_exported_one = false), @r"
        the report measured packages that were verified against another checkpoint
          verify the bundle against its checkpoint, then measure again
        ");
        insta::assert_snapshot!(refused(|report| report.verification.as_mut().unwrap().compared[0].seq_lens = vec![128]), @r"
        the report measured form io at seq_len 512, which was not verified
          verify the bundle against its checkpoint, then measure again
        ");
        insta::assert_snapshot!(refused(|report| report.header.hardware_profile_key = "apple-m1".to_owned()), @r"
        the report states the profile apple-m1, but its machine matches linux-test-2c-24gb: no profile lists the chip `Test`
          measure again with the profiles that are used here, or use those it was measured with
        ");
        insta::assert_snapshot!(refused(|report| report.launches.truncate(5)), @r"
        the report has 5 completed launches, a baseline needs at least 6
          measure with more launches
        ");
        insta::assert_snapshot!(refused(|report| {
            report.launches[2].outcome = Outcome::Failed(Failure::TimedOut(9000));
        }), @r"
        the report has a launch that failed: launch 2 took longer than 9.0 s and was ended
          find out why, then measure again
        ");
        insta::assert_snapshot!(refused(|report| {
            report.header.git.as_mut().unwrap().dirty = true;
        }), @r"
        the report was measured with files that differed from the commit 0123456789ab
          commit first, then measure again
        ");
        let soak = |outcome, not_finite: Option<&str>| Soak {
            steps_asked: 10,
            steps: 4,
            seq_len: 128,
            case: None,
            outcome,
            points: Vec::new(),
            memory: None,
            latency: None,
            not_finite: not_finite.map(str::to_owned),
        };
        insta::assert_snapshot!(refused(|report| {
            report.soak = Some(soak(Outcome::Failed(Failure::Crashed("signal 9".to_owned())), None));
        }), @r"
        the report has a long run that ended early: signal 9
          find out why, then measure again
        ");
        insta::assert_snapshot!(refused(|report| {
            report.soak = Some(soak(Outcome::Completed, Some("logits at step 3")));
        }), @r"
        the report has a long run with an output that is not a number: logits at step 3
          find out why, then measure again
        ");
    }

    #[test]
    fn the_tree_must_be_that_of_a_commit() {
        let one = [testing::session(1)];
        let files = ["a.yaml", "b c.rs", "d", "e"].map(str::to_owned).to_vec();
        insta::assert_snapshot!(listed(&one, Tree::Changed(files)), @r"
        files differ from the commit: a.yaml, b c.rs, d and 1 more
          commit or stash them, so that the commit says what was blessed
        ");
        insta::assert_snapshot!(listed(&one, Tree::NoRepository), @r"
        there is no git repository here, so nothing says what was blessed
          bless in the repository that the bundle was exported from, or without git to try it out
        ");
        insta::assert_snapshot!(listed(&one, Tree::NoCommit), @r"
        the git repository here has no commit, so nothing says what was blessed
          commit first, or bless without git to try it out
        ");
    }

    #[test]
    fn sessions_belong_together() {
        let with = |change: fn(&mut Report)| {
            let mut other = testing::session(2);
            change(&mut other);
            let refusals = listed(&[testing::session(1), other], Tree::Clean);
            refusals.lines().next().unwrap_or_default().to_owned()
        };
        insta::assert_snapshot!(with(|report| report.header.hardware_profile_key = "apple-m1".to_owned()), @"report 2 is of apple-m1, report 1 of linux-test-2c-24gb: other hardware");
        insta::assert_snapshot!(with(|report| report.workload.seq_lens = vec![128]), @"report 2 is of linux-test-2c-24gb/tiny+fp16/cpu-io-b1-3075597c, report 1 of linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60");
        insta::assert_snapshot!(with(|report| report.subject.package_digests = vec!["xxh3:09".to_owned()]), @"report 2 measured other packages than report 1");
    }
}
