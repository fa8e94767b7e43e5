//! What `baselines log`, `show` and `verify` say.

use serde_json::{Value, json};

use crate::baseline::{Audit, Blessed, Provenance, Store, changes};
use crate::cli::bless::{self, sessions};
use crate::render::Table;
use crate::text::visible;

/// Histories, newest first.
pub(super) fn log(histories: &[Vec<Blessed>]) -> String {
    let one = |history: &Vec<Blessed>| {
        let key = history.first().map(|blessed| blessed.key.to_string()).unwrap_or_default();
        let mut table =
            Table::new(&[">number", "when", "who", "commit", "content", "gate", "digest"]).indented(2);
        for blessed in history {
            let Provenance { who, when, gate, accepted_regression, accepted_noise, .. } = &blessed.provenance;
            let mut accepted = String::new();
            accepted.extend(accepted_regression.iter().map(|why| format!(", accepted: {why}")));
            accepted.extend(accepted_noise.iter().map(|why| format!(", accepted a busy machine: {why}")));
            table.row([
                blessed.number.to_string(),
                when.clone(),
                or_dash(who.as_deref()),
                commit(&blessed.provenance),
                sessions(blessed),
                format!("{}{accepted}", gate.split(':').next().unwrap_or_default()),
                short(&blessed.digest),
            ]);
        }
        format!("{key}\n{table}")
    };
    histories.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// Present baselines.
pub(super) fn show(found: &[Blessed], store: &Store) -> String {
    found.iter().map(|blessed| shown(blessed, &store.place(&blessed.key))).collect::<Vec<_>>().join("\n")
}

fn shown(blessed: &Blessed, place: &str) -> String {
    let provenance = &blessed.provenance;
    let facts = [
        ("file", place.to_owned()),
        ("digest", blessed.digest.clone()),
        ("parent", or_dash(blessed.parent.as_deref())),
        ("number", blessed.number.to_string()),
        ("blessed by", or_dash(provenance.who.as_deref())),
        ("blessed at", provenance.when.clone()),
        ("commit", commit(provenance)),
        ("gate", provenance.gate.clone()),
        ("accepted", or_dash(provenance.accepted_regression.as_deref())),
        ("noise", or_dash(provenance.accepted_noise.as_deref())),
        ("packages", provenance.package_digests.join(" ")),
        ("checkpoint", provenance.checkpoint_digest.clone()),
        ("anemeter", provenance.tool_version.clone()),
    ];
    let mut text = format!("{}\n", blessed.key);
    for (name, value) in facts {
        text += &format!("  {name:<11} {}\n", visible(&value));
    }
    let mut measured = Table::new(&[">session", "measured at", ">launches", "runtime", "system"]).indented(2);
    for (index, session) in blessed.sessions.iter().enumerate() {
        let machine = &session.machine;
        let system = machine.os_build.as_ref().or(machine.os_version.as_ref());
        measured.row([
            (index + 1).to_string(),
            session.header.created.clone(),
            session.launches.len().to_string(),
            session.runtime.name.to_string(),
            format!("{} {}", machine.os, or_dash(system.map(String::as_str))),
        ]);
    }
    let figures = bless::table(&changes(&[], &blessed.sessions), false);
    format!("{text}\n{measured}\n{figures}")
}

/// A store that was checked.
pub(super) fn audit(audit: &Audit) -> String {
    let counted = format!("{} present, {} before them", audit.baselines, audit.ancestors);
    if audit.findings.is_empty() {
        return format!("baselines: {counted}: every digest and every link holds\n");
    }
    let lines = audit
        .findings
        .iter()
        .map(|finding| format!("  {}: {}\n", visible(&finding.at), visible(&finding.problem)));
    let count = audit.findings.len();
    format!("baselines: {counted}: {count} wrong\n{}", lines.collect::<String>())
}

/// The same for other programs.
pub(super) fn log_document(histories: &[Vec<Blessed>]) -> Value {
    let histories = histories.iter().map(|history| history.iter().map(entry).collect::<Vec<_>>());
    json!({ "schema": "anemeter.baselines_log/1", "histories": histories.collect::<Vec<_>>() })
}

/// The same for other programs.
pub(super) fn show_document(found: &[Blessed], store: &Store) -> Value {
    let found = found.iter().map(|blessed| {
        let mut entry = entry(blessed);
        entry["place"] = json!(store.place(&blessed.key));
        entry["sessions"] = json!(blessed.sessions);
        entry
    });
    json!({ "schema": "anemeter.baselines/1", "baselines": found.collect::<Vec<_>>() })
}

/// The same for other programs.
pub(super) fn audit_document(audit: &Audit) -> Value {
    let findings = audit.findings.iter().map(|f| json!({ "at": f.at, "problem": f.problem }));
    json!({
        "schema": "anemeter.baselines_audit/1",
        "baselines": audit.baselines,
        "ancestors": audit.ancestors,
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn entry(blessed: &Blessed) -> Value {
    json!({
        "key": blessed.key,
        "number": blessed.number,
        "digest": blessed.digest,
        "parent": blessed.parent,
        "sessions": blessed.sessions.len(),
        "launches": blessed.launches(),
        "provenance": blessed.provenance,
    })
}

fn or_dash(text: Option<&str>) -> String {
    text.map_or("–".to_owned(), str::to_owned)
}

fn commit(provenance: &Provenance) -> String {
    or_dash(provenance.git.as_ref().map(|git| git.commit.get(..12).unwrap_or(&git.commit)))
}

fn short(digest: &str) -> String {
    digest.trim_start_matches("sha256:").chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::testing::{proposal, scaled, session, store};
    use crate::baseline::{Finding, Judgement, Key, Sessions};
    use crate::report::{Git, Report};

    /// A store with a baseline that has one predecessor, and its text without what differs from run to run.
    fn blessed(show: impl Fn(&Store, &Key) -> String) -> String {
        let (folder, store) = store();
        let bless = |report: Report, gate: &str, accepted: Option<&str>| {
            let judgement = Judgement {
                gate: gate.to_owned(),
                accepted_regression: accepted.map(Into::into),
                ..Judgement::default()
            };
            let mut proposal = proposal(vec![report], Sessions::New);
            proposal.provenance.git = Some(Git { commit: "0123456789abcdef".to_owned(), dirty: false });
            store
                .bless(&proposal, |_| Ok::<_, std::convert::Infallible>(judgement.clone()))
                .unwrap()
                .blessed
                .digest
        };
        let first = bless(session(1), "first baseline", None);
        let second = bless(scaled(2, 1.5), "fail: slower", Some("a new tokenizer"));
        let text = show(&store, &Key::of(&session(1))).replace(folder.path().to_str().unwrap(), "baselines");
        let text = text.replace(&first, "sha256:FIRST").replace(&second, "sha256:SECOND");
        text.replace(&short(&first), "FIRST").replace(&short(&second), "SECOND")
    }

    #[test]
    fn a_log_tells_who_blessed_what_and_why() {
        insta::assert_snapshot!(blessed(|store, key| log(&[store.history(key).unwrap()])), @r"
        linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60
          number  when                  who                    commit        content                    gate                             digest
               2  2026-02-03T04:05:06Z  Ada <ada@example.org>  0123456789ab  1 session with 8 launches  fail, accepted: a new tokenizer  SECOND
               1  2026-02-03T04:05:06Z  Ada <ada@example.org>  0123456789ab  1 session with 8 launches  first baseline                   FIRST
        ");
    }

    #[test]
    fn a_baseline_is_shown_with_its_origin() {
        insta::assert_snapshot!(blessed(|store, key| show(&[store.latest(key).unwrap()], store)), @r"
        linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60
          file        baselines/linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json
          digest      sha256:SECOND
          parent      sha256:FIRST
          number      2
          blessed by  Ada <ada@example.org>
          blessed at  2026-02-03T04:05:06Z
          commit      0123456789ab
          gate        fail: slower
          accepted    a new tokenizer
          noise       –
          packages    xxh3:01
          checkpoint  xxh3:02
          anemeter    0.1.0

          session  measured at           launches  runtime  system
                1  2026-02-02T12:00:00Z         8  cpu      linux 6.1.0

                              blessed
          TTFT p50 at 128     18.4 ms
          TTFT p50 at 512     63.6 ms
          TPS p50 at 128    218 tok/s
          TPS p50 at 512   62.9 tok/s
          load p50            30.0 ms
          memory peak p50      310 MB
        ");
    }

    #[test]
    fn an_audit_counts_and_names() {
        insta::assert_snapshot!(blessed(|store, _| audit(&store.verify().unwrap())), @"baselines: 1 present, 1 before them: every digest and every link holds");
        let finding = Finding { at: "a.json".to_owned(), problem: "is\u{1b} cut short".to_owned() };
        insta::assert_snapshot!(audit(&Audit { baselines: 1, ancestors: 0, findings: vec![finding] }), @r"
        baselines: 1 present, 0 before them: 1 wrong
          a.json: is\u{1b} cut short
        ");
    }

    #[test]
    fn documents_hold_every_sample() {
        let (_folder, store) = store();
        let judge = |_: Option<&Blessed>| Ok::<_, std::convert::Infallible>(Judgement::default());
        let blessed = store.bless(&proposal(vec![session(1)], Sessions::New), judge).unwrap().blessed;
        let document = show_document(&[blessed], &store);
        let launches = &document["baselines"][0]["sessions"][0]["launches"];
        assert_eq!(launches[0]["requests"][0]["ttft_ms"], json!(40.0));
    }
}
