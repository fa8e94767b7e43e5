//! A chat template of any text, on a conversation.
#![no_main]

use anemeter::generate::{ChatContext, ChatTemplate, Message};

#[global_allocator]
static ALLOCATOR: anemeter::bounded::Allocator = anemeter::bounded::Allocator;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let context = ChatContext { bos_token: "<s>".to_owned(), ..ChatContext::default() };
    let Ok(template) = ChatTemplate::new(text, "export.json", context) else { return };
    let messages = [Message::new("system", "be <|brief|>"), Message::new("user", "a\n\u{1b}[2J")];
    let _ = template.render(&messages);
});
