//! The texts of a bundle: its tokenizer, its chat template, the tokens that end an answer.

use std::time::SystemTime;

use serde_json::Value;

use super::chat::{ChatContext, ChatTemplate, Message};
use super::error::{GenerateError, Result};
use super::tokenizer::Tokenizer;
use anemeter_base::advice::Remedy;
use anemeter_convert::bundle::{Bundle, MANIFEST};

/// Longest token of any tokenizer in use, with room to spare; a text with more bytes than this per token of the
/// longest sequence need not be tokenized to know that it is too long.
const LONGEST_TOKEN: usize = 1024;

/// How texts of a bundle are read and written.
#[derive(Debug)]
pub struct Text {
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// Messages to text.
    pub chat: Option<ChatTemplate>,
    /// Tokens that end an answer.
    pub ends: Vec<u32>,
}

/// What a prompt is made from.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Text as it is.
    Raw(&'a str),
    /// Messages, through the chat template.
    Chat(&'a [Message]),
    /// Messages and tools as JSON, through the chat template.
    Tools {
        /// The messages.
        messages: &'a [Value],
        /// The tools.
        tools: &'a [Value],
    },
}

impl Text {
    /// Reads what a bundle has; nothing if it has no tokenizer. `now` is the time that chat templates see.
    pub fn open(bundle: &Bundle, now: Option<SystemTime>) -> Result<Option<Text>> {
        let Some(described) = &bundle.manifest().tokenizer else { return Ok(None) };
        let tokenizer = Tokenizer::open(&bundle.path(&described.file.name))?;
        let token = |id: Option<u32>| id.and_then(|id| tokenizer.token(id)).unwrap_or_default();
        let [bos_token, eos_token] = [described.bos, described.eos.first().copied()].map(token);
        let context = ChatContext { bos_token, eos_token, now };
        let chat = described.chat_template.as_deref();
        let chat = chat.map(|text| ChatTemplate::new(text, bundle.path(MANIFEST), context)).transpose()?;
        Ok(Some(Text { tokenizer, chat, ends: described.eos.clone() }))
    }

    /// The tokens of a prompt for a model that takes up to `longest`.
    pub fn tokens(&self, input: Input<'_>, longest: usize) -> Result<Vec<u32>> {
        match input {
            Input::Raw(text) => {
                check_size(text, longest)?;
                self.tokenizer.encode(text, true)
            }
            Input::Chat(messages) => {
                let chat = self.template(Remedy::RawPrompt)?;
                messages.iter().try_for_each(|message| check_size(&message.content, longest))?;
                self.tokenizer.encode(&chat.render(messages)?, false)
            }
            Input::Tools { messages, tools } => {
                let chat =
                    self.template("export a checkpoint that has one, such as an instruct model".into())?;
                let text = chat.render_with_tools(messages, tools)?;
                check_size(&text, longest)?;
                self.tokenizer.encode(&text, false)
            }
        }
    }

    fn template(&self, remedy: Remedy) -> Result<&ChatTemplate> {
        let missing = || GenerateError::request("the bundle has no chat template").with_help(remedy);
        self.chat.as_ref().ok_or_else(missing)
    }
}

fn check_size(text: &str, longest: usize) -> Result<()> {
    if text.len() <= longest.saturating_mul(LONGEST_TOKEN) {
        return Ok(());
    }
    let problem =
        format!("the prompt has {} bytes, too many for the {longest} tokens of the bundle", text.len());
    Err(GenerateError::request(problem)
        .with_help("shorten it, or export with a longer sequence length or context"))
}
