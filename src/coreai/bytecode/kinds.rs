//! The numbers that `aicode` gives its attributes and types, and what follows each of them.

use crate::Scalar;

/// A part of the record of an attribute or a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// A byte.
    Byte,
    /// An unsigned integer.
    Integer,
    /// A width in bits, perhaps a byte that tells the sign, and the bits: a byte up to 8 of them, else an integer.
    Bits {
        /// Whether there is such a byte.
        has_sign: bool,
    },
    /// A count and as many signed integers.
    Integers,
    /// A count and as many bytes.
    Bytes,
    /// The number of a string.
    String,
    /// A count and as many strings.
    Strings,
    /// The number of an attribute.
    Attribute,
    /// Zero, or twice the number of an attribute and 1.
    OptionalAttribute,
    /// A count and as many attributes.
    Attributes,
    /// The number of a type.
    Type,
    /// A count and as many types.
    Types,
    /// The number of a resource.
    Resource,
}

/// What follows a number.
pub(super) struct Kind {
    pub(super) number: u64,
    pub(super) fields: &'static [Field],
}

/// Numbers of attributes.
pub(super) mod attribute {
    pub(in crate::bytecode) const STRING: u64 = 1;
    pub(in crate::bytecode) const INTEGER: u64 = 2;
    pub(in crate::bytecode) const FLOAT: u64 = 3;
    pub(in crate::bytecode) const TYPE: u64 = 4;
    pub(in crate::bytecode) const ARRAY: u64 = 5;
    pub(in crate::bytecode) const DENSE_ELEMENTS: u64 = 6;
    pub(in crate::bytecode) const DENSE_RESOURCE: u64 = 7;
    pub(in crate::bytecode) const OPAQUE: u64 = 9;
    pub(in crate::bytecode) const HW_CONSTRAINTS: u64 = 12;
    pub(in crate::bytecode) const SYMBOL_REF: u64 = 14;
    pub(in crate::bytecode) const PARAM_CONSTANT: u64 = 16;
    pub(in crate::bytecode) const APPROXIMATE: u64 = 19;
    pub(in crate::bytecode) const SCATTER_MODE: u64 = 20;
    pub(in crate::bytecode) const SPARSE_ENCODING: u64 = 21;
    pub(in crate::bytecode) const FILE: u64 = 30;
    pub(in crate::bytecode) const SOURCE_LOCATION: u64 = 31;
    pub(in crate::bytecode) const COMPILE_UNIT: u64 = 32;
    pub(in crate::bytecode) const METADATA_DATA: u64 = 33;
    pub(in crate::bytecode) const METADATA: u64 = 35;
    pub(in crate::bytecode) const SUBPROGRAM: u64 = 36;
    pub(in crate::bytecode) const LOCATION: u64 = 40;
    pub(in crate::bytecode) const DICTIONARY: u64 = 45;
    pub(in crate::bytecode) const UNIT: u64 = 46;
}

/// What the record of [`attribute::SPARSE_ENCODING`] has before the number of stored elements, where they are told by a bit
/// mask: every file that was seen has this.
pub(super) const BIT_MASK: [u64; 4] = [0, 1, 1, 0];

/// Numbers of types that are no scalars.
pub(super) mod ty {
    pub(in crate::bytecode) const TENSOR: u64 = 2;
    pub(in crate::bytecode) const ENCODED_TENSOR: u64 = 3;
    pub(in crate::bytecode) const FUNCTION: u64 = 30;
    pub(in crate::bytecode) const HANDLE: u64 = 31;
    pub(in crate::bytecode) const TOKEN: u64 = 32;
    pub(in crate::bytecode) const PARAM_SYMBOL: u64 = 33;
    pub(in crate::bytecode) const PARAM_TYPE: u64 = 34;
    pub(in crate::bytecode) const DEBUG_UNRESOLVED: u64 = 41;
}

/// Every kind of attribute that is known.
pub(super) static ATTRIBUTES: &[Kind] = {
    use Field::*;
    use attribute::*;
    &[
        Kind { number: STRING, fields: &[String] },
        Kind { number: INTEGER, fields: &[Bits { has_sign: true }] },
        Kind { number: FLOAT, fields: &[Bits { has_sign: false }] },
        Kind { number: TYPE, fields: &[Type] },
        Kind { number: ARRAY, fields: &[Attributes] },
        Kind { number: DENSE_ELEMENTS, fields: &[Byte, Bytes] },
        Kind { number: DENSE_RESOURCE, fields: &[Resource] },
        Kind { number: OPAQUE, fields: &[String, Attributes] },
        Kind { number: HW_CONSTRAINTS, fields: &[Integers, Integers, Integer] },
        Kind { number: SYMBOL_REF, fields: &[Strings] },
        Kind { number: PARAM_CONSTANT, fields: &[Attribute, Type] },
        Kind { number: APPROXIMATE, fields: &[Integer] },
        Kind { number: SCATTER_MODE, fields: &[Integer] },
        Kind { number: SPARSE_ENCODING, fields: &[Integer, Integer, Integer, Integer, Integer] },
        Kind { number: FILE, fields: &[String, String, String] },
        Kind { number: SOURCE_LOCATION, fields: &[Attribute, Integer, Integer, Integer, Integer] },
        Kind { number: COMPILE_UNIT, fields: &[String, Attribute, String, Integer, String, Integer] },
        Kind { number: METADATA_DATA, fields: &[Attribute] },
        Kind { number: METADATA, fields: &[String, Attribute] },
        Kind { number: SUBPROGRAM, fields: &[Type, Attribute, Attribute, String, String, OptionalAttribute] },
        Kind { number: LOCATION, fields: &[Attribute, Attribute, Attributes, Attributes] },
        Kind { number: DICTIONARY, fields: &[Attributes] },
        Kind { number: UNIT, fields: &[] },
    ]
};

/// Every kind of type that is known and no scalar.
pub(super) static TYPES: &[Kind] = {
    use Field::*;
    use ty::*;
    &[
        Kind { number: TENSOR, fields: &[Integers, Type] },
        Kind { number: ENCODED_TENSOR, fields: &[Integers, Type, Attribute] },
        // Results come before arguments.
        Kind { number: FUNCTION, fields: &[Types, Types] },
        Kind { number: HANDLE, fields: &[Type] },
        Kind { number: TOKEN, fields: &[] },
        Kind { number: PARAM_SYMBOL, fields: &[] },
        Kind { number: PARAM_TYPE, fields: &[] },
        Kind { number: DEBUG_UNRESOLVED, fields: &[Type] },
    ]
};

/// The scalars and their numbers.
pub(super) static SCALARS: &[(Scalar, u64)] = &[
    (Scalar::Bool, 4),
    (Scalar::F64, 5),
    (Scalar::F32, 6),
    (Scalar::F16, 7),
    (Scalar::Bf16, 8),
    (Scalar::F8E5M2, 9),
    (Scalar::F8E4M3Fn, 10),
    (Scalar::I64, 17),
    (Scalar::I32, 18),
    (Scalar::I16, 19),
    (Scalar::I8, 20),
    (Scalar::I4, 21),
    (Scalar::I2, 22),
    (Scalar::U64, 23),
    (Scalar::U32, 24),
    (Scalar::U16, 25),
    (Scalar::U8, 26),
    (Scalar::U4, 27),
    (Scalar::U2, 28),
    (Scalar::U1, 29),
    (Scalar::U6, 36),
    (Scalar::U3, 37),
    (Scalar::F4E2M1Fn, 46),
    (Scalar::F8E8M0Fn, 47),
];

/// Names of scalars that Apple's tools know and this crate does not, by their numbers.
pub(super) static OTHER_SCALARS: &[(u64, &str)] = &[
    (11, "complex_float64"),
    (12, "complex_float32"),
    (13, "complex_float16"),
    (14, "complex_bfloat16"),
    (38, "tfloat32"),
];
