//! Samples to compare on from a file: running text, or JSON lines.

use serde::Deserialize;
use serde_json::Value;

use crate::generate::Message;

/// Something to compare on.
#[derive(Debug, Clone, PartialEq)]
pub enum Sample {
    /// Text as it is.
    Text(String),
    /// Messages for the chat template.
    Chat(Vec<Message>),
    /// Tokens.
    Ids(Vec<u32>),
}

/// One line of a file; keys that say nothing about the tokens are left alone.
#[derive(Deserialize)]
struct Line {
    text: Option<String>,
    prompt: Option<String>,
    messages: Option<Vec<Turn>>,
    token_ids: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Turn {
    role: String,
    content: String,
}

/// A line that is no sample.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct SampleError {
    line: usize,
    problem: String,
}

/// Reads JSON lines, each with one of `text`, `prompt`, `messages` and `token_ids`. A problem names its line.
pub fn parse_samples(text: &str) -> Result<Vec<Sample>, SampleError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let samples = lines.map(|(index, line)| {
        let wrong = |problem: String| SampleError { line: index + 1, problem };
        let value: Value = serde_json::from_str(line).map_err(|e| wrong(format!("is not JSON: {e}")))?;
        let line: Line = serde_json::from_value(value).map_err(|e| wrong(e.to_string()))?;
        line.sample().map_err(wrong)
    });
    samples.collect()
}

impl Line {
    fn sample(self) -> Result<Sample, String> {
        const KEYS: &str = "`text`, `prompt`, `messages` and `token_ids`";
        let chat = self.messages.map(|turns| {
            Sample::Chat(turns.into_iter().map(|turn| Message::new(&turn.role, turn.content)).collect())
        });
        let texts = [self.text, self.prompt].map(|text| text.map(Sample::Text));
        let mut given = texts.into_iter().chain([chat, self.token_ids.map(Sample::Ids)]).flatten();
        match (given.next(), given.next()) {
            (Some(sample), None) => Ok(sample),
            (None, _) => Err(format!("has none of the keys {KEYS}")),
            (Some(_), Some(_)) => Err(format!("has more than one of the keys {KEYS}")),
        }
    }
}

/// Pieces of up to `length` tokens, `count` at most, evenly spread over all.
pub fn pieces(ids: &[u32], length: usize, count: usize) -> Vec<Vec<u32>> {
    let all: Vec<&[u32]> = ids.chunks(length.max(1)).collect();
    let wanted = count.min(all.len());
    (0..wanted).map(|index| all[index * all.len() / wanted].to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_every_kind() {
        let text = "{\"text\": \"a\", \"source\": 1}\n\n{\"prompt\": \"b\"}\n{\"token_ids\": [1, 2]}\n\
                    {\"messages\": [{\"role\": \"user\", \"content\": \"c\"}]}\n";
        let expected = [
            Sample::Text("a".to_owned()),
            Sample::Text("b".to_owned()),
            Sample::Ids(vec![1, 2]),
            Sample::Chat(vec![Message::new("user", "c")]),
        ];
        assert_eq!(parse_samples(text).unwrap(), expected);
    }

    #[test]
    fn bad_lines_are_named() {
        for (text, expected) in [
            ("{\"text\": \"a\"}\n{", "line 2: is not JSON: EOF"),
            ("\n[1]", "line 2: invalid type: "),
            ("{\"txt\": \"a\"}", "line 1: has none of the keys `text`, `prompt`"),
            ("{\"text\": \"a\", \"prompt\": \"b\"}", "line 1: has more than one of the keys"),
            ("{\"token_ids\": [-1]}", "line 1: invalid value: integer `-1`"),
        ] {
            let problem = parse_samples(text).unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }

    #[test]
    fn pieces_are_spread() {
        let ids: Vec<u32> = (0..10).collect();
        assert_eq!(pieces(&ids, 4, 2), [vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
        assert_eq!(pieces(&ids, 2, 2), [vec![0, 1], vec![4, 5]]);
        assert!(pieces(&[], 4, 2).is_empty() && pieces(&ids, 4, 0).is_empty());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}", length in 0usize..9, count in 0usize..9) {
            let _ = parse_samples(&text);
            let ids: Vec<u32> = text.bytes().map(u32::from).collect();
            let pieces = pieces(&ids, length, count);
            prop_assert!(pieces.len() <= count && pieces.iter().all(|piece| !piece.is_empty()));
        }
    }
}
