//! Chat templates: messages become the text a model was trained on.
//!
//! Templates are Jinja as Hugging Face's `apply_chat_template` runs them: blocks trimmed, Python's methods and way of
//! printing, `raise_exception`, `strftime_now`, its own `tojson`. A template is not trusted: it sees nothing
//! but its messages, and its work is bounded.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, context, escape_formatter};
use serde::Serialize;
use serde_json::Value as Json;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

use anemeter_base::bounded::{Budget, bounded};

use super::error::{GenerateError, Result};

/// Instructions a template may execute.
const FUEL: u64 = 2_000_000;
/// What it may take besides.
const BUDGET: Budget = Budget { memory: 256 << 20, time: Duration::from_secs(10) };
/// Bytes of a template; the longest in use have 30,000.
const LONGEST_TEMPLATE: usize = 1 << 20;
/// Bytes of what it may give.
const LONGEST_TEXT: usize = 64 << 20;
const NAME: &str = "chat_template";

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Its text.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: &str, content: impl Into<String>) -> Message {
        Message { role: role.to_owned(), content: content.into() }
    }
}

/// What templates may ask for besides messages.
#[derive(Debug, Clone, Default)]
pub struct ChatContext {
    /// Text of the token that begins a text.
    pub bos_token: String,
    /// Text of the token that ends a text.
    pub eos_token: String,
    /// The time of `strftime_now`, which is written as UTC; the epoch if none is given.
    pub now: Option<SystemTime>,
}

/// A chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
    context: ChatContext,
    takes_tools: bool,
}

impl ChatTemplate {
    /// Parses a template; errors name the path.
    pub fn new(text: &str, path: impl Into<PathBuf>, context: ChatContext) -> Result<ChatTemplate> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(python_format);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        let now = context.now.unwrap_or(SystemTime::UNIX_EPOCH);
        environment
            .add_function("strftime_now", move |format: String| anemeter_base::time::strftime(now, &format));
        let refused =
            |problem: String| GenerateError::file(path, format!("is not a chat template: {problem}"));
        if text.len() > LONGEST_TEMPLATE {
            return Err(refused(format!("it has {} bytes, at most {LONGEST_TEMPLATE} are read", text.len())));
        }
        let takes_tools = text.contains("tools");
        let text = without_generation_tags(text);
        let parsed = bounded(BUDGET, move || {
            let parsed = environment.add_template_owned(NAME, text).map_err(|e| describe(&e));
            parsed.map(|()| environment)
        });
        let environment = match parsed {
            Ok(parsed) => parsed,
            Err(exceeded) => Err(format!("reading it {exceeded}")),
        };
        Ok(ChatTemplate { environment: Arc::new(environment.map_err(refused)?), context, takes_tools })
    }

    /// Whether it says anything about tools.
    pub fn takes_tools(&self) -> bool {
        self.takes_tools
    }

    /// The text of a conversation, ready for the assistant's answer.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        self.render_any(messages, None)
    }

    /// The same of messages as JSON, with tools on offer.
    pub fn render_with_tools(&self, messages: &[Json], tools: &[Json]) -> Result<String> {
        self.render_any(messages, Some(tools).filter(|tools| !tools.is_empty()))
    }

    fn render_any<M: Serialize>(&self, messages: &[M], tools: Option<&[Json]>) -> Result<String> {
        let context = context! {
            messages => messages,
            tools => tools,
            bos_token => self.context.bos_token,
            eos_token => self.context.eos_token,
            add_generation_prompt => true,
        };
        let environment = self.environment.clone();
        let rendered = bounded(BUDGET, move || {
            let template = environment.get_template(NAME);
            template.and_then(|template| template.render(context)).map_err(|e| describe(&e))
        });
        let text = match rendered {
            Ok(rendered) => rendered.map_err(GenerateError::Template)?,
            Err(exceeded) => return Err(GenerateError::Template(exceeded.to_string())),
        };
        if text.len() > LONGEST_TEXT {
            let problem = format!("gives {} bytes, at most {LONGEST_TEXT} are taken", text.len());
            return Err(GenerateError::Template(problem));
        }
        Ok(text)
    }
}

/// The message and the line, without the template's text.
fn describe(error: &Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
    match error.line() {
        Some(line) => format!("line {line}: {detail}"),
        None => detail,
    }
}

/// Templates for training mark what an assistant said with tags of their own, which render nothing.
fn without_generation_tags(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tag, after)) = next_tag(rest) {
        out.push_str(before);
        match tag.trim_matches(|c: char| matches!(c, '-' | '+') || c.is_whitespace()) {
            "generation" => out.push_str(&format!("{{%{}%}}", tag.replace("generation", "if true"))),
            "endgeneration" => out.push_str(&format!("{{%{}%}}", tag.replace("endgeneration", "endif"))),
            _ => out.push_str(&format!("{{%{tag}%}}")),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

fn next_tag(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("{%")?;
    let (tag, after) = rest.split_once("%}")?;
    Some((before, tag, after))
}

fn python_format(out: &mut Output<'_>, state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Bool if value.is_true() => out.write_str("True").map_err(Error::from),
        ValueKind::Bool => out.write_str("False").map_err(Error::from),
        ValueKind::None => out.write_str("None").map_err(Error::from),
        _ => escape_formatter(out, state, value),
    }
}

/// `tojson` as Python's `json.dumps` writes it, with `indent` as its only option.
#[expect(clippy::needless_pass_by_value, reason = "filters take their options by value")]
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        Some(width) => {
            let spaces = " ".repeat(width.min(16));
            let formatter = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, OneLine(CompactFormatter))),
    };
    written.map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    String::from_utf8(out)
        .map(Value::from_safe_string)
        .map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))
}

/// A space after each comma and colon.
struct OneLine(CompactFormatter);

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        self.0.write_string_fragment(writer, text)
    }
}

#[cfg(test)]
#[path = "chat_tests.rs"]
mod tests;
