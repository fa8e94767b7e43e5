//! The resources of a file: equal ones once, each aligned.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::super::{ALIGNMENT, PADDING, varint};
use crate::error::{AssetError, ErrorKind, Result};
use crate::{Resource, ResourceData};

/// Up to this size resources are compared by what they hold. Larger ones would have to be read or made twice.
const SMALL: u64 = 64 << 10;

/// A resource and the bytes before it.
pub struct ResourceEntry {
    /// Alignment, length and padding.
    pub header: Vec<u8>,
    /// The resource.
    pub resource: Resource,
}

impl ResourceEntry {
    /// An entry at an offset of the section.
    fn at(offset: u64, resource: Resource) -> ResourceEntry {
        let mut header = Vec::new();
        varint::push(&mut header, ALIGNMENT);
        varint::push(&mut header, resource.byte_len());
        let data = (offset + header.len() as u64).next_multiple_of(ALIGNMENT);
        header.resize((data - offset) as usize, PADDING);
        ResourceEntry { header, resource }
    }

    /// The bytes that it takes in the section.
    pub fn byte_len(&self) -> u64 {
        self.header.len() as u64 + self.resource.byte_len()
    }
}

/// Resources by number. Addresses stay what they are because the resources are held.
#[derive(Default)]
pub(super) struct Resources {
    entries: Vec<ResourceEntry>,
    len: u64,
    by_place: HashMap<(usize, u64), u64>,
    by_content: HashMap<[u8; 32], u64>,
    /// Those that are known by content; held, so that nothing else comes to their addresses.
    equal: Vec<Resource>,
    deduplicated: usize,
}

/// All resources of a file.
pub(super) struct Finished {
    pub(super) entries: Vec<ResourceEntry>,
    pub(super) deduplicated: usize,
}

impl Resources {
    /// The number of a resource, a new one for one that was not there.
    pub(super) fn number(&mut self, resource: &Resource) -> Result<u64> {
        let places = places(resource);
        if let Some(&number) = places.iter().find_map(|place| self.by_place.get(place)) {
            self.deduplicated += 1;
            return Ok(number);
        }
        let content =
            content(resource).map_err(|e| AssetError::new(ErrorKind::Io, format!("a weight: {e}")))?;
        let known = content.and_then(|content| self.by_content.get(&content).copied());
        let number = known.unwrap_or(self.entries.len() as u64);
        match known {
            Some(_) => {
                self.deduplicated += 1;
                self.equal.push(resource.clone());
            }
            None => {
                let entry = ResourceEntry::at(self.len, resource.clone());
                self.len += entry.byte_len();
                self.entries.push(entry);
            }
        }
        self.by_place.extend(places.into_iter().map(|place| (place, number)));
        self.by_content.extend(content.map(|content| (content, number)));
        Ok(number)
    }

    pub(super) fn finish(self) -> Finished {
        Finished { entries: self.entries, deduplicated: self.deduplicated }
    }
}

/// Addresses and lengths that tell a resource apart: its own, and that of its bytes or of what makes them.
fn places(resource: &Resource) -> Vec<(usize, u64)> {
    let len = resource.byte_len();
    let own = (Arc::as_ptr(&resource.0).addr(), u64::MAX);
    let inner = match &*resource.0 {
        // Empty bytes may be at any address.
        ResourceData::Bytes(bytes) => (!bytes.is_empty()).then(|| bytes.as_ptr().addr()),
        // A payload without size has no memory of its own that would tell it from others.
        ResourceData::Stream(payload) => {
            (size_of_val(&**payload) > 0).then(|| Arc::as_ptr(payload).cast::<u8>().addr())
        }
    };
    std::iter::once(own).chain(inner.map(|address| (address, len))).collect()
}

/// A digest of what a small resource holds.
fn content(resource: &Resource) -> std::io::Result<Option<[u8; 32]>> {
    if resource.byte_len() > SMALL {
        return Ok(None);
    }
    let digest = match &*resource.0 {
        ResourceData::Bytes(bytes) => Sha256::digest(&**bytes),
        ResourceData::Stream(payload) => {
            let mut bytes = Vec::new();
            payload.write_to(&mut bytes)?;
            Sha256::digest(&bytes)
        }
    };
    Ok(Some(digest.into()))
}
