//! Baselines: blessed reports that later ones are compared with, their history, and the folder that keeps them.
//!
//! ```text
//! <profile>/<model>/<workload>.json                   the present baseline
//! <profile>/<model>/<workload>.history/<digest>.json  each of its predecessors
//! ```
//!
//! A baseline is one or several sessions of launches, whole reports with every sample. It carries its own digest and that
//! of its parent, so a changed file or a missing link is found. [`Store::bless`] copies the present baseline into the
//! history before it puts the next one in its place, and only if the present one is still the one that was judged:
//! of two at once the second is judged again. A writer that is killed leaves the old baseline or the new one.

mod acceptance;
mod audit;
mod change;
mod content;
mod document;
mod error;
mod folder;
mod key;
mod place;
mod quiet;
#[cfg(feature = "remote")]
mod remote;
mod seal;
mod storage;
mod store;

pub use acceptance::{Facts, Refusal, Refusals, Tree, noise, refusals};
pub use audit::{Audit, Finding};
pub use change::{Change, changes};
pub use document::{Blessed, Provenance, SCHEMA};
pub use error::{BaselineError, Problem};
pub use folder::Folder;
pub use key::Key;
pub use place::storage;
pub use storage::{Storage, StorageError, StoredObject, Version};
pub use store::{BlessError, Blessing, Judgement, Proposal, Sessions, Store};

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "it serves tests only")]
pub mod testing;
#[cfg(test)]
mod tests;
