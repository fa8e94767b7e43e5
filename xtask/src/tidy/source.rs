//! Rust source reduced to its code: comments and the content of literals become blanks.

/// The code of a source text. Every line keeps its number and every character its column.
pub(super) fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skipped(&chars, at);
        if end > at {
            out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            // A whole word at a time, so that the `r` or `b` at the end of a name starts no literal.
            let end = word_end(&chars, at).max(at + 1);
            out.extend(&chars[at..end]);
            at = end;
        }
    }
    out
}

/// The identifiers and keywords of a code text, with their line numbers.
pub(super) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(index, line)| {
        line.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()).map(move |word| (index + 1, word))
    })
}

pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn word_end(chars: &[char], at: usize) -> usize {
    at + chars[at..].iter().take_while(|&&c| is_word(c)).count()
}

/// Where the comment or literal that starts at `at` ends; `at` itself if none starts there.
fn skipped(chars: &[char], at: usize) -> usize {
    // Most characters start nothing, and every file is read so.
    if !matches!(chars[at], '/' | '"' | '\'' | 'b' | 'c' | 'r') {
        return at;
    }
    let starts = |text: &str| text.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    if starts("//") {
        return at + chars[at..].iter().take_while(|&&c| c != '\n').count();
    }
    if starts("/*") {
        return block_comment_end(chars, at);
    }
    if let Some(end) = raw_string_end(chars, at) {
        return end;
    }
    let quote = at + usize::from(matches!(chars[at], 'b' | 'c'));
    match chars.get(quote) {
        Some('"') => quoted_end(chars, quote, '"'),
        Some('\'') if is_char_literal(chars, quote) => quoted_end(chars, quote, '\''),
        _ => at,
    }
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i
}

fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let r = at + usize::from(matches!(chars[at], 'b' | 'c'));
    if chars.get(r) != Some(&'r') {
        return None;
    }
    let hashes = chars[r + 1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(r + 1 + hashes) != Some(&'"') {
        return None;
    }
    let body = r + 2 + hashes;
    let closes = |i: usize| {
        chars[i] == '"' && chars[i + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes
    };
    Some((body..chars.len()).find(|&i| closes(i)).map_or(chars.len(), |i| i + 1 + hashes))
}

fn quoted_end(chars: &[char], open: usize, quote: char) -> usize {
    let mut i = open + 1;
    while i < chars.len() && chars[i] != quote {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

/// Tells `'a'` from the lifetime `'a`.
fn is_char_literal(chars: &[char], quote: usize) -> bool {
    chars.get(quote + 1) == Some(&'\\') || chars.get(quote + 2) == Some(&'\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squeezed(text: &str) -> String {
        code(text).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_blank() {
        assert_eq!(squeezed("a /* b /* c */ d */ e // f"), "a e");
        assert_eq!(squeezed(r#"a("b\"c", 'd', '\'', b"e", b'f') g"#), "a( , , , , ) g");
        assert_eq!(squeezed("a r#\"b\"c\"# d r\"e\" f"), "a d f");
        assert_eq!(squeezed("//! crate::x\nuse y;"), "use y;");
    }

    #[test]
    fn lifetimes_and_names_are_code() {
        assert_eq!(squeezed("fn f<'a>(x: &'a str, bar: T)"), "fn f<'a>(x: &'a str, bar: T)");
        assert_eq!(squeezed("for r in b {}"), "for r in b {}");
    }

    #[test]
    fn lines_keep_their_numbers() {
        let text = code("/* 1\n2 */ a\n\"3\n4\" b");
        assert_eq!(words(&text).collect::<Vec<_>>(), [(2, "a"), (4, "b")]);
    }
}
