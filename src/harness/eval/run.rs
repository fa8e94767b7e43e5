//! Cases through the generator, greedily, each at every length that it fits.

use std::ops::ControlFlow;

use serde_json::{Value, json};

use super::score::{Answer, SeqLenResult, evaluate, instructions, score};
use super::{Case, CaseResult, Evaluation};
use crate::generate::{ChatTemplate, GenerateError, Generator, Input, Prompt, Request, Sampling, Text};

/// Lengths and limits of an evaluation.
#[derive(Debug, Clone)]
pub struct Options {
    /// Lengths, in the order of the results.
    pub seq_lens: Vec<usize>,
    /// Most tokens to generate per case; fewer where a length is full before.
    pub max_tokens: usize,
}

/// Runs all cases. `progress` is told how many runs of how many are done.
pub fn run(
    generator: &mut Generator,
    cases: &[Case],
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Evaluation, GenerateError> {
    let prompts = cases.iter().map(|case| prompt(generator, case)).collect::<Result<Vec<_>, _>>()?;
    let total = options.seq_lens.len() * cases.len();
    let mut results = Vec::with_capacity(options.seq_lens.len());
    let mut done = 0;
    for &seq_len in &options.seq_lens {
        let mut result = SeqLenResult { seq_len, too_long: Vec::new(), cases: Vec::new() };
        for (case, prompt) in cases.iter().zip(&prompts) {
            match prompt.ids.len() <= seq_len {
                true => result.cases.push(answer(generator, case, prompt, (seq_len, options.max_tokens))?),
                false => result.too_long.push(case.id.clone()),
            }
            done += 1;
            progress(done, total);
        }
        results.push(result);
    }
    Ok(evaluate(generator.driver().form(), results))
}

/// The prompt of a case: its messages and tools through the chat template. Where the template knows of no tools, a
/// system message says what they are and how to call them.
pub fn prompt(generator: &Generator, case: &Case) -> Result<Prompt, GenerateError> {
    let knows_tools =
        generator.text().and_then(|text| text.chat.as_ref()).is_some_and(ChatTemplate::takes_tools);
    let tools = &case.tools;
    if knows_tools || tools.is_empty() {
        return generator.prompt(Input::Tools { messages: &case.messages, tools });
    }
    let told = with_instructions(&case.messages, &instructions(tools));
    generator.prompt(Input::Tools { messages: &told, tools })
}

/// Messages whose system message, new or their own, ends with the instructions.
fn with_instructions(messages: &[Value], instructions: &str) -> Vec<Value> {
    let mut told = messages.to_vec();
    match told.first_mut().filter(|first| first["role"] == "system") {
        Some(system) => {
            let own = system["content"].as_str().unwrap_or_default();
            system["content"] = Value::from(format!("{own}\n\n{instructions}"));
        }
        None => told.insert(0, json!({"role": "system", "content": instructions})),
    }
    told
}

fn answer(
    generator: &mut Generator,
    case: &Case,
    prompt: &Prompt,
    (seq_len, max_tokens): (usize, usize),
) -> Result<CaseResult, GenerateError> {
    let text = generator.text().cloned();
    let ends = text.as_ref().map(|text| text.ends.clone()).unwrap_or_default();
    let request = Request {
        prompts: vec![prompt.clone()],
        // The last token need not be given to the model, so it needs no room.
        max_tokens: max_tokens.min(seq_len + 1 - prompt.ids.len()),
        sampling: Sampling::default(),
        ends: ends.clone(),
        length: Some(seq_len),
        continues: false,
        top_logits: 0,
    };
    let answer = generator.generate(&request, &mut |_| Ok(ControlFlow::Continue(())))?;
    let sequence = &answer.sequences[0];
    let ended = sequence.ids.last().is_some_and(|id| ends.contains(id));
    let ids = &sequence.ids[..sequence.ids.len() - usize::from(ended)];
    let (written, ends) = match &text {
        Some(text) => written(text, ids)?,
        None => (String::new(), vec![0; ids.len()]),
    };
    let answer =
        Answer { text: &written, ends: &ends, prompt_tokens: prompt.ids.len(), finish: sequence.finish };
    Ok(score(case, &answer))
}

/// The text of tokens, special ones included, and where the text of the first, the first two … tokens ends.
fn written(text: &Text, ids: &[u32]) -> Result<(String, Vec<usize>), GenerateError> {
    let mut ends = Vec::with_capacity(ids.len());
    for count in 1..=ids.len() {
        let so_far = text.tokenizer.decode_all(&ids[..count])?;
        // A character that is not complete yet is shown as U+FFFD.
        ends.push(so_far.trim_end_matches('\u{FFFD}').len());
    }
    Ok((text.tokenizer.decode_all(ids)?, ends))
}
