//! Calls in the text of an answer, in the formats that models are trained to write.

mod bare;
mod function_tag;
mod gemma;
mod mistral;
mod named_line;
mod pythonic;
mod tagged;

use serde_json::Value;

use super::Call;

/// A call in a text, or what looks like one.
#[derive(Debug, Clone, PartialEq)]
pub struct CallMatch {
    /// The byte at which it begins, markers included.
    pub begin: usize,
    /// The call; `None` if it cannot be read.
    pub call: Option<Call>,
}

/// A way to write calls.
struct Format {
    #[cfg_attr(not(test), expect(dead_code, reason = "names a format in tests"))]
    name: &'static str,
    find: fn(&str) -> Vec<CallMatch>,
}

/// The most particular first.
const FORMATS: &[Format] = &[
    mistral::FORMAT,
    function_tag::FORMAT,
    gemma::FORMAT,
    tagged::FORMAT,
    pythonic::FORMAT,
    named_line::FORMAT,
    bare::FORMAT,
];

/// The calls of an answer in order. Of several formats the first with a call that can be read counts, or else the
/// first with anything that looks like one.
pub fn find_calls(text: &str) -> Vec<CallMatch> {
    let found: Vec<Vec<CallMatch>> = FORMATS.iter().map(|format| (format.find)(text)).collect();
    let readable = found.iter().find(|found| found.iter().any(|found| found.call.is_some()));
    readable.or_else(|| found.iter().find(|found| !found.is_empty())).cloned().unwrap_or_default()
}

/// The JSON value that a text begins with, and the bytes that it takes.
fn json_at(text: &str) -> Option<(Value, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset()))
}

/// Where each marker begins and what follows it.
fn after_each<'t>(text: &'t str, marker: &'static str) -> impl Iterator<Item = (usize, &'t str)> {
    text.match_indices(marker).map(move |(begin, _)| (begin, &text[begin + marker.len()..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn names(text: &str) -> Vec<Option<String>> {
        find_calls(text).into_iter().map(|found| found.call.map(|call| call.name)).collect()
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FORMATS.len());
    }

    #[test]
    fn the_usual_formats() {
        let expected = json!({"city": "Oslo", "days": 3});
        for text in [
            "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n</tool_call>",
            "<tool_call>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}]</tool_call>",
            "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}]<|/tool_call|>",
            "<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 3}}",
            "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 3}}",
            "```json\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n```",
            "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}]",
            "[TOOL_CALLS]weather[ARGS]{\"city\": \"Oslo\", \"days\": 3}",
            "<function=weather>{\"city\": \"Oslo\", \"days\": 3}</function>",
            "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
            "<|tool_call>call:weather{city:<|\"|>Oslo<|\"|>,days:3}<tool_call|>",
            "<start_function_call>call:weather{city:<escape>Oslo<escape>,days:3}<end_function_call>",
            "[weather(city=\"Oslo\", days=3)]",
            "```tool_code\nweather(city='Oslo', days=3)\n```",
            "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 3}}\n]<|END_ACTION|>",
            "<function_calls>\nweather(city=\"Oslo\", days=3)\n</function_calls>",
            "<|tool_call_start|>[weather(city=\"Oslo\", days=3)]<|tool_call_end|>",
            "weather\n{\"city\": \"Oslo\", \"days\": 3}",
            "Let me see. <tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}",
        ] {
            let found = find_calls(text);
            let call = found.first().and_then(|found| found.call.as_ref());
            let call = call.unwrap_or_else(|| panic!("{text}: {found:?}"));
            assert_eq!((found.len(), call.name.as_str()), (1, "weather"), "{text}");
            assert_eq!(Value::Object(call.arguments.clone()), expected, "{text}");
            assert_eq!(found[0].begin, text.strip_prefix("Let me see. ").map_or(0, |_| 12), "{text}");
        }
    }

    #[test]
    fn several_calls_none_and_broken_ones() {
        let two = "<tool_call>{\"name\": \"a\"}</tool_call>\n<tool_call>{\"name\": \"b\"}</tool_call>";
        assert_eq!(names(two), [Some("a".to_owned()), Some("b".to_owned())]);
        assert_eq!(names("[a(), b(x=[1, {'y': None}])]"), [Some("a".to_owned()), Some("b".to_owned())]);
        assert!(names("It is sunny in Oslo (mostly), and f(x) = 2.").is_empty());
        assert!(names("It is\n{\"city\": \"Oslo\"}").is_empty(), "a sentence is no name");
        assert!(names("").is_empty() && names("{\"temperature\": 3}").is_empty());
        assert_eq!(names("<tool_call>{\"name\": \"a\", \"argu"), [None]);
        assert_eq!(names("<tool_call>weather</tool_call> or {\"name\": \"b\"}"), [Some("b".to_owned())]);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(<tool_call>|<\\|tool_call>call:f\\{|<\\|\"\\|>|[TOOL_CALLS]|\\[|\\{|\"name\"|:|f\\(|<function=|<parameter=|>|é|.){0,40}") {
            for found in find_calls(&text) {
                prop_assert!(text.is_char_boundary(found.begin));
            }
        }
    }
}
