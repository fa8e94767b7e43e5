//! `softmax`.

use super::Emitter;

pub(super) const OPS: &[(&str, Emitter)] = &[("softmax", |e| {
    let x = e.arg("x")?;
    let rank = e.body().dims(x).len();
    let axis = e.call.axis("axis", rank)?;
    Ok(vec![e.body().softmax(x, axis)])
})];
