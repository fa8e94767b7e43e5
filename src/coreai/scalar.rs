//! What element types are called, and how many bits they take.

use crate::Scalar;

impl Scalar {
    /// The name that Apple's tools print.
    pub fn name(self) -> &'static str {
        match self {
            Scalar::Bool => "bool",
            Scalar::F64 => "float64",
            Scalar::F32 => "float32",
            Scalar::F16 => "float16",
            Scalar::Bf16 => "bfloat16",
            Scalar::F8E5M2 => "float8E5M2",
            Scalar::F8E4M3Fn => "float8E4M3FN",
            Scalar::F8E8M0Fn => "float8E8M0FN",
            Scalar::F4E2M1Fn => "float4E2M1FN",
            Scalar::I64 => "sint64",
            Scalar::I32 => "sint32",
            Scalar::I16 => "sint16",
            Scalar::I8 => "sint8",
            Scalar::I4 => "sint4",
            Scalar::I2 => "sint2",
            Scalar::U64 => "uint64",
            Scalar::U32 => "uint32",
            Scalar::U16 => "uint16",
            Scalar::U8 => "uint8",
            Scalar::U6 => "uint6",
            Scalar::U4 => "uint4",
            Scalar::U3 => "uint3",
            Scalar::U2 => "uint2",
            Scalar::U1 => "uint1",
        }
    }

    /// The bits that an element takes in the weight section.
    pub fn bits(self) -> u64 {
        match self {
            Scalar::F64 | Scalar::I64 | Scalar::U64 => 64,
            Scalar::F32 | Scalar::I32 | Scalar::U32 => 32,
            Scalar::F16 | Scalar::Bf16 | Scalar::I16 | Scalar::U16 => 16,
            Scalar::Bool | Scalar::F8E5M2 | Scalar::F8E4M3Fn | Scalar::F8E8M0Fn | Scalar::I8 | Scalar::U8 => {
                8
            }
            Scalar::U6 => 6,
            Scalar::F4E2M1Fn | Scalar::I4 | Scalar::U4 => 4,
            Scalar::U3 => 3,
            Scalar::I2 | Scalar::U2 => 2,
            Scalar::U1 => 1,
        }
    }

    /// The bits that an element takes in the program itself.
    pub fn inline_bits(self) -> u64 {
        match self {
            Scalar::U1 => 1,
            other => other.bits().next_multiple_of(8),
        }
    }

    /// Whether it is an integer, as weights are that a scale belongs to.
    pub fn is_integer(self) -> bool {
        self.name().contains("int")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytecode::scalars;

    #[test]
    fn every_scalar_has_a_number_and_a_name_of_its_own() {
        let (mut names, mut numbers): (Vec<_>, Vec<_>) =
            scalars().iter().map(|(scalar, number)| (scalar.name(), *number)).unzip();
        names.sort_unstable();
        names.dedup();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((names.len(), numbers.len()), (scalars().len(), scalars().len()));
        // The last one that is declared, so that a new one is noticed here.
        assert_eq!(scalars().len(), Scalar::U1 as usize + 1);
    }
}
