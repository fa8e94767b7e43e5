//! `constexpr_cast`: fp16 constants used as fp32.

use std::ops::Range;
use std::sync::Arc;

use super::super::prelude::*;
use super::source::{Source, fixed_shape};

pub(crate) const OPS: &[OpDef] = &[constexpr("constexpr_cast", Ios16, infer, decoders)
    .takes(&[Param::constant("source_val", &[DType::F16]).packed(), Param::constant("output_dtype", TEXT)])];

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    match call.text("output_dtype")? {
        "fp32" => Ok(vec![TensorType::fixed(DType::F32, &fixed_shape(call, "source_val")?).into()]),
        other => refuse!("`output_dtype` is `{other}`, which can only be `fp32`"),
    }
}

fn decoders(call: &Call<'_>) -> Result<Decoders> {
    Ok(vec![Arc::new(Cast { source: Source::of(call, "source_val")? })])
}

struct Cast {
    source: Source,
}

impl Decode for Cast {
    fn dtype(&self) -> DType {
        DType::F32
    }

    fn shape(&self) -> &[usize] {
        self.source.shape()
    }

    fn decode(&self, range: Range<usize>, out: &mut [f32]) {
        self.source.read(range, out);
    }

    fn stored_bytes(&self) -> usize {
        self.source.stored_bytes()
    }
}
