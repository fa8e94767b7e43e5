//! Where a figure holds: a sequence length of a language model, or a function and its shapes.

use std::fmt;

/// Where a figure holds. Figures are compared with those of the same place only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A sequence length, of the workload `generate`.
    SeqLen(usize),
    /// A case of the workload `predict`, by its name.
    Case(String),
}

impl Place {
    /// The place that two fields of a document state, of which one at most is there.
    pub fn stated(seq_len: Option<usize>, case: Option<&String>) -> Option<Place> {
        let case = case.map(|case| Place::Case(case.clone()));
        case.or(seq_len.map(Place::SeqLen))
    }

    /// The sequence length, if it is one.
    pub fn seq_len(&self) -> Option<usize> {
        match self {
            Place::SeqLen(seq_len) => Some(*seq_len),
            Place::Case(_) => None,
        }
    }

    /// The name of the case, if it is one.
    pub fn case(&self) -> Option<&str> {
        match self {
            Place::SeqLen(_) => None,
            Place::Case(name) => Some(name),
        }
    }

    /// What it is and which, such as `seq_len 512`; a case is its name.
    pub fn in_words(&self) -> String {
        match self {
            Place::SeqLen(seq_len) => format!("seq_len {seq_len}"),
            Place::Case(name) => name.clone(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::SeqLen(seq_len) => write!(f, "{seq_len}"),
            Place::Case(name) => f.write_str(name),
        }
    }
}
