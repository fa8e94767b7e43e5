//! Which of several words is nearest to a misspelt one.

/// The candidate with the fewest edits from `word`, the first of several.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<(&'a str, usize)> {
    let scored = candidates.into_iter().map(|candidate| (candidate, distance(word, candidate)));
    scored.min_by_key(|&(_, distance)| distance)
}

/// Insertions, deletions and replacements of characters, regardless of case, that make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().flat_map(char::to_lowercase).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let cases = [
            ("kitten", "sitting", 3),
            ("", "abc", 3),
            ("Llama", "llama", 0),
            ("qwen3", "qwen2", 1),
            ("ab", "ba", 2),
        ];
        for (a, b, expected) in cases {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
        assert_eq!(nearest("mistrel", ["llama", "mistral"]), Some(("mistral", 1)));
        assert_eq!(nearest("x", []), None);
    }
}
