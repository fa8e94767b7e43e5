//! What files of LFM2 say otherwise than those of Llama's family.

use serde_json::{Map, Value, json};

use super::super::error::Result;
use super::config::Writer;
use super::reader::{key_error, opt_array};

impl Writer<'_> {
    /// Which layers attend: those with key heads. Files have the width of the MLPs as it is used.
    pub(super) fn lfm2(&self, config: &mut Map<String, Value>) -> Result<()> {
        let key = self.key("attention.head_count_kv");
        let missing = || key_error(&key, "is missing");
        let counts = opt_array(self.metadata, &key)?.ok_or_else(missing)?.ints(&key)?;
        let attends = |count: &i64| if *count > 0 { "full_attention" } else { "conv" };
        config.insert("layer_types".into(), json!(counts.iter().map(attends).collect::<Vec<_>>()));
        let mut heads = counts.into_iter().filter(|&count| count > 0);
        if let Some(first) = heads.next() {
            if let Some(other) = heads.find(|&count| count != first) {
                return Err(key_error(
                    &key,
                    &format!("has {first} and {other}, expected as many in every layer"),
                ));
            }
            config.insert("num_key_value_heads".into(), json!(first));
        }
        config.insert("block_auto_adjust_ff_dim".into(), json!(false));
        config.insert("conv_bias".into(), json!(self.tensors.has("blk.0.shortconv.in_proj.bias")));
        Ok(())
    }
}
