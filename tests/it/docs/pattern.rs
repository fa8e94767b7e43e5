//! Output as pages show it: `...` for any lines, `[..]` for any text within one.

/// Whether a text is what a page shows. Runs of spaces count as one, since columns are as wide as their widest number.
pub(super) fn matches(shown: &str, text: &str) -> bool {
    let (shown, text) = (normal(shown), normal(text));
    lines(&shown, &text)
}

fn normal(text: &str) -> Vec<String> {
    text.trim_end().lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn lines(shown: &[String], text: &[String]) -> bool {
    match shown.split_first() {
        None => text.is_empty(),
        Some((any, rest)) if any == "..." => (0..=text.len()).any(|from| lines(rest, &text[from..])),
        Some((first, rest)) => {
            text.split_first().is_some_and(|(line, text)| one(first, line) && lines(rest, text))
        }
    }
}

fn one(shown: &str, line: &str) -> bool {
    let Some((before, after)) = shown.split_once("[..]") else { return shown == line };
    let Some(line) = line.strip_prefix(before) else { return false };
    line.char_indices().map(|(at, _)| at).chain([line.len()]).any(|at| one(after, &line[at..]))
}

#[test]
fn wildcards_stand_for_lines_and_for_text() {
    for (shown, text, expected) in [
        ("a\nb", "a\nb\n", true),
        ("a", "a\nb", false),
        ("a\n...", "a", true),
        ("a\n...\nz", "a\nb\nc\nz\n", true),
        ("...\nz", "a\nb", false),
        ("it took [..] ms", "it took   3.5 ms", true),
        ("[..]: x [..]", "a: x y", true),
        ("[..]: x", "a: y", false),
        ("", "a", false),
    ] {
        assert_eq!(matches(shown, text), expected, "{shown:?} {text:?}");
    }
}
