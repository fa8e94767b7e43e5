//! `anemeter eval`: scripted answers through the generator give figures computed by hand.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use anemeter::bundle::{Bundle, Manifest, Tokenizer as Described};
use anemeter::eval::{Options, parse_cases, run, score_text, text_tokens};
use anemeter::generate::{ChatContext, ChatTemplate, Driver, Generator, ManualClock, Text, Tokenizer};
use anemeter::report::{Quality, Record};
use anemeter::runtime::Session;
use half::f16;
use serde_json::{Value, json};

use crate::generate::{bundles, fake};
use crate::lower::models::{TINY, llama};
use crate::support::command::{anemeter, arg};

/// Printable ASCII and a new line, one token each, then the token that ends an answer.
const LETTERS: usize = 96;
const END: u32 = 96;
const VOCABULARY: usize = 97;

fn token(letter: char) -> u32 {
    if letter == '\n' { 95 } else { letter as u32 - 32 }
}

fn tokenizer() -> Vec<u8> {
    let letters = (32u8..127).map(char::from).chain(['\n']);
    let mut vocabulary: serde_json::Map<String, Value> =
        letters.map(|letter| (letter.to_string(), json!(token(letter)))).collect();
    assert_eq!(vocabulary.len(), LETTERS);
    vocabulary.insert("<end>".to_owned(), json!(END));
    let end = json!({"id": END, "content": "<end>", "special": true, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false});
    let split =
        json!({"type": "Split", "pattern": {"Regex": "(?s)."}, "behavior": "Isolated", "invert": false});
    json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [end], "normalizer": null,
        "pre_tokenizer": split, "post_processor": null, "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": " "}})
    .to_string()
    .into_bytes()
}

/// A session that writes down one answer per prompt, letter by letter.
fn scripted(answers: &[&'static str]) -> Box<dyn Session> {
    let mut answers: VecDeque<&str> = answers.iter().copied().collect();
    let mut rest: VecDeque<u32> = VecDeque::new();
    fake::acting(move |function| {
        if function == "prefill" {
            rest = answers.pop_front().unwrap().chars().map(token).collect();
        }
        let mut logits = vec![f16::ZERO; VOCABULARY];
        if function != "embed" {
            logits[rest.pop_front().unwrap_or(END) as usize] = f16::ONE;
        }
        logits
    })
}

const TEMPLATE: &str =
    "{% for tool in tools %}{{ tool.function.name }};{% endfor %}{{ messages[-1].content }}";

fn generator(seq_lens: &[usize], answers: &[&'static str]) -> Generator {
    let mut manifest: Manifest = fake::manifest();
    manifest.architecture.as_mut().unwrap().vocabulary = VOCABULARY;
    manifest.architecture.as_mut().unwrap().max_positions = 512;
    manifest.settings.as_mut().unwrap().seq_lens = seq_lens.to_vec();
    let clock = Arc::new(ManualClock::default());
    let driver =
        Driver::over(&manifest, Path::new(""), vec![scripted(answers)], None, clock.clone()).unwrap();
    let text = Text {
        tokenizer: Tokenizer::from_bytes(&tokenizer(), Path::new("tokenizer.json")).unwrap(),
        chat: Some(ChatTemplate::new(TEMPLATE, "export.json", ChatContext::default()).unwrap()),
        ends: vec![END],
    };
    Generator::new(driver, Some(Arc::new(text)), clock)
}

/// Three cases: one call with two arguments, one without arguments, none.
fn cases() -> String {
    let tools = json!([{"name": "f"}, {"name": "g"}]);
    let line = |id: &str, content: &str, expected: Value| {
        json!({"id": id, "messages": [{"role": "user", "content": content}], "tools": tools, "expected": expected})
            .to_string()
    };
    [
        line("two", "a", json!({"name": "f", "arguments": {"x": 1, "y": "b"}})),
        line("bare", &"long ".repeat(20), json!({"name": "g"})),
        line("none", "c", Value::Null),
    ]
    .join("\n")
}

#[test]
fn figures_equal_those_computed_by_hand() {
    let good = "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1, \"y\": \"b\"}}</tool_call>";
    let half = "I will. <tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1, \"y\": \"c\"}}</tool_call>";
    let bare = "ab{\"name\": \"g\"}";
    // `bare` has a prompt of 4 + 100 letters, too long for 100; so two answers at the first length, three at the others.
    let answers = [good, "No.", half, bare, "No.", good, "Well?", "{\"name\": \"g\"}"];
    let mut generator = generator(&[100, 200, 300], &answers);
    let cases = parse_cases(&cases()).unwrap();
    let options = Options { seq_lens: vec![100, 200, 300], max_tokens: 90 };
    let mut heard = Vec::new();
    let found = run(&mut generator, &cases, &options, &mut |done, total| heard.push((done, total))).unwrap();
    assert_eq!((heard.len(), heard.last()), (9, Some(&(9, 9))));

    let [short, middle, long] = &found.per_seq_len[..] else { panic!("{found:?}") };
    // Length 100: three of three items, and nothing where nothing should be.
    assert_eq!((short.cases, short.too_long, short.f1, short.exact), (2, 1, 1.0, 1.0));
    assert_eq!((short.ttfa_p50, short.ttfa_p95, short.without_call), (Some(1.0), Some(1.0), 0));
    // Length 200: name and x of `two` match, y does not, the name of `bare` matches: 3 of 4 found, 3 of 4 expected.
    assert_eq!((middle.cases, middle.f1, middle.name_f1), (3, 2.0 * 3.0 / 8.0, 1.0));
    assert_eq!(middle.exact, 2.0 / 3.0);
    // Calls begin with the ninth and with the third letter.
    assert_eq!((middle.ttfa_p50, middle.ttfa_p95), (Some(3.0), Some(9.0)));
    // Length 300: all of `two`; `bare` gets no call; `none` gets one: 3 of 4 found, 3 of 4 expected.
    assert_eq!((long.f1, long.name_f1, long.exact), (0.75, 0.5, 1.0 / 3.0));
    assert_eq!((long.without_call, long.ttfa_p50, long.ttfa_p95), (1, Some(1.0), None));
    // `two` and `none` fit everywhere: 3/3 and 3/3; 2/3 and 2/3; 3/4 found and 3/3 expected.
    let common = [1.0, 4.0 / 6.0, 6.0 / 7.0];
    assert_eq!(found.f1_drift, Some(common[0] - common[1]));
    // Tokens to the first action of all: 1, 9, 3, 1 and never. The third of five is 3, the fifth is none.
    assert_eq!((found.ttfa_p50, found.ttfa_p95), (Some(3.0), None));
    assert_eq!(found.results[1].cases[0].prompt_tokens, "f;g;a".len());
}

#[test]
fn answers_end_where_a_length_is_full() {
    let endless = "Let me think about it for a very long time before I do anything at all.";
    let mut generator = generator(&[16, 32], &[endless, endless]);
    let case = cases().lines().next().unwrap().to_owned();
    let options = Options { seq_lens: vec![16, 32], max_tokens: 20 };
    let found = run(&mut generator, &parse_cases(&case).unwrap(), &options, &mut |_, _| {}).unwrap();
    // A prompt of five tokens leaves room for eleven, and the twelfth need not be given to the model.
    let tokens: Vec<usize> = found.results.iter().map(|result| result.cases[0].tokens).collect();
    assert_eq!(tokens, [12, 20]);
}

#[test]
fn perplexity_equals_that_computed_by_hand() {
    // Windows of 8 over 11 letters: all but the first letter of the first 8, then the 3 after the first 8.
    let mut generator = generator(&[4, 8], &["bcabcab", "xab"]);
    let ids = text_tokens(&generator, "abcabcabcab").unwrap();
    let mut heard = Vec::new();
    let found =
        score_text(generator.driver_mut(), &ids, 8, &mut |done, total| heard.push((done, total))).unwrap();
    assert_eq!((found.window, found.tokens), (8, 10));
    assert_eq!((heard.len(), heard.last()), (10, Some(&(10, 10))));
    // A foreseen letter has the logit 1, every other one 0; one of ten was not foreseen.
    let sum = (std::f64::consts::E + 96.0).ln();
    assert!((found.nats - (10.0 * sum - 9.0)).abs() < 1e-9, "{}", found.nats);
    assert!((found.perplexity() - (sum - 0.9).exp()).abs() < 1e-9);

    let error = score_text(generator.driver_mut(), &ids[..1], 8, &mut |_, _| {}).unwrap_err().to_string();
    assert_eq!(error, "a text of 1 tokens has none that could be scored; at least 2 are needed");
}

/// A random model with a tokenizer; it answers nonsense.
fn bundle(folder: &Path, template: Option<&str>) -> Bundle {
    let mut size = TINY;
    size.vocabulary = VOCABULARY;
    let options = anemeter::lower::Options { seq_lens: vec![64, 128], ..anemeter::lower::Options::default() };
    let described = Described {
        file: bundles::file("tokenizer.json"),
        chat_template: template.map(ToOwned::to_owned),
        bos: None,
        eos: vec![END],
    };
    bundles::write(&llama(size, 31), &options, Some((&tokenizer(), described)), folder)
}

#[test]
fn the_command_scores_honestly_and_keeps_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path(), Some(TEMPLATE));
    let file = folder.path().join("cases.jsonl");
    crate::support::checkpoints::write_text(&file, &cases());
    let given = ["eval", arg(bundle.folder()), "--cases", arg(&file), "--max-tokens", "8"];
    let outcome = anemeter(&given);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    for line in [
        "on the cpu runtime, cache form io, 3 cases of up to 8 tokens",
        "F1 drift between lengths: 0.0000",
        "p50 never, p95 never",
    ] {
        assert!(outcome.stdout.contains(line), "{line}: {}", outcome.stdout);
    }
    let kept = std::fs::read_to_string(folder.path().join("eval.json")).unwrap();
    let quality = Quality::parse(&kept).unwrap();
    assert_eq!(
        quality.per_seq_len.iter().map(|of| (of.seq_len, of.cases, of.f1)).collect::<Vec<_>>(),
        [(64, 2, 0.0), (128, 3, 0.0)]
    );
    assert!(quality.expects_calls());

    let again = anemeter(&[&given[..], &["--json"]].concat());
    let document: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(document["schema"], "anemeter.eval/1");
    assert_eq!(document["quality"], serde_json::from_str::<Value>(&kept).unwrap(), "the same every time");
    assert_eq!(document["results"][1]["cases"].as_array().unwrap().len(), 3);
}

#[test]
fn the_command_scores_a_text_and_keeps_what_is_known_of_calls() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path(), Some(TEMPLATE));
    let (text, file) = (folder.path().join("text.txt"), folder.path().join("cases.jsonl"));
    crate::support::checkpoints::write_text(&text, &"A ferry left. ".repeat(11));
    crate::support::checkpoints::write_text(&file, &cases());
    let kept = || Quality::parse(&std::fs::read_to_string(folder.path().join("eval.json")).unwrap()).unwrap();
    let eval = |more: &[&str]| {
        let outcome = anemeter(&[&["eval", arg(bundle.folder())][..], more].concat());
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        outcome.stdout
    };

    let shown = eval(&["--text", arg(&text)]);
    assert!(shown.contains("cache form io, 153 tokens in windows of 128\n\n  perplexity "), "{shown}");
    let scored = kept();
    let perplexity = scored.perplexity.clone().unwrap();
    assert_eq!((scored.has_cases(), perplexity.tokens, perplexity.window), (false, 153, 128));
    assert!((perplexity.nats_per_token.exp() - perplexity.perplexity).abs() < 1e-9);
    assert!(perplexity.perplexity > 1.0);

    eval(&["--cases", arg(&file), "--max-tokens", "1"]);
    assert_eq!((kept().cases, kept().perplexity), (3, Some(perplexity.clone())));
    let document: Value =
        serde_json::from_str(&eval(&["--text", arg(&text), "--shapes", "64", "--json"])).unwrap();
    assert_eq!(document["quality"]["perplexity"]["window"], 64);
    assert_eq!((document["quality"]["cases"].as_u64(), kept().max_tokens), (Some(3), 1));

    let none = anemeter(&["eval", arg(bundle.folder())]);
    assert!(none.refused().contains("--cases"), "{}", none.stderr);
    crate::support::checkpoints::write_text(&text, "A");
    let short = anemeter(&["eval", arg(bundle.folder()), "--text", arg(&text)]);
    assert!(short.refused().contains("a text of 1 tokens has none"), "{}", short.stderr);
}

#[test]
fn what_cannot_be_evaluated_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (with, without) = (folder.path().join("with"), folder.path().join("without"));
    [&with, &without].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    bundle(&with, Some("{{ messages[0].content }}"));
    bundle(&without, None);
    let good = folder.path().join("good.jsonl");
    crate::support::checkpoints::write_text(&good, &cases());
    let bad = folder.path().join("bad.jsonl");
    crate::support::checkpoints::write_text(&bad, &format!("{}\n{{\"id\": \"x\", \"prompt\": 1}}", cases()));
    let none = folder.path().join("none.jsonl");
    for (bundle, file, more, message) in [
        (&with, &bad, &[][..], "bad.jsonl: line 4: unknown field `prompt`"),
        (&with, &none, &[], "none.jsonl: "),
        (&without, &good, &[], "the bundle has no chat template"),
        (&with, &good, &["--shapes", "99"], "the form `io` has no length 99, but 64, 128"),
        (&none, &good, &[], "there is no such bundle or package"),
    ] {
        let outcome = anemeter(&[&["eval", arg(bundle), "--cases", arg(file)][..], more].concat());
        let error = outcome.refused();
        assert!(error.contains(message), "{message}: {error}");
    }
    let told = anemeter(&["eval", arg(&with), "--cases", arg(&good), "--max-tokens", "1"]);
    assert!(told.stderr.contains("the chat template knows of no tools"), "{}", told.stderr);
}
