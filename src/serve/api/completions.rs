//! `/v1/completions`: texts or tokens gone on with, and scored.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

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

/// Tokens that are generated if a request does not say how many, as the interface has it.
const DEFAULT_TOKENS: usize = 16;
/// Most of the likeliest tokens per position.
const MOST_LOGPROBS: usize = 20;

#[derive(Debug, Deserialize)]
struct Body {
    prompt: Option<PromptBody>,
    max_tokens: Option<usize>,
    logprobs: Option<usize>,
    #[serde(default)]
    echo: bool,
    suffix: Option<String>,
    best_of: Option<usize>,
    #[serde(flatten)]
    settings: Settings,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PromptBody {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    ManyIds(Vec<Vec<u32>>),
}

pub(crate) fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Answer {
    Box::pin(async move {
        let limits = shared.limits;
        let body: Body = read_json(request, limits.body, limits.arrival).await?;
        let choices = body.settings.choices()?;
        let tasks = tasks(&body, choices, limits.sequences)?;
        let writer = Writer {
            id: response_id("cmpl"),
            created: now(),
            model: shared.served.model.clone(),
            choices,
            has_logprobs: body.logprobs.is_some(),
            include_usage: body.settings.include_usage(),
            offsets: Vec::new(),
        };
        let answers = shared.submit(tasks)?;
        if body.settings.stream {
            return stream(answers, Box::new(writer)).await;
        }
        let collected = collect_all(answers).await?;
        Ok(document(StatusCode::OK, &writer.whole(&collected)))
    })
}

fn tasks(body: &Body, choices: usize, most: usize) -> Result<Vec<Task>, ApiError> {
    if body.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
        return Err(ApiError::parameter("suffix", "is not supported"));
    }
    if body.best_of.is_some_and(|best| best != choices) {
        return Err(ApiError::parameter("best_of", "is not supported"));
    }
    if body.logprobs.is_some_and(|top| top > MOST_LOGPROBS) {
        return Err(ApiError::parameter("logprobs", format!("at most {MOST_LOGPROBS} are told")));
    }
    if body.max_tokens == Some(0) && !body.echo {
        return Err(ApiError::parameter("max_tokens", "is 0 without echo, so nothing would be answered"));
    }
    let prompts: Vec<TaskPrompt> = match &body.prompt {
        None => return Err(ApiError::parameter("prompt", "is missing")),
        Some(PromptBody::Text(text)) => vec![TaskPrompt::Text(text.clone())],
        Some(PromptBody::Ids(ids)) => vec![TaskPrompt::Ids(ids.clone())],
        Some(PromptBody::Texts(texts)) => texts.iter().cloned().map(TaskPrompt::Text).collect(),
        Some(PromptBody::ManyIds(many)) => many.iter().cloned().map(TaskPrompt::Ids).collect(),
    };
    let count = prompts.len().saturating_mul(choices);
    if count == 0 || count > most {
        return Err(ApiError::parameter(
            "prompt",
            format!("{count} answers are asked for; 1 to {most} are given"),
        ));
    }
    let stops = body.settings.stops()?;
    let task = |(prompt, choice): (&TaskPrompt, usize)| {
        Ok(Task {
            prompt: prompt.clone(),
            max_tokens: Some(body.max_tokens.unwrap_or(DEFAULT_TOKENS)),
            sampling: body.settings.sampling(choice)?,
            stops: stops.clone(),
            logprobs: body.logprobs,
            echo: body.echo,
            ignores_end: body.settings.ignore_eos,
        })
    };
    prompts.iter().flat_map(|prompt| (0..choices).map(move |choice| (prompt, choice))).map(task).collect()
}

/// Writes responses.
struct Writer {
    id: String,
    created: u64,
    model: String,
    /// Answers per prompt.
    choices: usize,
    has_logprobs: bool,
    include_usage: bool,
    /// Characters of each streamed answer so far.
    offsets: Vec<usize>,
}

impl Writer {
    fn whole(&self, answers: &[Collected]) -> Value {
        let choice = |(index, answer): (usize, &Collected)| {
            let tokens = answer.echo.scored.iter().chain(&answer.scored);
            json!({
                "index": index,
                "text": format!("{}{}", answer.echo.text, answer.text),
                "logprobs": self.has_logprobs.then(|| logprobs(tokens, &mut 0)),
                "finish_reason": finish_reason(answer.done.finish),
            })
        };
        let choices: Vec<Value> = answers.iter().enumerate().map(|(i, answer)| choice((i, answer))).collect();
        let ended: Vec<Done> = answers.iter().map(|answer| answer.done).collect();
        let mut document = self.envelope(&choices);
        document["usage"] = usage(&ended, self.choices);
        if let [done] = &ended[..] {
            document["timings"] = timings(done);
        }
        document
    }

    fn envelope(&self, choices: &[Value]) -> Value {
        json!({"id": self.id, "object": "text_completion", "created": self.created, "model": self.model,
            "choices": choices})
    }

    fn chunk(&mut self, index: usize, text: &str, tokens: &[Scored], finish: Option<&str>) -> Value {
        if self.offsets.len() <= index {
            self.offsets.resize(index + 1, 0);
        }
        let logprobs = self.has_logprobs.then(|| logprobs(tokens.iter(), &mut self.offsets[index]));
        self.envelope(&[json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish})])
    }
}

impl Chunks for Writer {
    fn of(&mut self, choice: usize, event: Event) -> Vec<Value> {
        match event {
            Event::Prompt(echo) if echo.text.is_empty() => Vec::new(),
            Event::Prompt(echo) => vec![self.chunk(choice, &echo.text, &echo.scored, None)],
            // Half a character, or what may become a stop text, waits for the next token.
            Event::Token(token) if token.text.is_empty() && token.scored.is_none() => Vec::new(),
            Event::Token(token) => vec![self.chunk(choice, &token.text, token.scored.as_slice(), None)],
            Event::Done(done) => {
                let mut chunk = self.chunk(choice, "", &[], Some(finish_reason(done.finish)));
                chunk["timings"] = timings(&done);
                vec![chunk]
            }
            Event::Failed(error) => vec![error.document()],
        }
    }

    fn last(&mut self, ended: &[Done]) -> Vec<Value> {
        if !self.include_usage {
            return Vec::new();
        }
        let mut document = self.envelope(&[]);
        document["usage"] = usage(ended, self.choices);
        vec![document]
    }
}

/// Log-probabilities as this path writes them; `offset` counts characters.
fn logprobs<'a>(tokens: impl Iterator<Item = &'a Scored>, offset: &mut usize) -> Value {
    let (mut texts, mut own, mut top, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for token in tokens {
        texts.push(token.text.as_str());
        own.push(token.logprob);
        top.push(token.logprob.map(|_| likeliest(token)));
        offsets.push(*offset);
        *offset += token.text.chars().count();
    }
    json!({"tokens": texts, "token_logprobs": own, "top_logprobs": top, "text_offset": offsets})
}

/// The likeliest tokens by their texts. Of tokens with the same text, such as parts of characters, the likeliest counts.
fn likeliest(token: &Scored) -> Map<String, Value> {
    let mut top = Map::new();
    for (text, logprob) in &token.top {
        top.entry(text.clone()).or_insert_with(|| json!(logprob));
    }
    top
}
