//! Text that is safe to show.

/// Text with control characters escaped, so that none reaches a terminal, a page or a table.
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() }).collect()
}

/// The same line by line; line breaks stay.
pub fn visible_lines(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_others_stay() {
        assert_eq!(visible("a\u{1b}[2J\nü"), "a\\u{1b}[2J\\nü");
        assert_eq!(visible_lines("a\tb\nc\n"), "a\\tb\nc\n");
    }
}
