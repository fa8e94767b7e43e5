//! Stores as a whole: blessing, history, bad documents, other writers.

use std::convert::Infallible;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::testing::{proposal, scaled, session, store};
use super::*;
use crate::report::Report;
use anemeter_base::advice::Advice;

fn bless(store: &Store, report: Report, sessions: Sessions) -> Blessing {
    let judge = |_: Option<&Blessed>| Ok::<_, Infallible>(Judgement::default());
    store.bless(&proposal(vec![report], sessions), judge).unwrap()
}

fn file(folder: &Path, key: &Key) -> PathBuf {
    folder.join(key.file())
}

/// When the sessions of a baseline were measured, which tells them apart.
fn created(blessed: &Blessed) -> Vec<String> {
    blessed.sessions.iter().map(|session| session.header.created.clone()).collect()
}

fn put(path: &Path, bytes: &[u8]) {
    fs::File::create(path).unwrap().write_all(bytes).unwrap();
}

/// Seals the fields of a document anew after they were changed.
fn resealed(path: &Path, change: impl Fn(&str) -> String) {
    let text = fs::read_to_string(path).unwrap();
    let fields = text.split_once("\",\n\"key\"").or(text.split_once("\",\n\"")).unwrap().1;
    let body = format!("{{\"key\"{}", change(fields.trim_start_matches("key\"")));
    put(path, &seal::sealed(SCHEMA, &body).0);
}

#[test]
fn a_blessed_report_is_found_again_with_every_sample() {
    let (_folder, store) = store();
    let report = session(1);
    let key = Key::of(&report);
    assert!(store.latest(&key).unwrap_err().is_missing());
    let blessing = bless(&store, report.clone(), Sessions::New);
    assert!(blessing.before.is_none());
    let found = store.latest(&key).unwrap();
    assert_eq!(found.digest, blessing.blessed.digest);
    assert_eq!(found.sessions[0].launches, report.launches);
    assert_eq!((found.number, &found.parent, found.launches()), (1, &None, 8));
    assert_eq!(found.provenance.package_digests, ["xxh3:01"]);
    assert_eq!(store.keys().unwrap(), [key]);
}

#[test]
fn each_baseline_names_its_parent() {
    let (_folder, store) = store();
    for number in 1..=4 {
        bless(&store, session(number), Sessions::New);
    }
    let history = store.history(&Key::of(&session(1))).unwrap();
    let numbers: Vec<u64> = history.iter().map(|blessed| blessed.number).collect();
    assert_eq!(numbers, [4, 3, 2, 1]);
    for pair in history.windows(2) {
        assert_eq!(pair[0].parent.as_ref(), Some(&pair[1].digest));
    }
    assert_eq!(created(&history[3]), [session(1).header.created]);
    let audit = store.verify().unwrap();
    assert_eq!(audit, Audit { baselines: 1, ancestors: 3, findings: Vec::new() });
}

#[test]
fn sessions_are_added_once() {
    let (_folder, store) = store();
    let add = |number| {
        let judge = |_: Option<&Blessed>| Ok::<_, Infallible>(Judgement::default());
        store.bless(&proposal(vec![session(number)], Sessions::Added), judge)
    };
    assert!(matches!(add(1), Err(BlessError::NothingToAddTo(_))));
    bless(&store, session(1), Sessions::New);
    assert_eq!(created(&add(2).unwrap().blessed), [1, 2].map(|number| session(number).header.created));
    let again = add(2).unwrap_err().to_string();
    let expected = "the report of 2026-02-02T12:00:00Z is a session of this baseline already";
    assert!(again.ends_with(expected), "{again}");
    assert_eq!(store.latest(&Key::of(&session(1))).unwrap().sessions.len(), 2);
}

#[test]
fn a_judge_can_refuse_and_sees_the_present_baseline() {
    let (_folder, store) = store();
    bless(&store, session(1), Sessions::New);
    let refused = store.bless(&proposal(vec![session(2)], Sessions::New), |present: Option<&Blessed>| {
        let found = format!("worse than number {}", present.map_or(0, |present| present.number));
        let refusals = ["too few launches", &found]
            .map(|found| Refusal { found: found.to_owned(), remedy: "measure".into() });
        Err::<Judgement, _>(Refusals(refusals.to_vec()))
    });
    assert_eq!(refused.unwrap_err().to_string(), "too few launches; worse than number 1");
    assert_eq!(store.latest(&Key::of(&session(1))).unwrap().number, 1);
}

#[test]
fn whoever_is_overtaken_is_judged_again() {
    let (folder, store) = store();
    bless(&store, session(1), Sessions::New);
    let mut seen = Vec::new();
    let blessing = store.bless(&proposal(vec![session(3)], Sessions::Added), |present: Option<&Blessed>| {
        seen.push(present.map(|present| present.number));
        if seen.len() == 1 {
            bless(&Store::open(folder.path()).unwrap(), session(2), Sessions::Added);
        }
        Ok::<_, Infallible>(Judgement::default())
    });
    let sessions = created(&blessing.unwrap().blessed);
    assert_eq!(seen, [Some(1), Some(2)]);
    assert_eq!(sessions, [1, 2, 3].map(|number| session(number).header.created));
    assert_eq!(store.verify().unwrap().findings, []);
}

/// The message for a present baseline after its file was changed, without the folder's name.
fn spoilt(change: impl Fn(&Path)) -> String {
    let (folder, store) = store();
    bless(&store, session(1), Sessions::New);
    let key = Key::of(&session(1));
    change(&file(folder.path(), &key));
    let error = store.latest(&key).unwrap_err();
    let judge = |_: Option<&Blessed>| Ok::<_, Infallible>(Judgement::default());
    let blessed = store.bless(&proposal(vec![session(2)], Sessions::New), judge);
    assert_eq!(blessed.is_err(), !error.is_missing(), "nothing is built upon a bad baseline");
    let help = error.remedy().unwrap();
    let text = format!("{error}\nhelp: {help}");
    let text = text.replace(folder.path().to_str().unwrap(), "");
    redacted(&text)
}

/// Digests and places in a line become dots.
fn redacted(text: &str) -> String {
    let place = |word: &str| word.len() == 64 || (word.len() > 2 && word.bytes().all(|c| c.is_ascii_digit()));
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).map(|word| {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        if place(bare) { word.replace(bare, "…") } else { word.to_owned() }
    });
    words.collect()
}

#[test]
fn bad_baselines_each_have_their_own_message() {
    let bytes = |path: &Path| fs::read(path).unwrap();
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    insta::assert_snapshot!(spoilt(|path| fs::remove_file(path).unwrap()), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: there is no baseline for linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60
    help: bless a report of this machine, model and workload
    ");
    insta::assert_snapshot!(spoilt(|path| put(path, &bytes(path)[..1000])), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: is cut short: it ends after … bytes, in the middle of the document
    help: restore the file, from the repository for example, then check all baselines
    ");
    insta::assert_snapshot!(spoilt(|path| put(path, b"")), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: is cut short: it ends after 0 bytes, in the middle of the document
    help: restore the file, from the repository for example, then check all baselines
    ");
    insta::assert_snapshot!(spoilt(|path| put(path, b"[1, 2]")), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: is not a baseline: invalid type: integer `1`, expected a string at line 1 column 2
    help: restore the file, from the repository for example, then check all baselines
    ");
    insta::assert_snapshot!(spoilt(|path| {
        put(path, text(path).replace("anemeter.baseline/1", "anemeter.baseline/7").as_bytes());
    }), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: has the schema `anemeter.baseline/7`; this version reads `anemeter.baseline/1`
    help: bless again with this version
    ");
    insta::assert_snapshot!(spoilt(|path| put(path, text(path).replacen("10.0", "10.5", 1).as_bytes())), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: was changed after it was blessed: it states the digest sha256:… and has sha256:…
    help: restore the file, from the repository for example, then check all baselines
    ");
    insta::assert_snapshot!(spoilt(|path| {
        resealed(path, |fields| fields.replace("linux-test-2c-24gb", "apple-m1"));
    }), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: is the baseline of apple-m1/tiny+fp16/cpu-io-b1-6e7dbb60, expected linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60
    help: restore the file, from the repository for example, then check all baselines
    ");
    insta::assert_snapshot!(spoilt(|path| {
        let text = text(path).replace("tiny", "huge");
        put(path, text.as_bytes());
        resealed(path, str::to_owned);
    }), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: is the baseline of linux-test-2c-24gb/huge+fp16/cpu-io-b1-6e7dbb60, expected linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60
    help: restore the file, from the repository for example, then check all baselines
    ");
    insta::assert_snapshot!(spoilt(|path| resealed(path, |fields| fields.replacen("\"ttft_ms\":40.0", "\"ttft_ms\":null", 1))), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: a sample at line 4 column … is not a number, which is no time that can be measured
    help: measure again and bless that report
    ");
    insta::assert_snapshot!(spoilt(|path| resealed(path, |fields| fields.replacen("\"ttft_ms\":40.0", "\"ttft_ms\":1e999", 1))), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: a sample at line 4 column … is not a number, which is no time that can be measured
    help: measure again and bless that report
    ");
    insta::assert_snapshot!(spoilt(|path| resealed(path, |fields| fields.replacen("\"ttft_ms\":40.0", "\"ttft_ms\":-1.0", 1))), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: session 1, launch 0: ttft_ms of slot 2 is -1, which is no time that can be measured
    help: measure again and bless that report
    ");
    insta::assert_snapshot!(spoilt(|path| {
        resealed(path, |fields| fields.replace("\"completed\"", r#"{"failed":{"timed_out":5}}"#));
    }), @r"
    /linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json: session 1 has no samples
    help: measure again and bless that report
    ");
}

#[test]
fn samples_that_are_not_numbers_are_never_blessed() {
    let (_folder, store) = store();
    let refused = |change: fn(&mut Report)| {
        let mut report = session(1);
        change(&mut report);
        let judge = |_: Option<&Blessed>| Ok::<_, Infallible>(Judgement::default());
        match store.bless(&proposal(vec![report], Sessions::New), judge).unwrap_err() {
            BlessError::Baseline(error) => error.problem.to_string(),
            other => panic!("{other:?}"),
        }
    };
    insta::assert_snapshot!(refused(|report| report.launches[1].requests[2].steps_ms[0] = f64::NAN), @"session 1, launch 1: a step of slot 4 is NaN, which is no time that can be measured");
    insta::assert_snapshot!(refused(|report| report.launches[0].requests[0].ttft_ms = 0.0), @"session 1, launch 0: ttft_ms of slot 2 is 0, which is no time that can be measured");
    insta::assert_snapshot!(refused(|report| report.launches[0].canary_ms = Some(f64::INFINITY)), @"session 1, launch 0: canary_ms is inf, which is no time that can be measured");
    insta::assert_snapshot!(refused(|report| report.launches.clear()), @"session 1 has no samples");
    insta::assert_snapshot!(refused(|report| {
        for launch in &mut report.launches {
            launch.requests.retain(|request| request.seq_len == 512);
        }
    }), @"session 1 has no samples at seq_len 128");
    assert!(store.keys().unwrap().is_empty());
}

#[test]
fn an_audit_finds_every_damage() {
    let (folder, store) = store();
    for number in 1..=3 {
        bless(&store, session(number), Sessions::New);
    }
    let key = Key::of(&session(1));
    let history = store.history(&key).unwrap();
    let ancestor = |index: usize| folder.path().join(key.ancestor(&history[index].digest));
    let sound = fs::read(ancestor(2)).unwrap();
    let expect = |change: &dyn Fn(), problems: &[&str]| {
        change();
        let found = store.verify().unwrap().findings;
        put(&ancestor(2), &sound);
        let found = found.iter().map(|finding| finding.problem.split(" sha256").next().unwrap_or_default());
        assert_eq!(found.collect::<Vec<_>>(), problems);
    };
    expect(&|| {}, &[]);
    let tampered = String::from_utf8(sound.clone()).unwrap().replacen("10.0", "11.0", 1);
    let digest = "was changed after it was blessed: it states the digest";
    expect(&|| put(&ancestor(2), tampered.as_bytes()), &[digest]);
    let missing = "is missing: a later baseline names it as its parent";
    expect(&|| fs::remove_file(ancestor(2)).unwrap(), &[missing]);
    let cut = "is cut short: it ends after 1 bytes, in the middle of the document";
    expect(&|| put(&ancestor(2), b"{"), &[cut]);
    let other = fs::read(ancestor(1)).unwrap();
    expect(&|| put(&ancestor(2), &other), &["has the digest"]);
    put(&folder.path().join("stray.json"), &other);
    let strayed = store.verify().unwrap().findings;
    assert_eq!(strayed.len(), 1);
    assert!(strayed[0].problem.starts_with("is not a baseline: it belongs at "), "{}", strayed[0].problem);
    fs::remove_file(folder.path().join("stray.json")).unwrap();
    fs::remove_file(file(folder.path(), &key)).unwrap();
    let orphans = store.verify().unwrap().findings;
    assert!(orphans.len() == 2 && orphans.iter().all(|f| f.problem.starts_with("belongs to no baseline")));
}

#[test]
fn a_bless_that_ended_early_is_carried_on() {
    let (folder, store) = store();
    bless(&store, session(1), Sessions::New);
    let key = Key::of(&session(1));
    let present = store.latest(&key).unwrap();
    let copy = folder.path().join(key.ancestor(&present.digest));
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    fs::copy(file(folder.path(), &key), &copy).unwrap();
    assert_eq!(store.verify().unwrap().findings, []);
    bless(&store, scaled(2, 1.5), Sessions::New);
    assert_eq!(store.verify().unwrap(), Audit { baselines: 1, ancestors: 1, findings: Vec::new() });
    put(&copy, b"{}");
    assert_eq!(store.verify().unwrap().findings.len(), 1);
}

#[test]
fn a_model_may_be_named_like_the_folder_of_predecessors() {
    let (_folder, store) = store();
    let named = |created: usize| {
        let mut report = session(created);
        report.subject.name = "x.history".to_owned();
        report
    };
    for created in 1..=3 {
        bless(&store, named(created), Sessions::New);
    }
    let key = Key::of(&named(1));
    assert_eq!(store.keys().unwrap(), [Key::of(&named(1))]);
    assert_eq!(store.history(&key).unwrap().len(), 3);
    let audit = store.verify().unwrap();
    assert_eq!((audit.baselines, audit.ancestors, &audit.findings[..]), (1, 2, &[][..]));
}
