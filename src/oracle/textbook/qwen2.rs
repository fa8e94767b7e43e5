//! Qwen2: biases on queries, keys and values; upper layers may have a window.

use candle_nn::VarBuilder;

use super::family;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{QWEN2, Settings};
use anemeter_convert::checkpoint::Config;

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, QWEN2, positions)?;
    let windows = settings.upper_windows()?;
    family::open(&settings, tensors, [true, false, false], |i| windows[i])
}
