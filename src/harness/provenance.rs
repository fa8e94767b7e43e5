//! When, by what and where a benchmark runs.

use std::path::Path;
use std::time::SystemTime;

use anemeter_base::hardware::{Match, Source};
use anemeter_base::time::iso8601;
use anemeter_convert::bundle::digest_text;
use anemeter_kernels::tensor::Bytes;
use anemeter_measure::report::{Git, Header};

/// The header of a report that begins now. The commit is that of the folder the program was called in.
pub fn header(profile: &Match, now: SystemTime, source: &dyn Source) -> Header {
    Header {
        created: iso8601(now),
        hardware_profile_key: profile.profile.key.clone(),
        hardware_profile_listed: profile.listed,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        tool_digest: std::env::current_exe().ok().and_then(|path| file_digest(&path)),
        git: git(source),
        measured_by: None,
    }
}

/// A folder's name for a report: date, model and profile, in plain letters.
pub fn folder_name(header: &Header, model: &str) -> String {
    let plain = |text: &str| -> String {
        let letters =
            text.chars().map(|c| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' });
        letters.take(80).collect()
    };
    let time: String = header.created.chars().filter(|c| *c != ':').collect();
    format!("{}-{}-{}", plain(&time), plain(model), plain(&header.hardware_profile_key))
}

fn file_digest(path: &Path) -> Option<String> {
    let bytes = Bytes::map(&anemeter_base::files::open(path).ok()?).ok()?;
    Some(digest_text(xxhash_rust::xxh3::xxh3_128(&bytes)))
}

fn git(source: &dyn Source) -> Option<Git> {
    let commit = source.command("git", &["rev-parse", "HEAD"])?.trim().to_owned();
    let changed = source.command("git", &["status", "--porcelain", "--untracked-files=no"])?;
    Some(Git { commit, dirty: !changed.trim().is_empty() })
}
