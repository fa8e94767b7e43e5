//! The one error of reading and writing packages: what was found, where, and what helps.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use anemeter_base::advice::{Advice, Remedy};
pub(crate) use anemeter_base::text::quoted;
use anemeter_base::text::visible;

/// Returns the error that a function makes of formatted text, where a condition holds.
macro_rules! fail_if {
    ($condition:expr, $($error:ident).+($($text:tt)+)) => {
        if $condition {
            return Err($($error).+(format!($($text)+)));
        }
    };
}

pub(crate) type Result<T> = std::result::Result<T, PackageError>;

/// Why a package could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageError(Box<Inner>);

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
    /// A path leaves the package or is not what it should be.
    Path,
    /// The manifest is not a valid one.
    Manifest,
    /// The file is sound as far as it was read, but of a sort that is not supported.
    Unsupported,
    /// It is a pipeline, whose models are opened one by one.
    Pipeline,
    /// The file contradicts its format.
    Malformed,
    /// A weight file contradicts its format or the program.
    Weights,
    /// The model handed over for writing is inconsistent.
    Model,
}

/// Where the problem is; each part is present as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct At {
    /// The file.
    pub file: Option<PathBuf>,
    /// The function.
    pub function: Option<String>,
    /// The operation, as its place in its block, its type and its name.
    pub op: Option<String>,
    /// The value, feature or attribute.
    pub tensor: Option<String>,
    /// The byte offset in the file.
    pub offset: Option<u64>,
    /// Line and column in a text file, both from 1.
    pub position: Option<(usize, usize)>,
}

impl PackageError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> PackageError {
        PackageError(Box::new(Inner { kind, message: message.into(), at: At::default(), remedy: None }))
    }

    pub(crate) fn malformed(message: impl Into<String>) -> PackageError {
        PackageError::new(ErrorKind::Malformed, message)
    }

    pub(crate) fn io(path: &Path, doing: &str, error: &io::Error) -> PackageError {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::Missing,
            _ => ErrorKind::Io,
        };
        PackageError::new(kind, format!("cannot {doing}: {error}")).in_file(path)
    }

    pub(crate) fn in_file(mut self, path: &Path) -> PackageError {
        self.0.at.file.get_or_insert_with(|| path.to_owned());
        self
    }

    pub(crate) fn in_function(mut self, name: &str) -> PackageError {
        self.0.at.function.get_or_insert_with(|| name.to_owned());
        self
    }

    pub(crate) fn in_op(mut self, index: usize, kind: &str, name: &str) -> PackageError {
        self.0.at.op.get_or_insert_with(|| {
            let kind = if kind.is_empty() { String::new() } else { format!(" {}", quoted(kind)) };
            let name = if name.is_empty() { String::new() } else { format!(" named {}", quoted(name)) };
            format!("op {index}{kind}{name}")
        });
        self
    }

    pub(crate) fn at_tensor(mut self, name: &str) -> PackageError {
        self.0.at.tensor.get_or_insert_with(|| name.to_owned());
        self
    }

    pub(crate) fn at_offset(mut self, offset: u64) -> PackageError {
        self.0.at.offset.get_or_insert(offset);
        self
    }

    /// A place in a text file; an error of another file, which has an offset, keeps its own.
    pub(crate) fn at_position(mut self, position: (usize, usize)) -> PackageError {
        let at = &mut self.0.at;
        if at.file.is_none() && at.offset.is_none() {
            at.position.get_or_insert(position);
        }
        self
    }

    pub(crate) fn with_help(mut self, help: impl Into<Remedy>) -> PackageError {
        self.0.remedy.get_or_insert(help.into());
        self
    }

    /// The same about a file that is known by another path: that of its final place, for one that was staged.
    #[must_use]
    pub fn moved(mut self, from: &Path, to: &Path) -> PackageError {
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

    /// File and function that the error is about.
    pub fn at(&self) -> &At {
        &self.0.at
    }
}

impl Advice for PackageError {
    fn remedy(&self) -> Option<Remedy> {
        self.0.remedy.clone()
    }
}

impl std::error::Error for PackageError {}

impl fmt::Display for PackageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { message, at, .. } = &*self.0;
        if let Some(file) = &at.file {
            write!(f, "{}: ", visible(&file.to_string_lossy()))?;
        }
        if let Some(function) = &at.function {
            write!(f, "function {}: ", quoted(function))?;
        }
        if let Some(op) = &at.op {
            write!(f, "{op}: ")?;
        }
        if let Some(tensor) = &at.tensor {
            write!(f, "{}: ", quoted(tensor))?;
        }
        f.write_str(&visible(message))?;
        match (at.offset, at.position) {
            (Some(offset), _) => write!(f, " (at byte {offset})"),
            (None, Some((line, column))) => write!(f, " (line {line}, column {column})"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_one_line_and_the_innermost_place_wins() {
        let error = PackageError::malformed("input `x` is undefined")
            .in_op(3, "conv", "a\nb")
            .in_op(0, "while_loop", "")
            .in_function("main")
            .in_file(Path::new("/m/model.mlmodel"))
            .at_offset(7)
            .with_help("look");
        assert_eq!(
            error.to_string(),
            "/m/model.mlmodel: function `main`: op 3 `conv` named `a\\nb`: input `x` is undefined (at byte 7)"
        );
        assert_eq!(error.remedy(), Some("look".into()));
        let text = PackageError::malformed("expected `;`").at_position((3, 7)).at_position((1, 1));
        assert_eq!(text.in_function("main").to_string(), "function `main`: expected `;` (line 3, column 7)");
        let blob = PackageError::malformed("is cut").in_file(Path::new("weight.bin")).at_position((3, 7));
        assert_eq!(blob.to_string(), "weight.bin: is cut");
        assert_eq!(quoted(&"é".repeat(200)).chars().count(), 99);
    }
}
