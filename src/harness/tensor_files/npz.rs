//! `.npz`: a zip archive of `.npy` files, stored (`np.savez`) or deflated (`np.savez_compressed`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use miniz_oxide::inflate::decompress_to_vec_with_limit;

use super::{Content, Document, Format, FormatError, Result, npy};
use anemeter_base::zip::{self, Entry, Method};

pub(super) const FORMAT: Format = Format { ending: "npz", holds_texts: false, decode, encode };

/// What the name of an array ends with in the archive.
const MEMBER: &str = ".npy";
/// DEFLATE makes at most so many bytes of one.
const LARGEST_RATIO: u64 = 1032;

fn decode(bytes: &[u8]) -> Result<Content> {
    let entries = zip::entries(bytes).map_err(|e| FormatError::new(format!("not an .npz file: {e}")))?;
    // Entries that share bytes could unpack to any size.
    if entries.values().map(|entry| entry.content.len()).sum::<usize>() > bytes.len() {
        return Err(FormatError::new("not an .npz file: its zip entries overlap"));
    }
    let mut tensors = BTreeMap::new();
    for (member, entry) in entries {
        let tensor = member_name(member)
            .and_then(|name| Ok((name, npy::tensor(&unpacked(bytes, &entry)?)?)))
            .map_err(|problem| problem.about(member))?;
        tensors.insert(tensor.0.to_owned(), tensor.1);
    }
    Ok(Content::Named(tensors))
}

fn member_name(member: &str) -> Result<&str> {
    member.strip_suffix(MEMBER).ok_or_else(|| {
        FormatError::new("is no array: members of an .npz file end with .npy")
            .with_help("write it with np.savez")
    })
}

/// The bytes of an entry, whose size and checksum must be those of the directory.
fn unpacked<'a>(bytes: &'a [u8], entry: &Entry) -> Result<Cow<'a, [u8]>> {
    let content = &bytes[entry.content.clone()];
    let unpacked = match entry.method {
        Method::Stored => Cow::Borrowed(content),
        Method::Deflated => {
            let most = (content.len() as u64).saturating_mul(LARGEST_RATIO);
            let size = usize::try_from(entry.size).ok().filter(|_| entry.size <= most);
            let size = size.ok_or_else(|| {
                FormatError::new(format!("{} bytes cannot unpack to {}", content.len(), entry.size))
            })?;
            let unpacked = decompress_to_vec_with_limit(content, size)
                .map_err(|e| FormatError::new(format!("cannot be unpacked: {:?}", e.status)))?;
            Cow::Owned(unpacked)
        }
    };
    if unpacked.len() as u64 != entry.size || crc32fast::hash(&unpacked) != entry.crc32 {
        return Err(FormatError::new("is damaged: size or checksum is not that of the archive's directory"));
    }
    Ok(unpacked)
}

fn encode(document: &Document<'_>) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for (name, view) in &document.tensors {
        let array = npy::array(view).map_err(|problem| problem.about(name))?;
        archive.add(&format!("{name}{MEMBER}"), &array)?;
    }
    archive.finish()
}

/// An archive of stored entries, all of the first day that zip knows, so that the same arrays give the same bytes.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    entries: usize,
}

impl Archive {
    fn add(&mut self, name: &str, content: &[u8]) -> Result<()> {
        const VERSION: u16 = 20;
        const FIRST_OF_JANUARY_1980: u16 = 0x21;
        const UTF_8: u16 = 0x800;
        let flags = if name.is_ascii() { 0 } else { UTF_8 };
        let (offset, size): (u32, u32) = (narrow(self.bytes.len())?, narrow(content.len())?);
        let crc32 = crc32fast::hash(content);
        let words = [VERSION, flags, 0, 0, FIRST_OF_JANUARY_1980].map(u16::to_le_bytes);
        let sizes = [crc32, size, size].map(u32::to_le_bytes);
        let lengths = [narrow(name.len())?, 0].map(u16::to_le_bytes);
        let common = [words.as_flattened(), sizes.as_flattened(), lengths.as_flattened()].concat();
        self.bytes.extend([b"PK\x03\x04", &common[..], name.as_bytes(), content].concat());
        // Made by the same version; no comment, first disk, no attributes.
        let place = [&[0; 10][..], &offset.to_le_bytes()].concat();
        let made_by = VERSION.to_le_bytes();
        self.directory.extend([b"PK\x01\x02", &made_by[..], &common, &place, name.as_bytes()].concat());
        self.entries += 1;
        Ok(())
    }

    fn finish(self) -> Result<Vec<u8>> {
        let counts = [0u16, 0, narrow(self.entries)?, narrow(self.entries)?].map(u16::to_le_bytes);
        let place = [narrow(self.directory.len())?, narrow(self.bytes.len())?].map(u32::to_le_bytes);
        let end = [b"PK\x05\x06", counts.as_flattened(), place.as_flattened(), &[0; 2]].concat();
        Ok([self.bytes, self.directory, end].concat())
    }
}

/// A number of the archive, whose fields have 16 or 32 bits.
fn narrow<T: TryFrom<usize>>(number: usize) -> Result<T> {
    T::try_from(number).map_err(|_| {
        FormatError::new("is more than an .npz file without zip64 holds")
            .with_help("a .safetensors file holds it")
    })
}
