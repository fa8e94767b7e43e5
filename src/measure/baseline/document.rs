//! A baseline as a document: sessions, where they come from, and the parent; read without trusting it.

use serde::{Deserialize, Serialize};

use super::content;
use super::error::Problem;
use super::key::Key;
use super::seal;
use crate::report::{Git, Report};

/// Format and version of baselines.
pub const SCHEMA: &str = "anemeter.baseline/1";

/// A baseline whose digest and content were checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Blessed {
    /// Digest of the document.
    pub digest: String,
    /// What it is for.
    pub key: Key,
    /// Its place in the history, from 1.
    pub number: u64,
    /// Digest of its predecessor.
    pub parent: Option<String>,
    /// Who blessed it, when and why.
    pub provenance: Provenance,
    /// The sessions it consists of, oldest first.
    pub sessions: Vec<Report>,
}

/// Who blessed a baseline, when and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Name and address, as git knows them.
    pub who: Option<String>,
    /// When, in UTC.
    pub when: String,
    /// The commit it was blessed at.
    pub git: Option<Git>,
    /// Version of the program.
    pub tool_version: String,
    /// Digests of the packages that were measured, in the order in which they run.
    pub package_digests: Vec<String>,
    /// Digest of the checkpoint they were exported from.
    pub checkpoint_digest: String,
    /// What the gate said of it against its predecessor.
    pub gate: String,
    /// Why it was blessed although the gate failed.
    pub accepted_regression: Option<String>,
    /// Why it was blessed although a session was measured on a busy machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_noise: Option<String>,
}

/// Everything but schema and digest, which the seal adds.
#[derive(Serialize)]
struct Body<'a> {
    key: &'a Key,
    number: u64,
    parent: &'a Option<String>,
    provenance: &'a Provenance,
    sessions: &'a [Report],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "schema")]
    _schema: String,
    digest: String,
    key: Key,
    number: u64,
    parent: Option<String>,
    provenance: Provenance,
    sessions: Vec<Report>,
}

impl Blessed {
    /// The document. It is written before its digest is known, so `digest` is set from it.
    pub(super) fn seal(&mut self) -> Result<Vec<u8>, Problem> {
        content::check(&self.sessions, &self.key)?;
        let Blessed { key, number, parent, provenance, sessions, .. } = &*self;
        let body = Body { key, number: *number, parent, provenance, sessions };
        let body = serde_json::to_string(&body).map_err(|e| Problem::NotABaseline(e.to_string()))?;
        let (bytes, digest) = seal::sealed(SCHEMA, &(body + "\n"));
        self.digest = digest;
        Ok(bytes)
    }

    /// Reads a document. Nothing in it is taken on trust.
    pub(super) fn parse(bytes: &[u8]) -> Result<Blessed, Problem> {
        #[derive(Deserialize)]
        struct Version {
            schema: String,
        }
        let digests = seal::digests(SCHEMA, bytes);
        if digests.as_ref().is_none_or(|(stated, found)| stated != found) {
            // Another version, or a document that is cut short, says more than its digest does.
            let Version { schema } = serde_json::from_slice(bytes).map_err(|e| unreadable(&e, bytes))?;
            return Err(match digests {
                _ if schema != SCHEMA => Problem::OtherSchema { found: schema, expected: SCHEMA },
                Some((stated, found)) => Problem::Tampered { stated, found },
                None => Problem::NotABaseline("it does not begin with schema and digest".to_owned()),
            });
        }
        let document: Document = serde_json::from_slice(bytes).map_err(|e| unreadable(&e, bytes))?;
        content::check(&document.sessions, &document.key)?;
        let Document { digest, key, number, parent, provenance, sessions, .. } = document;
        Ok(Blessed { digest, key, number, parent, provenance, sessions })
    }

    /// Launches that completed, over all sessions.
    pub fn launches(&self) -> usize {
        self.sessions.iter().map(content::completed).sum()
    }
}

fn unreadable(error: &serde_json::Error, bytes: &[u8]) -> Problem {
    let text = error.to_string();
    if error.is_eof() {
        Problem::CutShort(bytes.len())
    } else if text.contains("null, expected f64") || text.contains("number out of range") {
        let place = format!("line {} column {}", error.line(), error.column());
        Problem::NotANumber(format!("a sample at {place} is not a number"))
    } else {
        Problem::NotABaseline(text)
    }
}
