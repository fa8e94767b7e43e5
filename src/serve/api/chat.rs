//! `/v1/chat/completions`: conversations, through the chat template, with tools.

use std::sync::Arc;

use anemeter_harness::eval::find_calls;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::collect::{Collected, collect_all};
use super::settings::Settings;
use super::stream::{Chunks, stream};
use super::{finish_reason, now, response_id, timings, usage};
use crate::body::{document, json as read_json};
use crate::error::ApiError;
use crate::event::{Done, Event};
use crate::logprobs::Scored;
use crate::routes::Answer;
use crate::server::Shared;
use crate::task::{Task, TaskPrompt};

/// Most of the likeliest tokens per position.
const MOST_LOGPROBS: usize = 20;

#[derive(Debug, Deserialize)]
struct Body {
    messages: Vec<Value>,
    #[serde(default)]
    tools: Vec<Value>,
    tool_choice: Option<Value>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    #[serde(default)]
    logprobs: bool,
    top_logprobs: Option<usize>,
    #[serde(flatten)]
    settings: Settings,
}

pub(crate) fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Answer {
    Box::pin(async move {
        let limits = shared.limits;
        let body: Body = read_json(request, limits.body, limits.arrival).await?;
        let choices = body.settings.choices()?;
        if choices > limits.sequences {
            return Err(ApiError::parameter(
                "n",
                format!("{choices} answers are asked for; 1 to {} are given", limits.sequences),
            ));
        }
        let tasks =
            (0..choices).map(|choice| task(&body, choice)).collect::<Result<Vec<Task>, ApiError>>()?;
        let has_tools = matches!(&tasks[0].prompt, TaskPrompt::Chat { tools, .. } if !tools.is_empty());
        let writer = Writer {
            id: response_id("chatcmpl"),
            created: now(),
            model: shared.served.model.clone(),
            choices,
            has_tools,
            has_logprobs: body.logprobs,
            include_usage: body.settings.include_usage(),
            held: vec![String::new(); choices],
        };
        let answers = shared.submit(tasks)?;
        if body.settings.stream {
            return stream(answers, Box::new(writer)).await;
        }
        let collected = collect_all(answers).await?;
        Ok(document(StatusCode::OK, &writer.whole(&collected)))
    })
}

fn task(body: &Body, choice: usize) -> Result<Task, ApiError> {
    let top = body.top_logprobs.unwrap_or(0);
    if top > MOST_LOGPROBS {
        return Err(ApiError::parameter("top_logprobs", format!("at most {MOST_LOGPROBS} are told")));
    }
    let tools = match body.tool_choice.as_ref().map(|choice| choice.as_str()) {
        None | Some(Some("auto")) => body.tools.clone(),
        Some(Some("none")) => Vec::new(),
        Some(_) => return Err(ApiError::parameter("tool_choice", "only `auto` and `none` are supported")),
    };
    let max_tokens = body.max_completion_tokens.or(body.max_tokens);
    if max_tokens == Some(0) {
        return Err(ApiError::parameter("max_tokens", "is 0, should be 1 or more"));
    }
    if body.messages.is_empty() {
        return Err(ApiError::parameter("messages", "there are none"));
    }
    let messages = body.messages.iter().map(with_plain_content).collect::<Result<_, ApiError>>()?;
    Ok(Task {
        prompt: TaskPrompt::Chat { messages, tools },
        max_tokens,
        sampling: body.settings.sampling(choice)?,
        stops: body.settings.stops()?,
        logprobs: body.logprobs.then_some(top),
        echo: false,
        ignores_end: body.settings.ignore_eos,
    })
}

/// A message whose content is one text; templates expect that. Parts of text are joined, others are refused.
fn with_plain_content(message: &Value) -> Result<Value, ApiError> {
    if !message.get("role").is_some_and(Value::is_string) {
        return Err(ApiError::parameter("messages", "a message has no role"));
    }
    let Some(Value::Array(parts)) = message.get("content") else { return Ok(message.clone()) };
    let text = |part: &Value| {
        let text = part.get("text").and_then(Value::as_str);
        text.map(str::to_owned)
            .ok_or_else(|| ApiError::parameter("messages", "only parts of text are supported"))
    };
    let texts = parts.iter().map(text).collect::<Result<Vec<String>, ApiError>>()?;
    let mut plain = message.clone();
    plain["content"] = Value::String(texts.concat());
    Ok(plain)
}

/// Writes responses.
struct Writer {
    id: String,
    created: u64,
    model: String,
    choices: usize,
    has_tools: bool,
    has_logprobs: bool,
    include_usage: bool,
    /// The text of each streamed answer that may become a call.
    held: Vec<String>,
}

impl Writer {
    fn whole(&self, answers: &[Collected]) -> Value {
        let choice = |(index, answer): (usize, &Collected)| {
            let (message, finish) = self.message(index, &answer.text, answer.done);
            let logprobs = self.has_logprobs.then(|| logprobs(&answer.scored));
            json!({"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish})
        };
        let choices: Vec<Value> = answers.iter().enumerate().map(|(i, answer)| choice((i, answer))).collect();
        let ended: Vec<Done> = answers.iter().map(|answer| answer.done).collect();
        let mut document = self.envelope("chat.completion", &choices);
        document["usage"] = usage(&ended, self.choices);
        if let [done] = &ended[..] {
            document["timings"] = timings(done);
        }
        document
    }

    /// The assistant's message, with calls if tools were on offer and the text has any; why it ended.
    fn message(&self, index: usize, text: &str, done: Done) -> (Value, &'static str) {
        let mut message = json!({"role": "assistant", "content": text});
        match self.calls(index, text) {
            Some((before, calls)) => {
                message["content"] = if before.is_empty() { Value::Null } else { json!(before) };
                message["tool_calls"] = Value::Array(calls);
                (message, "tool_calls")
            }
            None => (message, finish_reason(done.finish)),
        }
    }

    fn calls<'t>(&self, index: usize, text: &'t str) -> Option<(&'t str, Vec<Value>)> {
        let found = if self.has_tools { find_calls(text) } else { Vec::new() };
        let before = text[..found.iter().map(|found| found.begin).min()?].trim_end();
        let calls = found.into_iter().filter_map(|found| found.call).enumerate().map(|(at, call)| {
            let arguments = Value::Object(call.arguments).to_string();
            json!({"index": at, "id": format!("call_{}_{index}_{at}", self.id), "type": "function",
                "function": {"name": call.name, "arguments": arguments}})
        });
        let calls: Vec<Value> = calls.collect();
        (!calls.is_empty()).then_some((before, calls))
    }

    fn envelope(&self, object: &str, choices: &[Value]) -> Value {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices})
    }

    fn chunk(&self, index: usize, delta: &Value, scored: Option<&Scored>, finish: Option<&str>) -> Value {
        let logprobs = scored.map(|token| logprobs(std::slice::from_ref(token)));
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        self.envelope("chat.completion.chunk", &[choice])
    }

    /// The end of a streamed answer. Where tools are on offer its text was held until now, since it may be a call.
    fn end(&mut self, choice: usize, done: Done) -> Vec<Value> {
        let mut chunks = Vec::new();
        let mut finish = finish_reason(done.finish);
        if self.has_tools {
            let text = std::mem::take(&mut self.held[choice]);
            let (mut message, reason) = self.message(choice, &text, done);
            finish = reason;
            message.as_object_mut().map(|message| message.remove("role"));
            chunks.push(self.chunk(choice, &message, None, None));
        }
        let mut last = self.chunk(choice, &json!({}), None, Some(finish));
        last["timings"] = timings(&done);
        chunks.push(last);
        chunks
    }
}

impl Chunks for Writer {
    fn of(&mut self, choice: usize, event: Event) -> Vec<Value> {
        match event {
            Event::Prompt(_) => {
                vec![self.chunk(choice, &json!({"role": "assistant", "content": ""}), None, None)]
            }
            Event::Token(token) if self.has_tools => {
                self.held[choice] += &token.text;
                let scored = token.scored.as_ref();
                scored.map(|scored| self.chunk(choice, &json!({}), Some(scored), None)).into_iter().collect()
            }
            Event::Token(token) if token.text.is_empty() && token.scored.is_none() => Vec::new(),
            Event::Token(token) => {
                vec![self.chunk(choice, &json!({"content": token.text}), token.scored.as_ref(), None)]
            }
            Event::Done(done) => self.end(choice, done),
            Event::Failed(error) => vec![error.document()],
        }
    }

    fn last(&mut self, ended: &[Done]) -> Vec<Value> {
        if !self.include_usage {
            return Vec::new();
        }
        let mut document = self.envelope("chat.completion.chunk", &[]);
        document["usage"] = usage(ended, self.choices);
        vec![document]
    }
}

/// Log-probabilities as this path writes them.
fn logprobs(tokens: &[Scored]) -> Value {
    let entry = |text: &str, logprob: Option<f64>| json!({"token": text, "logprob": logprob, "bytes": text.as_bytes()});
    let token = |scored: &Scored| {
        let top: Vec<Value> = scored.top.iter().map(|(text, logprob)| entry(text, Some(*logprob))).collect();
        let mut own = entry(&scored.text, scored.logprob);
        own["top_logprobs"] = Value::Array(top);
        own
    };
    json!({"content": tokens.iter().map(token).collect::<Vec<Value>>()})
}
