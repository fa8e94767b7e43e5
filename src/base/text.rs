//! Text that is safe to show: what comes from a file controls neither a terminal nor the log of a CI job.

/// How GitHub's older workflow commands begin, wherever in a line.
const OLD_COMMAND: &str = "##[";
/// How its present ones begin, at the start of a line.
const COMMAND: &str = "::";

/// Whether a character does something in place of being seen: control characters of both sets, line separators, the
/// marks that change the direction of text, and what XML has no place for.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FFFE}' | '\u{FFFF}'
        )
}

/// Text with such characters escaped, so that none reaches a terminal, a page or a table.
pub fn visible(text: &str) -> String {
    if !text.contains(is_unseen) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\0' | '\t' | '\n' | '\r' => out.extend(c.escape_debug()),
            c if is_unseen(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// The same line by line; line breaks stay.
pub fn visible_lines(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

/// A message of one line, or of one line and indented ones below it. Other line breaks are escaped, since what follows
/// them would look like a message of its own.
pub fn visible_message(text: &str) -> String {
    let mut lines = text.split('\n');
    let mut out = visible(lines.next().unwrap_or_default());
    for line in lines {
        out.push_str(if line.starts_with("  ") { "\n" } else { "\\n" });
        out.push_str(&visible(line));
    }
    out
}

/// Lines in which no workflow command of GitHub is left.
pub fn without_commands(text: &str) -> String {
    let in_line = |line: &str| {
        let line = line.replace(OLD_COMMAND, "#\\u{23}[");
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        match rest.strip_prefix(COMMAND) {
            Some(rest) => format!("{indent}:\\u{{3a}}{rest}"),
            None => line,
        }
    };
    if !text.contains(COMMAND) && !text.contains(OLD_COMMAND) {
        return text.to_owned();
    }
    text.split('\n').map(in_line).collect::<Vec<_>>().join("\n")
}

/// A name from a file in backquotes, escaped, and cut to a length that fits a message.
pub fn quoted(name: &str) -> String {
    const LONGEST: usize = 96;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("`{}…`", visible(&name[..end])),
        None => format!("`{}`", visible(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unseen_characters_are_escaped_and_others_stay() {
        assert_eq!(visible("a\u{1b}[2J\nü"), "a\\u{1b}[2J\\nü");
        assert_eq!(visible("\u{9b}\u{85}\u{7f}\0"), "\\u{9b}\\u{85}\\u{7f}\\0");
        assert_eq!(visible("a\u{202e}b\u{2067}c\u{2028}\u{61c}"), "a\\u{202e}b\\u{2067}c\\u{2028}\\u{61c}");
        assert_eq!(visible("שלום 北京 e\u{301} 👩\u{200d}💻"), "שלום 北京 e\u{301} 👩\u{200d}💻");
        assert_eq!(visible_lines("a\tb\nc\n"), "a\\tb\nc\n");
    }

    #[test]
    fn lines_of_a_message_are_indented() {
        assert_eq!(visible_message("two problems:\n  a\n  b\r"), "two problems:\n  a\n  b\\r");
        assert_eq!(visible_message("x\nerror: y\n::error::z"), "x\\nerror: y\\n::error::z");
    }

    #[test]
    fn workflow_commands_are_broken() {
        let text = "::error::a\n \u{a0}::add-mask::b\nx ##[error]c\nstd::fmt ## [d]";
        assert_eq!(
            without_commands(text),
            ":\\u{3a}error::a\n \u{a0}:\\u{3a}add-mask::b\nx #\\u{23}[error]c\nstd::fmt ## [d]"
        );
        assert_eq!(without_commands("a: b"), "a: b");
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(quoted("a"), "`a`");
        assert_eq!(quoted("a\nb"), "`a\\nb`");
        assert_eq!(quoted(&"é".repeat(200)).chars().count(), 99);
    }
}
