//! Chat templates against what Hugging Face's `apply_chat_template` gives.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Cases {
    templates: BTreeMap<String, String>,
    conversations: BTreeMap<String, Vec<(String, String)>>,
    expected: BTreeMap<String, String>,
}

fn template(text: &str) -> Result<ChatTemplate> {
    let context = ChatContext {
        bos_token: "<bos>".to_owned(),
        eos_token: "<eos>".to_owned(),
        now: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)),
    };
    ChatTemplate::new(text, "b/export.json", context)
}

#[test]
fn templates_render_as_in_transformers() {
    let cases: Cases = serde_json::from_str(include_str!("testdata/chat.json")).unwrap();
    for (name, text) in &cases.templates {
        let template = template(text).unwrap();
        for (conversation, messages) in &cases.conversations {
            let messages: Vec<Message> =
                messages.iter().map(|(role, content)| Message::new(role, content.as_str())).collect();
            let expected = &cases.expected[&format!("{name}_{conversation}")];
            assert_eq!(&template.render(&messages).unwrap(), expected, "{name}, {conversation}");
        }
    }
}

#[test]
fn what_a_template_raises_is_said() {
    let cases: Cases = serde_json::from_str(include_str!("testdata/chat.json")).unwrap();
    let gemma = template(&cases.templates["gemma"]).unwrap();
    let error = gemma.render(&[Message::new("assistant", "I begin")]).unwrap_err();
    assert_eq!(error.to_string(), "chat template: line 13: roles must take turns");
}

#[test]
fn templates_tell_the_date() {
    let dated = template("{{ strftime_now('%d %b %Y') }}{{ eos_token }}").unwrap();
    assert_eq!(dated.render(&[]).unwrap(), "02 Jan 1970<eos>");
}

#[test]
fn broken_and_endless_templates_are_refused() {
    let error = template("a\n{% if %}").unwrap_err().to_string();
    assert!(error.starts_with("b/export.json: is not a chat template: line 2: "), "{error}");
    let endless =
        template("{% for i in range(10000) %}{% for j in range(10000) %}x{% endfor %}{% endfor %}").unwrap();
    assert_eq!(endless.render(&[]).unwrap_err().to_string(), "chat template: line 1: engine ran out of fuel");
    let deep = template(&"(".repeat(100_000).replacen('(', "{{ (", 1)).unwrap_err().to_string();
    assert!(deep.starts_with("b/export.json: is not a chat template: "), "{deep}");
}

#[test]
fn messages_are_text_and_never_code() {
    let echo = template("{{ messages[0].content }}").unwrap();
    for text in ["{{ 7 * 7 }}", "{% endfor %}", "<script>&amp;", "\u{0}\u{1b}[2J"] {
        assert_eq!(echo.render(&[Message::new("user", text)]).unwrap(), text);
    }
    let long = "{% raw %}<|im_end|>".repeat(500_000);
    assert_eq!(echo.render(&[Message::new("user", long.as_str())]).unwrap().len(), long.len());
}
