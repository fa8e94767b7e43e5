//! The resources, as ranges of the file.

use std::sync::Arc;

use anemeter_kernels::tensor::Bytes;

use super::cursor::Cursor;
use crate::error::Result;
use crate::{Resource, ResourceData};

/// The resources by name, in the order of their numbers.
pub(super) fn read(
    file: &Bytes,
    mut offsets: Cursor<'_>,
    data: Option<Cursor<'_>>,
    strings: &[Arc<str>],
) -> Result<Vec<(Arc<str>, Resource)>> {
    let start = offsets.clone();
    let external = offsets.integer("the number of external groups of resources")?;
    if external != 0 {
        return Err(start.unsupported(format!("expected no external groups of resources, found {external}")));
    }
    let mut data = data.unwrap_or_else(|| offsets.range(offsets.offset(), 0));
    let origin = data.offset();
    let mut resources = Vec::new();
    while !offsets.is_empty() {
        offsets.index(1, "the dialect")?;
        for _ in 0..offsets.count("resources")? {
            let name = &strings[offsets.index(strings.len(), "a string")?];
            let size = offsets.integer("the size of a resource")?;
            let start = offsets.clone();
            let kind = offsets.byte("the kind of a resource")?;
            if kind != 0 {
                return Err(start.unsupported(format!("expected a resource of bytes, found the kind {kind}")));
            }
            resources.push((name.clone(), resource(file, data.part(size, "a resource")?, origin)?));
        }
    }
    data.finish("the resources")?;
    Ok(resources)
}

/// One resource: alignment, length, padding, and its bytes to the end.
fn resource(file: &Bytes, mut data: Cursor<'_>, origin: usize) -> Result<Resource> {
    let alignment = data.integer("the alignment of a resource")?;
    let len = data.integer("the length of a resource")?;
    data.align(alignment, origin)?;
    let start = data.offset();
    let bytes = data.bytes(len, "a resource")?;
    data.finish("a resource")?;
    let slice = file.slice(start..start + bytes.len());
    let slice = slice.expect("what a cursor over a file gives is a part of it");
    Ok(Resource(Arc::new(ResourceData::Bytes(slice))))
}
