//! A store of baselines: the present ones, their history, and the one way to change them.

use std::error::Error;
use std::path::Path;

use rayon::prelude::*;

use super::document::{Blessed, Provenance};
use super::error::{BaselineError, Problem};
use super::key::Key;
use super::place::storage;
use super::storage::{Storage, StoredObject};
use crate::report::Report;
use anemeter_base::advice::{Advice, Remedy};

/// How often a bless is tried again because others were faster. Each time somebody else got through.
const ATTEMPTS: usize = 1000;

/// A place for baselines.
pub struct Store {
    pub(super) storage: Box<dyn Storage>,
}

/// Which sessions a new baseline has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sessions {
    /// Only the proposed ones.
    New,
    /// Those of the present baseline, and the proposed ones.
    Added,
}

/// A baseline to be.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// Reports, a session each.
    pub reports: Vec<Report>,
    /// What happens to the sessions of the present baseline.
    pub sessions: Sessions,
    /// Who blesses it, and when; digests and what the judge said are filled in.
    pub provenance: Provenance,
}

/// What a judge has to say of a proposal that it has nothing against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What the gate said.
    pub gate: String,
    /// Why the proposal is blessed although the gate failed.
    pub accepted_regression: Option<String>,
    /// Why it is blessed although the machine left the gate open.
    pub accepted_noise: Option<String>,
}

/// A baseline that was blessed.
#[derive(Debug, Clone)]
pub struct Blessing {
    /// The baseline that was written.
    pub blessed: Blessed,
    /// The baseline that it replaces.
    pub before: Option<Blessed>,
}

/// Why nothing was blessed. `E` is what the judge said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlessError<E: Error + 'static> {
    /// The judge refused.
    #[error(transparent)]
    Refused(E),
    /// The present baseline or the proposed one is not good.
    #[error(transparent)]
    Baseline(#[from] BaselineError),
    /// There is no baseline to add sessions to.
    #[error("{0}: there is no baseline to add a session to")]
    NothingToAddTo(String),
    /// A report is a session of the baseline already.
    #[error("{at}: the report of {created} is a session of this baseline already")]
    Repeated {
        /// The baseline.
        at: String,
        /// When the report was made.
        created: String,
    },
    /// A report was given more than once.
    #[error("the report of {0} is given more than once")]
    GivenTwice(String),
    /// Others were always faster.
    #[error("{0}: others change it all the time")]
    Busy(String),
}

impl<E: Error + 'static> Advice for BlessError<E> {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            BlessError::Baseline(error) => error.remedy(),
            BlessError::Refused(_) => None,
            BlessError::NothingToAddTo(_) => Some(Remedy::NewBaseline),
            BlessError::Repeated { .. } => Some("measure again: a session counts once".into()),
            BlessError::GivenTwice(_) => Some("give each session once".into()),
            BlessError::Busy(_) => Some("try again".into()),
        }
    }
}

impl Store {
    /// Opens a folder, which need not be there yet, or a URL.
    pub fn open(place: &Path) -> Result<Store, BaselineError> {
        Ok(Store::over(storage(place)?))
    }

    /// A store over any storage.
    pub fn over(storage: Box<dyn Storage>) -> Store {
        Store { storage }
    }

    /// Where the present baseline of a key is or would be.
    pub fn place(&self, key: &Key) -> String {
        self.storage.place(&key.file())
    }

    /// The present baseline of a key.
    pub fn latest(&self, key: &Key) -> Result<Blessed, BaselineError> {
        let Some(found) = self.find(key)? else {
            let others = self.keys().unwrap_or_default();
            let problem = Problem::Missing { key: Box::new(key.clone()), others };
            return Err(BaselineError::new(self.place(key), problem));
        };
        Ok(found)
    }

    /// The present baseline of a key, if there is one.
    pub fn find(&self, key: &Key) -> Result<Option<Blessed>, BaselineError> {
        let stored = self.storage.read(&key.file())?;
        stored.map(|stored| self.parse(&key.file(), &stored, key)).transpose()
    }

    /// The present baseline of a key and all of its predecessors, newest first.
    pub fn history(&self, key: &Key) -> Result<Vec<Blessed>, BaselineError> {
        let mut history = vec![self.latest(key)?];
        while let Some(youngest) = history.last() {
            let Some(parent) = self.parent(youngest)? else { break };
            history.push(parent);
        }
        Ok(history)
    }

    /// The predecessor that a baseline names.
    pub(super) fn parent(&self, child: &Blessed) -> Result<Option<Blessed>, BaselineError> {
        let Some(digest) = &child.parent else {
            return match child.number {
                1 => Ok(None),
                found => {
                    let problem = Problem::OtherNumber { found, expected: 1 };
                    Err(BaselineError::new(self.place(&child.key), problem))
                }
            };
        };
        let name = child.key.ancestor(digest);
        let wrong = |problem| BaselineError::new(self.storage.place(&name), problem);
        let Some(stored) = self.storage.read(&name)? else {
            return Err(wrong(Problem::ParentMissing));
        };
        let parent = self.parse(&name, &stored, &child.key)?;
        if parent.digest != *digest {
            return Err(wrong(Problem::OtherDigest { found: parent.digest, expected: digest.clone() }));
        }
        let expected = child.number.saturating_sub(1);
        if parent.number != expected {
            return Err(wrong(Problem::OtherNumber { found: parent.number, expected }));
        }
        Ok(Some(parent))
    }

    /// Keys of all present baselines that can be read, in order.
    pub fn keys(&self) -> Result<Vec<Key>, BaselineError> {
        let names = self.storage.names()?;
        let present = names.par_iter().filter(|name| !name.contains(".history/"));
        let key = |name: &String| {
            let Some(stored) = self.storage.read(name)? else { return Ok(None) };
            Ok(Blessed::parse(&stored.bytes).ok().map(|blessed| blessed.key))
        };
        let keys: Vec<Option<Key>> = present.map(key).collect::<Result<_, BaselineError>>()?;
        let mut keys: Vec<Key> = keys.into_iter().flatten().collect();
        keys.sort();
        Ok(keys)
    }

    pub(super) fn parse(
        &self,
        name: &str,
        stored: &StoredObject,
        key: &Key,
    ) -> Result<Blessed, BaselineError> {
        let wrong = |problem| BaselineError::new(self.storage.place(name), problem);
        let blessed = Blessed::parse(&stored.bytes).map_err(wrong)?;
        if blessed.key != *key {
            let (found, expected) = (Box::new(blessed.key), Box::new(key.clone()));
            return Err(wrong(Problem::OtherKey { found, expected }));
        }
        Ok(blessed)
    }

    /// Makes reports the baseline of their key, if `judge` has nothing against it. The judge is shown the present
    /// baseline and says what to record; it is asked again whenever somebody else was faster.
    pub fn bless<E: Error + 'static>(
        &self,
        proposal: &Proposal,
        mut judge: impl FnMut(Option<&Blessed>) -> Result<Judgement, E>,
    ) -> Result<Blessing, BlessError<E>> {
        let Some(first) = proposal.reports.first() else {
            let problem = Problem::Empty("no report is given".to_owned());
            return Err(BaselineError::new(self.storage.place(""), problem).into());
        };
        let key = Key::of(first);
        for _ in 0..ATTEMPTS {
            let stored = self.storage.read(&key.file()).map_err(BaselineError::from)?;
            let before = stored.as_ref().map(|stored| self.parse(&key.file(), stored, &key)).transpose()?;
            self.refuse_repeated(proposal, before.as_ref())?;
            let judgement = judge(before.as_ref()).map_err(BlessError::Refused)?;
            let mut blessed = self.next(&key, proposal, before.as_ref(), judgement)?;
            let bytes = blessed.seal().map_err(|problem| BaselineError::new(self.place(&key), problem))?;
            if self.put(&key, &bytes, stored.as_ref().zip(before.as_ref()))? {
                return Ok(Blessing { blessed, before });
            }
        }
        Err(BlessError::Busy(self.place(&key)))
    }

    /// Refuses a report that would be blessed twice: added to a baseline that has it, given more than once, or proposed
    /// with nothing new beside it. A new baseline may keep sessions of the present one beside others.
    fn refuse_repeated<E: Error + 'static>(
        &self,
        proposal: &Proposal,
        before: Option<&Blessed>,
    ) -> Result<(), BlessError<E>> {
        let reports = &proposal.reports;
        let present = before.map_or(&[][..], |before| &before.sessions);
        let is_present = |report: &&Report| present.iter().any(|session| session.is_of_session(report));
        let given_before = |(index, report): &(usize, &Report)| {
            reports[..*index].iter().any(|earlier| earlier.is_of_session(report))
        };
        let twice = reports.iter().enumerate().find(given_before).map(|(_, report)| report);
        let known = match proposal.sessions {
            Sessions::Added => reports.iter().find(is_present),
            Sessions::New => reports.first().filter(|_| reports.iter().all(|report| is_present(&report))),
        };
        match (twice, known) {
            (Some(report), _) => Err(BlessError::GivenTwice(report.header.created.clone())),
            (None, Some(report)) => {
                let at = self.place(&Key::of(report));
                Err(BlessError::Repeated { at, created: report.header.created.clone() })
            }
            (None, None) => Ok(()),
        }
    }

    fn next<E: Error + 'static>(
        &self,
        key: &Key,
        proposal: &Proposal,
        before: Option<&Blessed>,
        judgement: Judgement,
    ) -> Result<Blessed, BlessError<E>> {
        let mut sessions = match (proposal.sessions, before) {
            (Sessions::New, _) => Vec::new(),
            (Sessions::Added, Some(before)) => before.sessions.clone(),
            (Sessions::Added, None) => return Err(BlessError::NothingToAddTo(self.place(key))),
        };
        sessions.extend(proposal.reports.iter().cloned());
        let subject = sessions.first().map(|session| session.subject.clone());
        let provenance = Provenance {
            package_digests: subject.as_ref().map(|s| s.package_digests.clone()).unwrap_or_default(),
            checkpoint_digest: subject.map(|s| s.checkpoint_digest).unwrap_or_default(),
            gate: judgement.gate,
            accepted_regression: judgement.accepted_regression,
            accepted_noise: proposal.provenance.accepted_noise.clone().or(judgement.accepted_noise),
            ..proposal.provenance.clone()
        };
        Ok(Blessed {
            digest: String::new(),
            key: key.clone(),
            number: before.map_or(1, |before| before.number.saturating_add(1)),
            parent: before.map(|before| before.digest.clone()),
            provenance,
            sessions,
        })
    }

    /// Puts a baseline in its place; false if the one there has changed. The one there goes into the history first.
    fn put(
        &self,
        key: &Key,
        bytes: &[u8],
        old: Option<(&StoredObject, &Blessed)>,
    ) -> Result<bool, BaselineError> {
        let Some((stored, before)) = old else {
            return Ok(self.storage.create(&key.file(), bytes)? || self.holds(key, bytes)?);
        };
        let ancestor = key.ancestor(&before.digest);
        if !self.storage.create(&ancestor, &stored.bytes)? {
            let kept = self.storage.read(&ancestor)?;
            if kept.is_none_or(|kept| kept.bytes != stored.bytes) {
                let problem = Problem::NotABaseline(format!("it should be a copy of {}", self.place(key)));
                return Err(BaselineError::new(self.storage.place(&ancestor), problem));
            }
        }
        Ok(self.storage.replace(&key.file(), bytes, &stored.version)? || self.holds(key, bytes)?)
    }

    /// Whether a document is in its place: a request that is repeated because its answer was lost finds its own work.
    fn holds(&self, key: &Key, bytes: &[u8]) -> Result<bool, BaselineError> {
        Ok(self.storage.read(&key.file())?.is_some_and(|stored| stored.bytes == bytes))
    }
}
