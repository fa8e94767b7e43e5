//! `scaled_dot_product_attention`, written as products and a softmax.

use super::Emitter;
use super::product::product;
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Scalar, ValueId};

pub(super) const OPS: &[(&str, Emitter)] = &[("scaled_dot_product_attention", attention)];

fn attention(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (query, key, value) = (e.arg("query")?, e.arg("key")?, e.arg("value")?);
    let mask = e.opt_arg("attn_mask")?;
    let body = e.body();
    let width = body.dims(query).last().copied().unwrap_or(1);
    let query = body.with_number("primitive.mul_v1", query, (width as f64).sqrt().recip());
    let key = body.swap_last(key);
    let mut scores = product(body, query, key);
    if let Some(mask) = mask {
        if body.element(mask) == Scalar::Bool {
            refuse!("`attn_mask` holds booleans; only masks that are added have an aicode form here");
        }
        scores = body.binary("primitive.add_v1", scores, mask);
    }
    let last = body.dims(scores).len() - 1;
    let shares = body.softmax(scores, last);
    Ok(vec![product(body, shares, value)])
}
