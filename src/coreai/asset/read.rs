//! Opening an asset: its program is read, its weights stay mapped.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anemeter_base::files;
use anemeter_kernels::tensor::Bytes;
use sha2::{Digest, Sha256};

use super::{AssetMetadata, HASH, METADATA, PROGRAM, metadata};
use crate::bytecode::{Decoded, decode};
use crate::error::{AssetError, ErrorKind, Result};
use crate::{Program, Resource};

/// An asset that is there.
#[derive(Debug)]
pub struct Asset {
    path: PathBuf,
    metadata: AssetMetadata,
    file: Bytes,
    recorded: Option<[u8; 32]>,
    decoded: Decoded,
}

impl Asset {
    /// Whether a path is that of an asset, be it in order or not.
    pub fn is_at(path: &Path) -> bool {
        path.is_dir() && (path.join(PROGRAM).exists() || path.extension().is_some_and(|e| e == "aimodel"))
    }

    /// Opens an asset. The hash of its bytes is not compared, which would read all of them: see [`Asset::check_hash`].
    pub fn open(path: impl AsRef<Path>) -> Result<Asset> {
        let path = path.as_ref();
        if path.is_file() {
            let expected = format!("expected a folder with `{PROGRAM}`, found a file");
            return Err(AssetError::new(ErrorKind::Missing, expected).in_file(path));
        }
        let at = path.join(METADATA);
        let metadata = metadata::parse(&read_small(&at)?).map_err(|e| e.in_file(&at))?;
        let at = path.join(HASH);
        let recorded = match at.exists() {
            true => Some(recorded(&at)?),
            false => None,
        };
        let at = path.join(PROGRAM);
        let io_error = |e: io::Error| AssetError::io(&at, "read", &e);
        let file = files::open(&at).and_then(|file| Bytes::map(&file)).map_err(io_error)?;
        let decoded = decode(&file).map_err(|e| e.in_file(&at))?;
        Ok(Asset { path: path.to_owned(), metadata, file, recorded, decoded })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where its program and weights are.
    pub fn program_path(&self) -> PathBuf {
        self.path.join(PROGRAM)
    }

    /// Its program.
    pub fn program(&self) -> &Program {
        &self.decoded.program
    }

    /// What it says about itself.
    pub fn metadata(&self) -> &AssetMetadata {
        &self.metadata
    }

    /// Its resources by name, in the order of the file.
    pub fn resources(&self) -> &[(Arc<str>, Resource)] {
        &self.decoded.resources
    }

    /// The version of MLIR that wrote its program.
    pub fn bytecode_producer(&self) -> &str {
        &self.decoded.producer
    }

    /// Attributes of arguments and results that are in the file and not in its program.
    pub fn dropped(&self) -> &BTreeSet<String> {
        &self.decoded.dropped
    }

    /// The length of the file of its program and weights.
    pub fn file_len(&self) -> u64 {
        self.file.len() as u64
    }

    /// The bytes of its weights.
    pub fn weight_len(&self) -> u64 {
        self.resources().iter().map(|(_, resource)| resource.byte_len()).sum()
    }

    /// The SHA-256 that its `main.hash` has, if there is one.
    pub fn recorded_sha256(&self) -> Option<[u8; 32]> {
        self.recorded
    }

    /// The SHA-256 of its program and weights; reads all of them.
    pub fn sha256(&self) -> [u8; 32] {
        const RESIDENT: usize = 8 << 20;
        let mut hash = Sha256::new();
        for (index, chunk) in self.file.chunks(RESIDENT).enumerate() {
            hash.update(chunk);
            let start = index * RESIDENT;
            self.file.release(start..start + chunk.len());
        }
        hash.finalize().into()
    }

    /// Compares its program and weights with `main.hash`, if there is one; reads all of them.
    pub fn check_hash(&self) -> Result<()> {
        self.checked_sha256().map(drop)
    }

    /// The SHA-256 of its program and weights, which is the one of `main.hash` if there is one; reads all of them.
    pub fn checked_sha256(&self) -> Result<[u8; 32]> {
        let found = self.sha256();
        match self.recorded {
            Some(recorded) if recorded != found => {
                let message = format!("is not what `{HASH}` was made of: a byte has changed since");
                Err(AssetError::new(ErrorKind::Hash, message)
                    .in_file(&self.path.join(PROGRAM))
                    .with_help("copy the asset again, or write it again"))
            }
            _ => Ok(found),
        }
    }
}

/// The content of a file that is never large.
fn read_small(path: &Path) -> Result<Vec<u8>> {
    const LARGEST: u64 = 1 << 20;
    let io_error = |e: io::Error| AssetError::io(path, "read", &e);
    let mut bytes = Vec::new();
    files::open(path).map_err(io_error)?.take(LARGEST + 1).read_to_end(&mut bytes).map_err(io_error)?;
    match bytes.len() as u64 > LARGEST {
        true => Err(AssetError::malformed(format!("expected at most {LARGEST} bytes")).in_file(path)),
        false => Ok(bytes),
    }
}

fn recorded(path: &Path) -> Result<[u8; 32]> {
    let bytes = read_small(path)?;
    let len = bytes.len();
    bytes.try_into().map_err(|_| {
        AssetError::malformed(format!("expected the 32 bytes of a SHA-256, found {len}")).in_file(path)
    })
}
