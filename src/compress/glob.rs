//! Patterns for the names of weights.

/// Whether a pattern stands for a name: `*` for any characters, `?` for one. Case does not matter, and
/// the dots of a checkpoint's names and the underscores of a program's are the same.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let normal = |text: &str| -> Vec<char> {
        text.chars().map(|c| if c == '.' { '_' } else { c.to_ascii_lowercase() }).collect()
    };
    let (pattern, name) = (normal(pattern), normal(name));
    let (mut p, mut n) = (0, 0);
    let mut retry = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(&c) if c == '?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    (p, n) = (after, from + 1);
                    retry = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_reach_over_anything() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("layers.*.mlp.*", "layers_12_mlp_down_weight", true),
            ("layers.*.mlp.*", "layers_12_attention_q_weight", false),
            ("*head*", "lm_head", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*ab*ab", "xababab", true),
            ("Embed*", "embedding_weight", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
