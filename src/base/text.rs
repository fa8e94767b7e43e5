//! Text that is safe to show.

/// Text with control characters escaped, so that none reaches a terminal, a page or a table.
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() }).collect()
}

/// The same line by line; line breaks stay.
pub fn visible_lines(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

/// A name from a file in backquotes, cut to a length that fits a message.
pub fn quoted(name: &str) -> String {
    const LONGEST: usize = 96;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("`{}…`", &name[..end]),
        None => format!("`{name}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_others_stay() {
        assert_eq!(visible("a\u{1b}[2J\nü"), "a\\u{1b}[2J\\nü");
        assert_eq!(visible_lines("a\tb\nc\n"), "a\\tb\nc\n");
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(quoted("a"), "`a`");
        assert_eq!(quoted(&"é".repeat(200)).chars().count(), 99);
    }
}
