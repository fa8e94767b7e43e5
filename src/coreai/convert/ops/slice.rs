//! Parts of tensors, taken and replaced.

use super::Emitter;
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Scalar, ValueId};
use anemeter_mil::ops::slice::{Span, spans};

pub(super) const OPS: &[(&str, Emitter)] =
    &[("slice_by_index", by_index), ("slice_by_size", by_size), ("slice_update", update)];

/// Corners and steps, in the order of aicode's operands.
struct Corners {
    begin: ValueId,
    end: ValueId,
    stride: ValueId,
}

fn by_index(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let dims = e.result_dims()?;
    if is_known(e) {
        let spans = spans(e.call)?;
        let begin: Vec<i64> = spans.iter().map(|span| span.start as i64).collect();
        let end: Vec<i64> = spans.iter().map(end_of).collect();
        let steps: Vec<i64> = spans.iter().map(|span| span.step as i64).collect();
        check_forward(&steps)?;
        let part = e.body().slice(x, &begin, &end, &steps);
        return Ok(vec![e.body().reshape(part, &dims)]);
    }
    let corners = computed(e, x)?;
    let (element, squeezed) = (e.body().element(x), flags(e, "squeeze_mask")?);
    if squeezed.contains(&true) {
        refuse!("drops axes at places that are known only when the program runs");
    }
    let ty = crate::convert::body::tensor(element, &dims);
    let operands = [x, corners.begin, corners.end, corners.stride];
    Ok(vec![e.body().push("primitive.slice_v1", &operands, ty)])
}

fn end_of(span: &Span) -> i64 {
    match span.len {
        0 => span.start as i64,
        len => span.start as i64 + (len as i64 - 1) * span.step as i64 + 1,
    }
}

fn check_forward(steps: &[i64]) -> Result<()> {
    if steps.iter().any(|&step| step <= 0) {
        refuse!("goes backwards along an axis (`stride` {steps:?}); reverse the tensor first");
    }
    Ok(())
}

/// Whether the part is known before the program runs.
fn is_known(e: &Emit<'_, '_, '_>) -> bool {
    e.call.known("begin").is_some() && e.call.known("end").is_some()
}

fn by_size(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let (dims, sizes) = (e.result_dims()?, e.body().dims(x));
    let Some(begin) = e.call.known_ints("begin")? else {
        refuse!("`begin` is known only when the program runs");
    };
    let begin: Vec<i64> =
        begin.iter().zip(&sizes).map(|(&at, &size)| if at < 0 { at + size as i64 } else { at }).collect();
    let end: Vec<i64> = begin.iter().zip(&dims).map(|(&at, &size)| at + size as i64).collect();
    let ones = vec![1; begin.len()];
    Ok(vec![e.body().slice(x, &begin, &end, &ones)])
}

fn update(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (x, update) = (e.arg("x")?, e.arg("update")?);
    let ty = e.result_type()?;
    let (corners, part) = if is_known(e) {
        let spans = spans(e.call)?;
        let begin: Vec<i64> = spans.iter().map(|span| span.start as i64).collect();
        let end: Vec<i64> = spans.iter().map(end_of).collect();
        let steps: Vec<i64> = spans.iter().map(|span| span.step as i64).collect();
        check_forward(&steps)?;
        let part: Vec<u64> = spans.iter().map(|span| span.len as u64).collect();
        let body = e.body();
        let (begin, end, stride) = (body.indices(&begin), body.indices(&end), body.indices(&steps));
        (Corners { begin, end, stride }, part)
    } else {
        let squeezed = flags(e, "squeeze_mask")?;
        if squeezed.contains(&true) {
            refuse!("drops axes at places that are known only when the program runs");
        }
        (computed(e, x)?, e.body().dims(update))
    };
    let update = e.body().reshape(update, &part);
    let operands = [x, corners.begin, corners.end, corners.stride, update];
    Ok(vec![e.body().push("primitive.slice_update_v1", &operands, ty)])
}

/// Corners that are computed while the program runs. Where a mask is set, the axis is taken from its first element or
/// to its last.
fn computed(e: &mut Emit<'_, '_, '_>, x: ValueId) -> Result<Corners> {
    let dims: Vec<i64> = e.body().dims(x).iter().map(|&size| size as i64).collect();
    let steps = match e.call.has("stride") {
        true => e.call.ints("stride")?.to_vec(),
        false => vec![1; dims.len()],
    };
    check_forward(&steps)?;
    let begin = corner(e, "begin", "begin_mask", &vec![0; dims.len()])?;
    let end = corner(e, "end", "end_mask", &dims)?;
    Ok(Corners { begin, end, stride: e.body().indices(&steps) })
}

fn corner(e: &mut Emit<'_, '_, '_>, parameter: &str, mask: &str, open: &[i64]) -> Result<ValueId> {
    let at = e.arg(parameter)?;
    let at = e.body().cast(at, Scalar::I32);
    let masked = flags(e, mask)?;
    if !masked.contains(&true) {
        return Ok(at);
    }
    let choose = |masked: &[bool], yes: &[i64], no: i64| -> Vec<i64> {
        masked.iter().zip(yes).map(|(&masked, &yes)| if masked { yes } else { no }).collect()
    };
    let keep = choose(&masked, &vec![0; open.len()], 1);
    let fill = choose(&masked, open, 0);
    let body = e.body();
    let (keep, fill) = (body.indices(&keep), body.indices(&fill));
    let kept = body.binary("primitive.mul_v1", at, keep);
    Ok(body.binary("primitive.add_v1", kept, fill))
}

/// A list of booleans, empty where it is left out.
fn flags(e: &Emit<'_, '_, '_>, parameter: &str) -> Result<Vec<bool>> {
    match e.call.opt_tensor(parameter)? {
        Some(view) => Ok(view.bools()?.iter().map(|&flag| flag != 0).collect()),
        None => Ok(Vec::new()),
    }
}
