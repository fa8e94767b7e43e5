//! What a baseline is for, and the names of its files.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::seal::hex;
use crate::report::Report;
use anemeter_base::vocabulary::Choice;

/// The longest name of a file or folder that is made from a text.
const LONGEST: usize = 80;

/// What a baseline is for: reports with the same key are compared with each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The hardware profile.
    pub profile: String,
    /// The model's name.
    pub model: String,
    /// Precision of its weights.
    pub precision: String,
    /// Runtime, cache form and batch in words, and a digest of configuration, sequence lengths, threads and numerics.
    pub workload: String,
}

impl Key {
    /// The key of a report.
    pub fn of(report: &Report) -> Key {
        let (runtime, workload) = (&report.runtime, &report.workload);
        let units = match runtime.compute_units.name() {
            units if units == runtime.name.name() => String::new(),
            units => format!("-{units}"),
        };
        let asked =
            (&workload.digest, &workload.seq_lens, runtime.threads, runtime.numerics.map(Choice::name));
        let asked = format!("{asked:?}");
        let form = report.subject.kv_form.map_or(workload.kind.name(), Choice::name);
        let digest = &hex(&Sha256::digest(asked))[..8];
        Key {
            profile: report.header.hardware_profile_key.clone(),
            model: report.subject.name.clone(),
            precision: report.subject.precision.clone(),
            workload: format!("{}{units}-{form}-b{}-{digest}", runtime.name, workload.batch),
        }
    }

    /// Whether a report belongs under the key.
    pub(super) fn takes(&self, report: &Report) -> bool {
        Key::of(report) == *self
    }

    /// The file of the present baseline.
    pub fn file(&self) -> String {
        format!("{}.json", self.stem())
    }

    /// The file of a predecessor.
    pub(super) fn ancestor(&self, digest: &str) -> String {
        format!("{}.history/{}.json", self.stem(), digest.trim_start_matches("sha256:"))
    }

    fn stem(&self) -> String {
        // No part has a `+`, so that a precision is never taken for the end of a name.
        let Key { profile, model, precision, workload } = self;
        format!("{}/{}+{}/{}", part(profile), part(model), part(precision), part(workload))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| text.escape_debug().to_string();
        let Key { profile, model, precision, workload } = self;
        write!(f, "{}/{}+{}/{}", shown(profile), shown(model), shown(precision), shown(workload))
    }
}

/// A name for a file or folder from any text: the text itself if it is plain and short, else what is plain in it
/// and a digest of all of it. Plain names have no `~`, so the two never meet.
fn part(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    // The folder of predecessors ends like that.
    let good_ends = !text.starts_with('.') && !text.ends_with('.') && !text.ends_with(".history");
    if !text.is_empty() && text.len() <= LONGEST && good_ends && text.chars().all(plain) {
        return text.to_owned();
    }
    let readable = text.chars().take(LONGEST / 2).map(|c| if plain(c) { c } else { '-' });
    let readable: String = readable.collect();
    format!("{}~{}", readable.trim_matches(['.', '-']), &hex(&Sha256::digest(text))[..16])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::testing;
    use anemeter_base::vocabulary::{ComputeUnits, RuntimeName};

    #[test]
    fn a_key_tells_what_is_compared() {
        let mut report = testing::report();
        let key = Key::of(&report);
        assert_eq!(key.file(), "linux-test-2c-24gb/tiny+fp16/cpu-io-b1-6e7dbb60.json");
        let mut compressed = report.clone();
        compressed.subject.precision = "int8".to_owned();
        assert_eq!(Key::of(&compressed).file(), "linux-test-2c-24gb/tiny+int8/cpu-io-b1-6e7dbb60.json");
        report.workload.seq_lens.pop();
        assert_ne!(Key::of(&report).workload, key.workload);
        report.runtime.name = RuntimeName::CoreMl;
        report.runtime.compute_units = ComputeUnits::All;
        assert!(Key::of(&report).workload.starts_with("coreml-all-io-b1-"));
    }

    #[test]
    fn names_are_kept_where_they_are_plain() {
        assert_eq!(part("SmolLM2-135M_v1.0"), "SmolLM2-135M_v1.0");
        assert_eq!(part("../../etc/passwd"), "etc-passwd~3754d6cb3a38e118");
        assert!(part("..").starts_with('~') && part("").starts_with('~') && part("a.").starts_with("a~"));
        assert!(part("größe 9b").starts_with("gr--e-9b~"));
    }

    /// Texts that are likely to be mistaken for each other.
    fn texts() -> impl Strategy<Value = String> {
        prop_oneof!["\\PC{0,100}", "[a-c./~ \\\\-]{0,6}", "[.]{0,4}", ".{0,12}", "a{78,90}"]
    }

    proptest! {
        #[test]
        fn any_text_becomes_one_plain_name(text in texts()) {
            let name = part(&text);
            prop_assert!(!name.is_empty() && name.len() <= LONGEST && !name.starts_with('.'), "{name}");
            prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.~".contains(c)), "{name}");
            let path = std::path::Path::new(&name);
            prop_assert!(path.components().all(|c| matches!(c, std::path::Component::Normal(_))));
        }

        #[test]
        fn different_keys_have_different_files(
            a in (texts(), texts(), texts(), texts()),
            b in (texts(), texts(), texts(), texts()),
        ) {
            let key = |(profile, model, precision, workload)| Key { profile, model, precision, workload };
            let (a, b) = (key(a), key(b));
            prop_assert_eq!(a == b, a.file() == b.file());
            prop_assert_eq!(a.file().matches('/').count(), 2);
        }
    }
}
