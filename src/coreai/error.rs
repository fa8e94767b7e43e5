//! The one error of reading, checking and writing assets: what was found, where, and what helps.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use anemeter_base::advice::{Advice, Remedy};
pub(crate) use anemeter_base::text::quoted;
use anemeter_base::text::visible;

pub(crate) type Result<T> = std::result::Result<T, AssetError>;

/// Why an asset could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssetError(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: String,
    at: At,
    remedy: Option<Remedy>,
}

/// What sort of problem it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The system refused to read or write.
    Io,
    /// Something that must exist does not.
    Missing,
    /// The destination is taken.
    Exists,
    /// `metadata.json` is not a valid one.
    Metadata,
    /// The file is sound as far as it was read, but of a sort that is not supported.
    Unsupported,
    /// The file contradicts its format.
    Malformed,
    /// The bytes are not those that `main.hash` was made of.
    Hash,
    /// The program is inconsistent.
    Program,
}

/// Where the problem is; each part is present as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct At {
    /// The file.
    pub file: Option<PathBuf>,
    /// The graph.
    pub graph: Option<String>,
    /// The operation, as its place in its region and its name.
    pub op: Option<String>,
    /// The byte offset in the file.
    pub offset: Option<u64>,
}

impl AssetError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> AssetError {
        AssetError(Box::new(Inner { kind, message: message.into(), at: At::default(), remedy: None }))
    }

    pub(crate) fn malformed(message: impl Into<String>) -> AssetError {
        AssetError::new(ErrorKind::Malformed, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> AssetError {
        AssetError::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn program(message: impl Into<String>) -> AssetError {
        AssetError::new(ErrorKind::Program, message)
    }

    pub(crate) fn io(path: &Path, doing: &str, error: &io::Error) -> AssetError {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::Missing,
            _ => ErrorKind::Io,
        };
        AssetError::new(kind, format!("cannot {doing}: {error}")).in_file(path)
    }

    pub(crate) fn in_file(mut self, path: &Path) -> AssetError {
        self.0.at.file.get_or_insert_with(|| path.to_owned());
        self
    }

    pub(crate) fn in_graph(mut self, name: &str) -> AssetError {
        self.0.at.graph.get_or_insert_with(|| name.to_owned());
        self
    }

    pub(crate) fn in_op(mut self, index: usize, name: &str) -> AssetError {
        self.0.at.op.get_or_insert_with(|| format!("op {index} {}", quoted(name)));
        self
    }

    pub(crate) fn at_offset(mut self, offset: usize) -> AssetError {
        self.0.at.offset.get_or_insert(offset as u64);
        self
    }

    pub(crate) fn with_help(mut self, help: impl Into<Remedy>) -> AssetError {
        self.0.remedy.get_or_insert(help.into());
        self
    }

    /// The same about a file that is known by another path: that of its final place, for one that was staged.
    #[must_use]
    pub fn moved(mut self, from: &Path, to: &Path) -> AssetError {
        if let Some(file) = &mut self.0.at.file
            && let Ok(rest) = file.strip_prefix(from)
        {
            *file = to.join(rest);
        }
        self
    }

    /// What sort of problem it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Where it is.
    pub fn at(&self) -> &At {
        &self.0.at
    }
}

impl Advice for AssetError {
    fn remedy(&self) -> Option<Remedy> {
        self.0.remedy.clone()
    }
}

impl std::error::Error for AssetError {}

impl fmt::Display for AssetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { message, at, .. } = &*self.0;
        if let Some(file) = &at.file {
            write!(f, "{}: ", visible(&file.to_string_lossy()))?;
        }
        if let Some(graph) = &at.graph {
            write!(f, "graph {}: ", quoted(graph))?;
        }
        if let Some(op) = &at.op {
            write!(f, "{op}: ")?;
        }
        f.write_str(&visible(message))?;
        at.offset.map_or(Ok(()), |offset| write!(f, " (at byte {offset})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_one_line_and_the_innermost_place_wins() {
        let error = AssetError::malformed("operand 9 is not defined")
            .in_op(3, "primitive.add_v1\n")
            .in_op(0, "softmax_v1")
            .in_graph("main")
            .in_file(Path::new("/m/main.mlirb"))
            .at_offset(7)
            .at_offset(1)
            .with_help("look");
        assert_eq!(
            error.to_string(),
            "/m/main.mlirb: graph `main`: op 3 `primitive.add_v1\\n`: operand 9 is not defined (at byte 7)"
        );
        assert_eq!(error.remedy(), Some("look".into()));
        assert_eq!((error.kind(), error.at().offset), (ErrorKind::Malformed, Some(7)));
    }
}
