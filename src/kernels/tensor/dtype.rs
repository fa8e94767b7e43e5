//! Element types, down to the sub-byte ones, with their sizes in bits.

use bytemuck::Pod;
use half::{bf16, f16};

/// The element type of a tensor, in MIL's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each variant is the MIL data type of the same name")]
pub enum DType {
    Bool,
    String,
    F16,
    F32,
    F64,
    BF16,
    F8E4M3FN,
    F8E5M2,
    I4,
    I8,
    I16,
    I32,
    I64,
    U1,
    U2,
    U3,
    U4,
    U6,
    U8,
    U16,
    U32,
    U64,
}

/// One row of the data type table: type, MIL text name, bits.
const TABLE: &[(DType, &str, u32)] = &[
    (DType::Bool, "bool", 8),
    (DType::String, "string", 8),
    (DType::F16, "fp16", 16),
    (DType::F32, "fp32", 32),
    (DType::F64, "fp64", 64),
    (DType::BF16, "bf16", 16),
    (DType::F8E4M3FN, "fp8e4m3fn", 8),
    (DType::F8E5M2, "fp8e5m2", 8),
    (DType::I4, "int4", 4),
    (DType::I8, "int8", 8),
    (DType::I16, "int16", 16),
    (DType::I32, "int32", 32),
    (DType::I64, "int64", 64),
    (DType::U1, "uint1", 1),
    (DType::U2, "uint2", 2),
    (DType::U3, "uint3", 3),
    (DType::U4, "uint4", 4),
    (DType::U6, "uint6", 6),
    (DType::U8, "uint8", 8),
    (DType::U16, "uint16", 16),
    (DType::U32, "uint32", 32),
    (DType::U64, "uint64", 64),
];

impl DType {
    /// Every data type.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|row| row.0)
    }

    /// Bits of one element. A string element has no fixed size; its bytes are counted as they are.
    pub fn bits(self) -> u32 {
        TABLE[self as usize].2
    }

    /// Whether several elements share a byte.
    pub fn is_sub_byte(self) -> bool {
        self.bits() < 8
    }

    /// Whether this is one of the floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::F32 | DType::F64 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2)
    }

    /// Whether this is an integer type; `bool` is not.
    pub fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool | DType::String)
    }

    /// Bytes that hold `elements` of this type, or `None` if that overflows.
    pub fn byte_len(self, elements: usize) -> Option<usize> {
        elements.checked_mul(self.bits() as usize)?.checked_add(7).map(|bits| bits / 8)
    }

    /// The type of the given MIL name, such as `fp16` or `int4`.
    pub fn from_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The MIL name.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that is the in-memory form of one data type.
pub trait Element: Pod + Send + Sync + PartialOrd + 'static {
    /// The data type it stands for.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}
elements!(
    f16 => F16, bf16 => BF16, f32 => F32, f64 => F64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_enum_order_and_names_are_unique() {
        for (row, entry) in TABLE.iter().enumerate() {
            assert_eq!(entry.0 as usize, row);
            assert_eq!(DType::from_name(entry.1), Some(entry.0));
        }
    }

    #[test]
    fn byte_lengths_round_up_and_never_wrap() {
        assert_eq!(DType::U3.byte_len(7), Some(3));
        assert_eq!(DType::I4.byte_len(5), Some(3));
        assert_eq!(DType::F16.byte_len(5), Some(10));
        assert_eq!(DType::F32.byte_len(usize::MAX / 2), None);
    }
}
