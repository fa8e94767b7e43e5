//! A session's thread: takes tasks from the queue and works on them one after the other.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use anemeter_base::contain::{Panicked, contained};
use anemeter_harness::generate::{
    Finish, GenerateError, Generator, Input, Prompt, Request, SampledToken, Text, TextStream,
};
use tokio::sync::mpsc::UnboundedSender;

use crate::error::ApiError;
use crate::event::{Done, Echo, Event, Times, Token};
use crate::logprobs::Scored;
use crate::metrics::Metrics;
use crate::queue::{Queue, Queued};
use crate::stop_text::StopText;
use crate::task::{Task, TaskPrompt};

/// What breaks off the scoring of a prompt; nobody is left to read it.
const GONE: &str = "the client has left";

/// Works until the queue is closed, or until an answer panics: the generator is not to be used after that.
pub(crate) fn work(mut generator: Generator, queue: &Queue, metrics: &Metrics) -> Result<(), Panicked> {
    while let Some(queued) = queue.next() {
        if queued.events.is_closed() {
            metrics.cancelled();
            continue;
        }
        let _running = metrics.running();
        let events = queued.events.clone();
        let (answered, panicked) =
            match contained(|| Answering::new(&mut generator, queued).and_then(Answering::run)) {
                Ok(answered) => (answered, None),
                Err(panic) => (Err(ApiError::internal(&panic)), Some(panic)),
            };
        match answered {
            // A figure of an answer that nobody waited for is none of the server's.
            Ok(done) if done.finish == Finish::Cancelled => metrics.cancelled(),
            Ok(done) => match events.send(Event::Done(done)) {
                Ok(()) => metrics.answered(&done),
                Err(_) => metrics.cancelled(),
            },
            // Nobody listens any more where the client has left.
            Err(error) => drop(events.send(Event::Failed(error))),
        }
        if let Some(panic) = panicked {
            return Err(panic);
        }
    }
    Ok(())
}

/// A task being worked on.
struct Answering<'a> {
    generator: &'a mut Generator,
    text: Option<Arc<Text>>,
    task: Task,
    prompt: Prompt,
    events: UnboundedSender<Event>,
    arrived: Instant,
    began: Instant,
}

impl<'a> Answering<'a> {
    fn new(generator: &'a mut Generator, queued: Queued) -> Result<Answering<'a>, ApiError> {
        let began = Instant::now();
        let Queued { task, events, arrived } = queued;
        let prompt = match &task.prompt {
            TaskPrompt::Ids(ids) => Prompt { ids: ids.clone(), ..Prompt::default() },
            TaskPrompt::Text(text) => generator.prompt(Input::Raw(text))?,
            TaskPrompt::Chat { messages, tools } => generator.prompt(Input::Tools { messages, tools })?,
        };
        check_length(generator, &prompt.ids)?;
        let text = generator.text().cloned();
        Ok(Answering { generator, text, task, prompt, events, arrived, began })
    }

    fn run(mut self) -> Result<Done, ApiError> {
        let echo = if self.task.echo { self.echo()? } else { Some(Echo::default()) };
        let is_heard = echo.is_some_and(|echo| self.events.send(Event::Prompt(echo)).is_ok());
        match self.task.max_tokens {
            _ if !is_heard => Ok(self.done(Finish::Cancelled, 0, None)),
            Some(0) => Ok(self.done(Finish::Length, 0, None)),
            _ => self.generate(),
        }
    }

    /// The prompt again, each of its tokens scored by those before it; nothing if the client left meanwhile.
    fn echo(&mut self) -> Result<Option<Echo>, ApiError> {
        let ids = &self.prompt.ids;
        let tokenizer = self.text.as_deref().map(|text| &text.tokenizer);
        let text = match (&self.task.prompt, tokenizer) {
            (TaskPrompt::Text(text), _) => text.clone(),
            (_, Some(tokenizer)) => tokenizer.decode_all(ids)?,
            (_, None) => ids.iter().map(|id| format!("<{id}>")).collect(),
        };
        let Some(top) = self.task.logprobs else { return Ok(Some(Echo { text, scored: Vec::new() })) };
        let mut tokens = vec![Scored::first(ids[0], tokenizer)];
        let given = &ids[..ids.len() - 1];
        if given.is_empty() {
            return Ok(Some(Echo { text, scored: tokens }));
        }
        let (events, driver) = (&self.events, self.generator.driver_mut());
        let mut has_left = false;
        let scored = driver.teacher_force(given, 1, None, &mut |position, logits| {
            has_left = events.is_closed();
            if has_left {
                return Err(GenerateError::Request { problem: GONE.to_owned(), remedy: None });
            }
            tokens.push(Scored::by_logits(ids[position + 1], logits, top, tokenizer));
            Ok(())
        });
        match scored {
            Err(_) if has_left => Ok(None),
            scored => scored.map(|()| Some(Echo { text, scored: tokens })).map_err(ApiError::from),
        }
    }

    fn generate(self) -> Result<Done, ApiError> {
        let ends = match &self.text {
            Some(text) if !self.task.ignores_end => text.ends.clone(),
            _ => Vec::new(),
        };
        let request = Request {
            prompts: vec![self.prompt.clone()],
            max_tokens: self.task.max_tokens.unwrap_or(usize::MAX),
            sampling: self.task.sampling.clone(),
            ends,
            length: None,
            continues: false,
            top_logits: 0,
        };
        let tokenizer = self.text.as_deref().map(|text| &text.tokenizer);
        let mut writing = Writing {
            stream: tokenizer.map(|tokenizer| tokenizer.stream()),
            stop: StopText::new(self.task.stops.clone()),
            has_stopped: false,
            first: None,
        };
        let (events, logprobs) = (&self.events, self.task.logprobs);
        let answer = self.generator.generate_with_logits(&request, &mut |picked, logits| {
            writing.first.get_or_insert_with(Instant::now);
            if picked.sequence > 0 {
                return Ok(ControlFlow::Continue(()));
            }
            let text = match request.ends.contains(&picked.id) {
                true => String::new(),
                false => writing.push(picked)?,
            };
            let scored = logprobs.map(|top| Scored::by_logits(picked.id, logits, top, tokenizer));
            let has_left = events.send(Event::Token(Token { text, scored })).is_err();
            Ok(if has_left || writing.has_stopped {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        let sequence = &answer.sequences[0];
        let rest = writing.finish()?;
        if !rest.is_empty() {
            // Whether anybody still listens is seen by the caller.
            let _ = self.events.send(Event::Token(Token { text: rest, scored: None }));
        }
        let finish = if writing.has_stopped { Finish::Stop } else { sequence.finish };
        Ok(self.done(finish, sequence.ids.len(), writing.first))
    }

    fn done(&self, finish: Finish, tokens: usize, first: Option<Instant>) -> Done {
        let now = Instant::now();
        Done {
            finish,
            prompt_tokens: self.prompt.ids.len(),
            completion_tokens: tokens,
            times: Times {
                queue: self.began - self.arrived,
                first_token: first.map(|first| first - self.arrived),
                decoding: first.map(|first| now - first).unwrap_or_default(),
                total: now - self.arrived,
            },
        }
    }
}

/// Text of an answer as it becomes certain.
struct Writing<'a> {
    stream: Option<TextStream<'a>>,
    stop: StopText,
    has_stopped: bool,
    first: Option<Instant>,
}

impl Writing<'_> {
    fn push(&mut self, picked: SampledToken) -> Result<String, GenerateError> {
        let piece = match &mut self.stream {
            Some(stream) => stream.push(picked.id)?,
            None => format!("<{}>", picked.id),
        };
        let (text, has_stopped) = self.stop.push(&piece);
        self.has_stopped = has_stopped;
        Ok(text)
    }

    fn finish(&mut self) -> Result<String, GenerateError> {
        if self.has_stopped {
            return Ok(String::new());
        }
        let held = self.stream.as_mut().map(TextStream::finish).transpose()?.unwrap_or_default();
        let (text, has_stopped) = self.stop.push(&held);
        self.has_stopped = has_stopped;
        Ok(if has_stopped { text } else { text + &self.stop.finish() })
    }
}

/// Refuses prompts that nothing could follow.
fn check_length(generator: &Generator, ids: &[u32]) -> Result<(), ApiError> {
    let (longest, vocabulary) = (generator.driver().longest(), generator.driver().vocabulary());
    if ids.is_empty() {
        return Err(ApiError::parameter("prompt", "has no tokens"));
    }
    if ids.len() > longest {
        let problem = format!("has {} tokens, and the model takes {longest} at most", ids.len());
        return Err(ApiError::parameter("prompt", problem));
    }
    match ids.iter().find(|&&id| id as usize >= vocabulary) {
        Some(id) => Err(ApiError::parameter("prompt", format!("token {id} is not one of {vocabulary}"))),
        None => Ok(()),
    }
}
