//! Which layer a name speaks of.

/// Words that a layer's number follows.
const WORDS: &[&str] = &["layers", "layer", "h", "blocks", "block"];

/// The number of the layer that a name such as `layers_3_mlp_out` or `model.layers.3.mlp` speaks of.
pub fn layer_in(name: &str) -> Option<u32> {
    number_at(name).and_then(|(start, end)| name[start..end].parse().ok())
}

/// The name with a `*` in place of the layer's number, so that the same place of all layers has one name.
pub fn generic(name: &str) -> String {
    match number_at(name) {
        Some((start, end)) => format!("{}*{}", &name[..start], &name[end..]),
        None => name.to_owned(),
    }
}

/// Where the layer's number starts and ends.
fn number_at(name: &str) -> Option<(usize, usize)> {
    let mut start = 0;
    let mut previous = "";
    for part in name.split(|c: char| !c.is_ascii_alphanumeric()) {
        let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if is_number && WORDS.contains(&previous) {
            return Some((start, start + part.len()));
        }
        previous = part;
        start += part.len();
        start += name[start..].chars().next().map_or(0, char::len_utf8);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_found_where_names_hold_them() {
        assert_eq!(layer_in("layers_3_attention_query_out"), Some(3));
        assert_eq!(layer_in("model.layers.12.mlp"), Some(12));
        assert_eq!(layer_in("transformer_h_0_attn"), Some(0));
        assert_eq!(layer_in("layers_x_3"), None);
        assert_eq!(layer_in("linear_3"), None);
        assert_eq!(generic("größe/layers_31_out_2"), "größe/layers_*_out_2");
        assert_eq!(generic("head"), "head");
        assert_eq!(layer_in("layers_99999999999"), None);
    }
}
