//! Requests: what they take, how they end, and what is refused.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anemeter::advice::Advice;
use anemeter::generate::{
    Answer, Driver, Finish, GenerateError, Generator, ManualClock, Prompt, Request, SampledToken, Sampling,
    Step,
};

use super::fake::{self, generator};

const NS: fn(u64) -> Duration = Duration::from_nanos;

fn request(ids: &[u32], max_tokens: usize) -> Request {
    Request {
        prompts: vec![Prompt { ids: ids.to_vec(), tokenizing: NS(11) }],
        max_tokens,
        sampling: Sampling::default(),
        ends: vec![3],
        length: None,
        continues: false,
        top_logits: 0,
    }
}

fn go_on(_: SampledToken) -> Result<ControlFlow<()>, GenerateError> {
    Ok(ControlFlow::Continue(()))
}

fn answer(generator: &mut Generator, request: &Request) -> Answer {
    generator.generate(request, &mut go_on).unwrap()
}

#[test]
fn phases_are_timed_to_the_nanosecond() {
    let clock = ManualClock::default();
    let mut generator =
        generator(&clock, &[[0.0, 1.0, 0.0, 0.0], [2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 5.0, 4.0]]);
    let shared = clock.clone();
    let mut slow_caller = |_: SampledToken| {
        shared.advance(NS(5_000));
        Ok(ControlFlow::Continue(()))
    };
    let answer = generator.generate(&request(&[1, 2, 1], 3), &mut slow_caller).unwrap();
    assert_eq!(answer.sequences[0].ids, [1, 0, 2]);
    let timings = &answer.timings;
    assert_eq!((timings.tokenizer, timings.embed, timings.prefill), (NS(11), NS(30), NS(1_000)));
    assert_eq!((timings.sample, timings.first_step), (NS(0), NS(1_030)));
    let step = Step { embed: NS(30), predict: NS(200), sample: NS(0), total: NS(230) };
    assert_eq!(timings.steps, [step, step]);
    assert_eq!(clock_total(&clock), 1_030 + 2 * 230 + 3 * 5_000);
    assert_eq!(answer.lengths, (4, 8));
}

fn clock_total(clock: &ManualClock) -> u64 {
    use anemeter::generate::Clock;
    u64::try_from(clock.now().as_nanos()).unwrap()
}

#[test]
fn sequences_end_for_a_reason() {
    let clock = ManualClock::default();
    let finish = |script: &[[f32; 4]], max_tokens: usize| {
        let answer = answer(&mut generator(&clock, script), &request(&[1, 2], max_tokens));
        (answer.sequences[0].finish, answer.sequences[0].ids.clone())
    };
    let end = [0.0, 0.0, 0.0, 1.0];
    assert_eq!(finish(&[[0.0; 4], end], 9), (Finish::Stop, vec![0, 3]));
    assert_eq!(finish(&[end], 1), (Finish::Stop, vec![3]));
    assert_eq!(finish(&[], 4), (Finish::Length, vec![0; 4]));
    assert_eq!(finish(&[], 100), (Finish::Context, vec![0; 7]));
    let mut breaks = |picked: SampledToken| {
        Ok(if picked.step == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    let broken = generator(&clock, &[]).generate(&request(&[1], 9), &mut breaks).unwrap();
    assert_eq!((broken.sequences[0].finish, broken.sequences[0].ids.len()), (Finish::Cancelled, 2));
}

#[test]
fn likeliest_tokens_are_recorded_when_asked_for() {
    let clock = ManualClock::default();
    let wanted = Request { top_logits: 2, ..request(&[1], 2) };
    let answer = answer(&mut generator(&clock, &[[0.5, 1.0, -1.0, 0.0], [0.0; 4]]), &wanted);
    assert_eq!(answer.sequences[0].top, [vec![(1, 1.0), (0, 0.5)], vec![(0, 0.0), (1, 0.0)]]);
}

#[test]
fn logits_that_are_no_numbers_name_the_step() {
    let clock = ManualClock::default();
    let mut generator = generator(&clock, &[[0.0; 4], [0.0; 4], [0.0, f32::NAN, 0.0, 0.0]]);
    let error = generator.generate(&request(&[1], 5), &mut go_on).unwrap_err();
    assert_eq!(error.to_string(), "step 2, sequence 0: the logit of token 1 is NaN");
    assert_eq!(answer(&mut generator, &request(&[1], 2)).sequences[0].ids, [0, 0]);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let clock = ManualClock::default();
    let refused = |request: Request| {
        let error = generator(&clock, &[]).generate(&request, &mut go_on).unwrap_err();
        format!("{error} / {}", error.remedy().map(|remedy| remedy.to_string()).unwrap_or_default())
    };
    insta::assert_snapshot!(
        refused(request(&[1; 9], 1)),
        @"the prompt has 9 tokens, the bundle takes at most 8 / shorten it, or export with a longer seq_len; this bundle has 4, 8"
    );
    insta::assert_snapshot!(refused(request(&[], 1)), @"the prompt has no tokens /");
    insta::assert_snapshot!(refused(request(&[1, 4], 1)), @"token 4 is not among the 4 of the model /");
    insta::assert_snapshot!(refused(request(&[1], 0)), @"no tokens are asked for; at least one must be /");
    let hot = Sampling { temperature: -1.0, ..Sampling::default() };
    insta::assert_snapshot!(refused(Request { sampling: hot, ..request(&[1], 1) }), @"temperature is -1, should be 0 or more /");
    insta::assert_snapshot!(
        refused(Request { length: Some(5), ..request(&[1], 1) }),
        @"seq_len 5 is not in the bundle / it has 4, 8"
    );
    insta::assert_snapshot!(
        refused(Request { prompts: vec![Prompt::default(); 2], ..request(&[1], 1) }),
        @"2 prompts for a bundle of batch 1 / give one for all or one for each"
    );
}

#[test]
fn descriptions_that_make_no_sense_are_refused() {
    let refused = |change: fn(&mut anemeter::bundle::Manifest)| {
        let mut manifest = fake::manifest();
        change(&mut manifest);
        let clock = Arc::new(ManualClock::default());
        let session = fake::session(&ManualClock::default(), &[]);
        let driver = Driver::over(&manifest, Path::new(""), vec![session], None, clock);
        driver.and_then(|mut driver| driver.prefill(&[&[1]], None)).unwrap_err().to_string()
    };
    insta::assert_snapshot!(refused(|m| m.architecture.as_mut().unwrap().hidden = usize::MAX), @"export.json: `hidden` is 18446744073709551615, should be 1 to 1048576");
    insta::assert_snapshot!(refused(|m| m.settings.as_mut().unwrap().seq_lens.clear()), @"export.json: `lengths` is empty");
    insta::assert_snapshot!(refused(|m| m.settings.as_mut().unwrap().batch = 9), @"export.json: `batch` is 9, should be 1 to 4");
    insta::assert_snapshot!(refused(|m| m.settings.as_mut().unwrap().kv.clear()), @"export.json: `kv` names no form of the KV cache");
    insta::assert_snapshot!(refused(|m| m.chunks.clear()), @"export.json: has 0 chunks for 1 sessions");
    insta::assert_snapshot!(
        refused(|m| m.chunks[0].functions.truncate(2)),
        @"export.json: `model.mlpackage` has no function `decode` with a `k_cache`"
    );
    insta::assert_snapshot!(
        refused(|m| { m.chunks[0].functions.remove(1); }),
        @"export.json: `model.mlpackage` has no function `prefill`, only embed, decode"
    );
    insta::assert_snapshot!(
        refused(|m| { m.chunks[0].functions.remove(0); }),
        @"export.json: `prefill` takes vectors, and nothing makes them from tokens"
    );
    insta::assert_snapshot!(
        refused(|m| m.chunks[0].masks.clear()),
        @"export.json: `prefill` of `model.mlpackage` takes `mask`, which has no known meaning"
    );
    insta::assert_snapshot!(
        refused(|m| m.architecture.as_mut().unwrap().vocabulary = 5),
        @"model.mlpackage: `prefill` gave 4 logits for 5 tokens"
    );
}
