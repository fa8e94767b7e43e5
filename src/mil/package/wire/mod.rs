//! Protobuf's wire format: fields in, fields out, no knowledge of what they mean.

mod read;
mod write;

pub(super) use read::{Field, Message, Schema, fields};
pub(super) use write::Writer;
