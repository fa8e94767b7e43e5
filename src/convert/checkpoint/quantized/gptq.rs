//! GPTQ: integers packed along the inputs, zeros along the outputs, and the group of each input.

use super::fields::Order;
use super::words::Packing;
use super::{Folding, Method};
use crate::checkpoint::Config;
use crate::checkpoint::error::Result;

pub(super) const METHOD: Method = Method { name: "gptq", open };

fn open(section: &Config) -> Result<Folding> {
    let format = section.opt_text("checkpoint_format").map_err(super::within)?.unwrap_or("gptq");
    let known = "checkpoints of the formats `gptq` and `gptq_v2` can be read";
    // The first version of the format has zeros of one less than is meant.
    let more = match format {
        "gptq" => 1.0,
        "gptq_v2" => 0.0,
        other => return Err(super::unsupported("checkpoint_format", &format!("`{other}`"), known)),
    };
    if section.opt_bool("is_marlin_format").map_err(super::within)? == Some(true) {
        return Err(super::unsupported("is_marlin_format", "true", known));
    }
    Ok(Packing {
        bits: super::bits(section, "bits")?,
        size: super::group_size(section, "group_size")?,
        order: Order::Stream,
        more,
        is_ordered_by_act: section.opt_bool("desc_act").map_err(super::within)?.unwrap_or(false),
    }
    .folding())
}
