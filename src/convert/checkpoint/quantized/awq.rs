//! AWQ in its `gemm` form: integers and zeros packed along the outputs, eight to a word, the even ones first.

use super::fields::Order;
use super::words::Packing;
use super::{Folding, Method};
use crate::checkpoint::Config;
use crate::checkpoint::error::Result;

pub(super) const METHOD: Method = Method { name: "awq", open };

/// Bits of an integer: there are no others in this form.
const BITS: u32 = 4;

fn open(section: &Config) -> Result<Folding> {
    let version = section.opt_text("version").map_err(super::within)?.unwrap_or("gemm");
    if !version.eq_ignore_ascii_case("gemm") {
        let known = "checkpoints of version `gemm` can be read";
        return Err(super::unsupported("version", &format!("`{version}`"), known));
    }
    let either = |names: [&'static str; 2]| {
        names.into_iter().find(|name| section.get(name).is_some()).unwrap_or(names[0])
    };
    let key = either(["bits", "w_bit"]);
    let bits = section.size(key).map_err(super::within)?;
    if bits != BITS as usize {
        return Err(super::unsupported(key, &bits.to_string(), "integers of 4 bits can be read"));
    }
    let size = super::group_size(section, either(["group_size", "q_group_size"]))?;
    let order = Order::Interleaved;
    Ok(Packing { bits: BITS, size, order, more: 0.0, is_ordered_by_act: false }.folding())
}
