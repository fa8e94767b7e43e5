//! Constants: a type and its value, in the program or in the weight file.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use super::{TensorType, Type};
use anemeter_kernels::tensor::{Bytes, DType, Tensor};

/// A constant with its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Literal {
    /// Its type.
    pub ty: Type,
    /// Its value.
    pub data: LiteralData,
}

/// The value of a constant, and where a file keeps it.
#[derive(Debug, Clone)]
pub enum LiteralData {
    /// Numbers or booleans kept in the program itself, in the in-memory form of their type.
    Immediate(Bytes),
    /// Strings kept in the program, one per element.
    Strings(Vec<String>),
    /// Bytes kept in the weight file.
    Blob(Bytes),
    /// Bytes for the weight file that are produced while it is written.
    Stream(Arc<dyn Payload>),
    /// Elements of a tuple or list.
    Items(Vec<Literal>),
    /// Entries of a dictionary, in file order.
    Entries(Vec<(Literal, Literal)>),
}

/// Bytes that are produced on demand, so that a large conversion never has to be in memory whole.
pub trait Payload: Send + Sync {
    /// How many bytes `write_to` writes.
    fn byte_len(&self) -> u64;

    /// Writes all the bytes; every call writes the same.
    fn write_to(&self, out: &mut dyn Write) -> io::Result<()>;

    /// The integers behind the elements, where they come from such.
    fn quantized(&self) -> Option<Arc<dyn QuantizedSource>> {
        None
    }
}

/// Elements that are integers times a scale plus a minimum, both the same for blocks of consecutive elements of a row.
pub trait QuantizedSource: Send + Sync {
    /// Bits of an integer: 4 or 8.
    fn bits(&self) -> u32;

    /// Whether integers are signed, in two's complement.
    fn is_signed(&self) -> bool;

    /// Elements of a block.
    fn block(&self) -> usize;

    /// Whether integers are no more than what the elements round to.
    fn is_rounded(&self) -> bool {
        false
    }

    /// Whether the elements of a block do not follow each other; then the blocks cannot be read.
    fn is_scattered(&self) -> bool {
        false
    }

    /// Reads some blocks: the integers of each element, a scale and a minimum for each block.
    fn read(&self, blocks: Range<usize>, codes: &mut [u8], scales: &mut [f32], minimums: &mut [f32]);
}

impl std::fmt::Debug for dyn Payload + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({})", self.byte_len())
    }
}

impl PartialEq for LiteralData {
    fn eq(&self, other: &LiteralData) -> bool {
        match (self, other) {
            (LiteralData::Immediate(a), LiteralData::Immediate(b))
            | (LiteralData::Blob(a), LiteralData::Blob(b)) => a == b,
            (LiteralData::Strings(a), LiteralData::Strings(b)) => a == b,
            (LiteralData::Stream(a), LiteralData::Stream(b)) => Arc::ptr_eq(a, b),
            (LiteralData::Items(a), LiteralData::Items(b)) => a == b,
            (LiteralData::Entries(a), LiteralData::Entries(b)) => a == b,
            _ => false,
        }
    }
}

impl Literal {
    /// A string scalar.
    pub fn text(text: &str) -> Literal {
        Literal {
            ty: TensorType::scalar(DType::String).into(),
            data: LiteralData::Strings(vec![text.to_owned()]),
        }
    }

    /// A constant kept in the program.
    pub fn immediate(tensor: &Tensor) -> Literal {
        Literal {
            ty: TensorType::fixed(tensor.dtype(), tensor.shape()).into(),
            data: LiteralData::Immediate(tensor.bytes().clone()),
        }
    }

    /// A constant kept in the weight file.
    pub fn blob(tensor: &Tensor) -> Literal {
        Literal {
            ty: TensorType::fixed(tensor.dtype(), tensor.shape()).into(),
            data: LiteralData::Blob(tensor.bytes().clone()),
        }
    }

    /// The value as a tensor, where it is one and its bytes are at hand.
    pub fn tensor(&self) -> Option<Tensor> {
        let ty = self.ty.tensor()?;
        match &self.data {
            LiteralData::Immediate(bytes) | LiteralData::Blob(bytes) => {
                Tensor::new(ty.dtype, ty.concrete()?, bytes.clone()).ok()
            }
            LiteralData::Strings(strings) => match &strings[..] {
                [text] => Some(Tensor::from_text(text)),
                _ => None,
            },
            LiteralData::Stream(_) | LiteralData::Items(_) | LiteralData::Entries(_) => None,
        }
    }

    /// The string, if this is a scalar string.
    pub fn as_text(&self) -> Option<&str> {
        match &self.data {
            LiteralData::Strings(strings) if strings.len() == 1 => Some(&strings[0]),
            _ => None,
        }
    }
}
