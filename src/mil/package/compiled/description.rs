//! `coremldata.bin`: the description of a compiled model in Core ML's own frame. All integers are little endian.
//!
//! ```text
//!   0  u32       kind: the number of its field in `Model`, 502 for an ML program
//!   4  24 bytes  u32 5, then zeros
//!  28  u64 n     and n bytes: "generic"
//!      u32       specification version
//!      28 bytes  zeros
//!      u64 m     and m bytes: `ModelDescription`, as in the protobuf of a package
//!      16 bytes  u64 kind, u64 0
//! ```
//!
//! Apple does not document it: this is the layout of the compiled ML programs at hand. Pipelines and other kinds have
//! other frames, of which only the kind is known. What is between the fields is not looked at.

use crate::package::error::{PackageError, Result};

/// Bytes between the kind and the length of the name.
const AFTER_KIND: usize = 24;
/// The longest name of a sort; the one at hand has 7 bytes.
const LONGEST_NAME: u64 = 64;
/// Bytes between the specification version and the length of the description.
const AFTER_VERSION: usize = 28;

/// What the frame of an ML program holds.
pub(super) struct Frame<'a> {
    pub(super) spec_version: i32,
    /// The protobuf message.
    pub(super) description: &'a [u8],
    /// Where it starts.
    pub(super) offset: usize,
}

/// The number of the field of `Model` that the compiled model was in.
pub(super) fn kind(bytes: &[u8]) -> Result<u32> {
    Cursor { bytes, at: 0 }.u32("its kind")
}

/// The parts of the frame.
pub(super) fn frame(bytes: &[u8]) -> Result<Frame<'_>> {
    let mut cursor = Cursor { bytes, at: 0 };
    cursor.u32("its kind")?;
    cursor.take(AFTER_KIND, "its header")?;
    let start = cursor.at;
    let name = cursor.u64("the length of a name")?;
    if name > LONGEST_NAME {
        let text = format!("has a name of {name} bytes where at most {LONGEST_NAME} are expected");
        return Err(PackageError::malformed(text).at_offset(start as u64));
    }
    cursor.take(name as usize, "a name")?;
    let spec_version = cursor.u32("the specification version")?.cast_signed();
    cursor.take(AFTER_VERSION, "its header")?;
    let len = cursor.u64("the length of the description")?;
    let offset = cursor.at;
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    Ok(Frame { spec_version, description: cursor.take(len, "the description")?, offset })
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..len) else {
            let text = format!("{what} takes {len} bytes where {} are left", rest.len());
            return Err(PackageError::malformed(text).at_offset(self.at as u64));
        };
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }
}
