//! Float operations that work in place on the elements of `x` as f32.

use super::prelude::*;
use anemeter_kernels::convert::{convert, to_f32};

/// Calls `f` with the elements of `x` and `extra` floats of arbitrary content, aligned for any element type,
/// and stores what the elements have become as the first output.
pub(super) fn run(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    extra: usize,
    f: impl FnOnce(&mut [f32], &mut [f32]) -> Result,
) -> Result {
    let x = call.tensor("x")?;
    let (out, scratch) = outputs.with_scratch(0)?;
    if x.dtype() == DType::F32 {
        let [extra] = scratch.floats([extra]);
        let out = out.slice::<f32>()?;
        out.copy_from_slice(x.slice()?);
        return f(out, extra);
    }
    let [work, extra] = scratch.floats([x.len(), extra]);
    convert(x.slice::<f16>()?, work);
    f(work, extra)?;
    convert(work, out.slice::<f16>()?);
    Ok(())
}

/// The numbers of a parameter, written to memory that must be as long; `None` if it was left out.
pub(super) fn constant<'m>(call: &Call<'_>, name: &str, memory: &'m mut [f32]) -> Result<Option<&'m [f32]>> {
    let Some(vector) = call.opt_tensor(name)? else { return Ok(None) };
    refuse_if!(vector.len() != memory.len(), "`{name}` has {} elements, not {}", vector.len(), memory.len());
    to_f32(&vector, 0..vector.len(), memory);
    Ok(Some(memory))
}
