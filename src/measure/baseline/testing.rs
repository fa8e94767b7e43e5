//! Sessions and stores for tests.

use super::{Proposal, Provenance, Sessions, Store};
use crate::report::{Report, testing};
use anemeter_base::hardware::{Profiles, match_profile};

/// A report that can be blessed, different for each number.
pub fn session(number: usize) -> Report {
    scaled(number, 1.0)
}

/// The same, with all times multiplied.
pub fn scaled(number: usize, factor: f64) -> Report {
    let launches = (0..8).map(|index| testing::launch(index, factor)).collect();
    let mut report = testing::with_launches(launches);
    report.header.created = format!("2026-02-{number:02}T12:00:00Z");
    report.verification = serde_json::from_value(verification(&report)).ok();
    if let Ok(profiles) = Profiles::built_in() {
        report.header.hardware_profile_key = match_profile(&profiles, &report.machine).profile.key;
    }
    report
}

/// What `verify` leaves behind if all is well.
fn verification(report: &Report) -> serde_json::Value {
    serde_json::json!({
        "schema": "anemeter.verification/1",
        "tool_version": "0.1.0",
        "package_digests": report.subject.package_digests,
        "checkpoint_digest": report.subject.checkpoint_digest,
        "checkpoint_is_the_exported_one": true,
        "passed": true,
        "cosine_min": 0.9999,
        "drift_cosine_min": 0.9999,
        "nan": 0,
        "inf": 0,
        "reference": "llama at f32",
        "numerics": "fast",
        "compared": [{ "kv": report.subject.kv_form, "seq_lens": report.workload.seq_lens }],
        "prompts": 8,
        "positions": 256,
        "failures": [],
    })
}

/// A proposal of these reports.
pub fn proposal(reports: Vec<Report>, sessions: Sessions) -> Proposal {
    let provenance = Provenance {
        who: Some("Ada <ada@example.org>".to_owned()),
        when: "2026-02-03T04:05:06Z".to_owned(),
        tool_version: "0.1.0".to_owned(),
        ..Provenance::default()
    };
    Proposal { reports, sessions, provenance }
}

/// A store in a folder of its own.
pub fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    (folder, store)
}
