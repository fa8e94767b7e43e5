//! What `bless` says.

use serde_json::{Value, json};

use crate::baseline::{Blessed, Blessing, Change, Refusal, changes};
use crate::cli::exit::phrase;
use crate::render::Table;
use crate::render::{figure, maybe};
use crate::report::Place;
use crate::text::visible;

/// Sessions and launches of each from which on a gate is as sharp as it gets.
const SHARP: (usize, usize) = (3, 8);

/// A baseline that was blessed, and what it changes.
pub(super) fn blessed(blessing: &Blessing, place: &str) -> String {
    let Blessing { blessed, before } = blessing;
    let mut text = format!("blessed {}\n", blessed.key);
    text += &format!("  number {} of its history, {}\n", blessed.number, sessions(blessed));
    text += &format!("  gate: {}\n", visible(&blessed.provenance.gate));
    if let Some(reason) = &blessed.provenance.accepted_regression {
        text += &format!("  accepted: {}\n", visible(reason));
    }
    if let Some(reason) = &blessed.provenance.accepted_noise {
        text += &format!("  accepted a busy machine: {}\n", visible(reason));
    }
    text += &format!("  file: {place}\n\n");
    text += &table(&change_of(blessing), before.is_some()).to_string();
    if let Some(warning) = warning(blessed) {
        text += &format!("\nwarning: {warning}\n");
    }
    text
}

/// Sessions and launches in words.
pub(in crate::cli) fn sessions(blessed: &Blessed) -> String {
    let plural =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let sessions = plural(blessed.sessions.len(), "session", "sessions");
    format!("{sessions} with {}", plural(blessed.launches(), "launch", "launches"))
}

fn change_of(blessing: &Blessing) -> Vec<Change> {
    let before = blessing.before.as_ref().map_or(&[][..], |before| &before.sessions);
    changes(before, &blessing.blessed.sessions)
}

/// Figures, and what they were before if they are compared with anything.
pub(in crate::cli) fn table(changes: &[Change], compared: bool) -> Table {
    let mut table = match compared {
        true => Table::new(&["", ">before", ">after", ">change", ""]),
        false => Table::new(&["", ">blessed"]),
    }
    .indented(2);
    for change in changes {
        let place = change.place.as_ref().map_or(String::new(), |place| format!(" at {place}"));
        let name = format!("{} {}{place}", change.metric, change.percentile);
        let unit = change.metric.unit();
        match compared {
            true => table.row([
                name,
                maybe(change.before, unit),
                figure(change.after, unit),
                change.percent().map_or("–".to_owned(), |percent| format!("{percent:+.1} %")),
                if change.is_worse() { "worse" } else { "" }.to_owned(),
            ]),
            false => table.row([name, figure(change.after, unit)]),
        }
    }
    table
}

fn warning(blessed: &Blessed) -> Option<String> {
    let (wanted_sessions, wanted_launches) = SHARP;
    let sharp =
        blessed.sessions.len() >= wanted_sessions && blessed.launches() >= wanted_sessions * wanted_launches;
    (!sharp).then(|| {
        format!(
            "{}: gates are sharper with {wanted_sessions} sessions of {wanted_launches} launches; \
             add sessions with --add-session",
            sessions(blessed)
        )
    })
}

/// Everything that speaks against it.
pub(super) fn refused(refusals: &[Refusal]) -> String {
    let lines = refusals
        .iter()
        .map(|refusal| format!("  {}\n    help: {}\n", visible(&refusal.found), phrase(&refusal.remedy)));
    format!("not blessed\n{}", lines.collect::<String>())
}

/// The same for other programs.
pub(super) fn document(blessing: &Blessing, place: &str) -> Value {
    let blessed = &blessing.blessed;
    let changes = change_of(blessing).into_iter().map(|change| {
        json!({
            "metric": change.metric,
            "seq_len": change.place.as_ref().and_then(Place::seq_len),
            "case": change.place.as_ref().and_then(Place::case),
            "percentile": change.percentile,
            "unit": change.metric.unit(),
            "before": change.before,
            "after": change.after,
            "change_percent": change.percent(),
            "worse": change.is_worse(),
        })
    });
    json!({
        "schema": "anemeter.bless/1",
        "blessed": true,
        "key": blessed.key,
        "place": place,
        "number": blessed.number,
        "digest": blessed.digest,
        "parent": blessed.parent,
        "sessions": blessed.sessions.len(),
        "launches": blessed.launches(),
        "provenance": blessed.provenance,
        "changes": changes.collect::<Vec<_>>(),
        "warning": warning(blessed),
    })
}

/// A refusal for other programs.
pub(super) fn refused_document(refusals: &[Refusal]) -> Value {
    let refusals =
        refusals.iter().map(|refusal| json!({ "found": refusal.found, "help": phrase(&refusal.remedy) }));
    json!({ "schema": "anemeter.bless/1", "blessed": false, "refusals": refusals.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::testing::{proposal, scaled, session, store};
    use crate::baseline::{Judgement, Sessions, Store};
    use crate::report::Report;

    fn bless(store: &Store, reports: Vec<Report>, judgement: &Judgement) -> Blessing {
        let judge = |_: Option<&Blessed>| Ok::<_, std::convert::Infallible>(judgement.clone());
        store.bless(&proposal(reports, Sessions::New), judge).unwrap()
    }

    #[test]
    fn a_first_baseline_shows_its_figures() {
        let (_folder, store) = store();
        let first = Judgement { gate: "first baseline".to_owned(), ..Judgement::default() };
        let blessing = bless(&store, vec![session(1)], &first);
        insta::assert_snapshot!(blessed(&blessing, "baselines/x.json"), @r"
        blessed linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60
          number 1 of its history, 1 session with 8 launches
          gate: first baseline
          file: baselines/x.json

                              blessed
          TTFT p50 at 128     12.2 ms
          TTFT p50 at 512     42.4 ms
          TPS p50 at 128    327 tok/s
          TPS p50 at 512   94.3 tok/s
          load p50            20.0 ms
          memory peak p50      310 MB

        warning: 1 session with 8 launches: gates are sharper with 3 sessions of 8 launches; add sessions with --add-session
        ");
    }

    #[test]
    fn a_later_one_shows_what_it_changes() {
        let (_folder, store) = store();
        bless(&store, vec![session(1), session(2), session(3)], &Judgement::default());
        let accepted = Judgement {
            gate: "fail: TTFT p50 at 128 is 10.0 % slower".to_owned(),
            accepted_regression: Some("twice the\nvocabulary".to_owned()),
            ..Judgement::default()
        };
        let blessing = bless(&store, [4, 5, 6].map(|n| scaled(n, 1.1)).to_vec(), &accepted);
        insta::assert_snapshot!(blessed(&blessing, "baselines/x.json"), @r"
        blessed linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60
          number 2 of its history, 3 sessions with 24 launches
          gate: fail: TTFT p50 at 128 is 10.0 % slower
          accepted: twice the\nvocabulary
          file: baselines/x.json

                               before       after   change
          TTFT p50 at 128     12.2 ms     13.5 ms  +10.0 %  worse
          TTFT p95 at 128     15.0 ms     16.5 ms  +10.0 %  worse
          TTFT p50 at 512     42.4 ms     46.7 ms  +10.0 %  worse
          TTFT p95 at 512     45.0 ms     49.5 ms  +10.0 %  worse
          TPS p50 at 128    327 tok/s   297 tok/s   -9.1 %  worse
          TPS p95 at 128    267 tok/s   242 tok/s   -9.1 %  worse
          TPS p50 at 512   94.3 tok/s  85.7 tok/s   -9.1 %  worse
          TPS p95 at 512   88.9 tok/s  80.8 tok/s   -9.1 %  worse
          load p50            20.0 ms     22.0 ms  +10.0 %  worse
          memory peak p50      310 MB      310 MB   +0.0 %
        ");
        let document = document(&blessing, "baselines/x.json");
        assert_eq!(document["parent"], json!(blessing.before.as_ref().unwrap().digest));
        assert_eq!(document["changes"][0]["worse"], json!(true));
        assert_eq!(document["warning"], Value::Null);
    }

    #[test]
    fn refusals_read_as_a_list() {
        let refusal = |found: &str| Refusal { found: found.to_owned(), remedy: "do it".into() };
        insta::assert_snapshot!(refused(&[refusal("this is \u{1b}[2J missing"), refusal("that too")]), @r"
        not blessed
          this is \u{1b}[2J missing
            help: do it
          that too
            help: do it
        ");
    }
}
