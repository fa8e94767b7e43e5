//! `anemeter serve`: what evaluation and load tools send, and what hostile clients send.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::generate::command::bundle;
use crate::support::checkpoints::write_text;
use crate::support::command::{anemeter, arg, program};

const TEMPLATE: &str = "{% for m in messages %}{{ m.content }} {% endfor %}";

/// A server that ends with the test.
struct Serving {
    child: Child,
    address: String,
    folder: tempfile::TempDir,
}

/// A response.
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The documents of a stream, and whether it ended as it should.
    fn events(&self) -> (Vec<Value>, bool) {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        let (done, documents): (Vec<&str>, Vec<&str>) = data.partition(|data| *data == "[DONE]");
        (documents.iter().map(|text| serde_json::from_str(text).unwrap()).collect(), done.len() == 1)
    }
}

impl Serving {
    fn new(args: &[&str]) -> Serving {
        let folder = tempfile::tempdir().unwrap();
        bundle(folder.path(), Some(TEMPLATE), 1);
        let mut command = program();
        command.args(["serve", arg(folder.path()), "--port", "0", "--threads", "1"]).args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address =
            lines.find_map(|line| line.unwrap().strip_prefix("listening on http://").map(str::to_owned));
        Serving { child, address: address.expect("the server says where it listens"), folder }
    }

    fn send(&self, request: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // A server that refuses a body does not read it to its end.
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
            unchunked(body)
        } else {
            body.to_owned()
        };
        Reply { status, head: head.to_owned(), body }
    }

    fn get(&self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
    }

    fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(&post(path, "application/json", "", body.to_string().as_bytes()))
    }

    fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn post(path: &str, kind: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        text.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    text
}

/// What `anemeter generate` answers.
fn generated(folder: &Path, ids: &str, tokens: &str) -> Value {
    let args =
        ["generate", arg(folder), "--token-ids", ids, "--max-tokens", tokens, "--threads", "1", "--json"];
    serde_json::from_str(anemeter(&args).succeeded()).unwrap()
}

#[test]
fn completions_are_those_of_generate() {
    let server = Serving::new(&[]);
    let expected = generated(server.folder.path(), "5,9,2", "6");
    let expected = expected["sequences"][0]["text"].as_str().unwrap().to_owned();
    for prompt in [json!("w5 w9 w2"), json!([5, 9, 2]), json!(["w5 w9 w2"]), json!([[5, 9, 2]])] {
        let body = json!({"model": "tiny", "prompt": prompt, "max_tokens": 6, "temperature": 0, "seed": 1});
        let reply = server.post("/v1/completions", &body).json();
        assert_eq!(reply["choices"][0]["text"], json!(expected), "{prompt}");
        assert_eq!(reply["choices"][0]["finish_reason"], "length");
        assert_eq!(reply["usage"], json!({"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}));
    }
    let body = json!({"prompt": [5, 9, 2], "max_tokens": 6, "temperature": 0, "stream": true,
        "stream_options": {"include_usage": true}});
    let reply = server.post("/v1/completions", &body);
    assert!(reply.head.contains("text/event-stream"), "{}", reply.head);
    let (events, is_done) = reply.events();
    let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert!(is_done && text == expected, "{text}");
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 6);
    assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "length");
}

#[test]
fn prompts_are_scored_as_eval_scores_them() {
    let server = Serving::new(&[]);
    let body =
        json!({"prompt": [5, 9, 2, 7], "max_tokens": 1, "temperature": 0, "echo": true, "logprobs": 1});
    let reply = server.post("/v1/completions", &body).json();
    let told = &reply["choices"][0]["logprobs"];
    let own: Vec<Option<f64>> = serde_json::from_value(told["token_logprobs"].clone()).unwrap();
    assert_eq!((own.len(), own[0], told["top_logprobs"][0].clone()), (5, None, Value::Null));
    assert_eq!(told["tokens"].as_array().unwrap()[..4], ["w5", "w9", "w2", "w7"]);
    assert_eq!(told["text_offset"], json!([0, 2, 4, 6, 8]));
    let text = server.folder.path().join("text.txt");
    write_text(&text, "w5 w9 w2 w7");
    let place = arg(server.folder.path());
    let scored = anemeter(&[
        "eval",
        place,
        "--text",
        arg(&text),
        "--threads",
        "1",
        "--no-record",
        "--quiet",
        "--json",
    ]);
    let scored: Value = serde_json::from_str(scored.succeeded()).unwrap();
    let nats =
        scored["quality"]["perplexity"]["nats_per_token"].as_f64().unwrap_or_else(|| panic!("{scored}"));
    let mean = -own[1..4].iter().flatten().sum::<f64>() / 3.0;
    assert!((mean - nats).abs() < 1e-6, "{mean} against {nats}");
    // The token that is generated is the likeliest, so it is among those that are told.
    let top = told["top_logprobs"][4].as_object().unwrap().values().next().unwrap().as_f64().unwrap();
    assert_eq!(own[4], Some(top));
    let none = json!({"prompt": [5], "max_tokens": 0, "echo": true, "logprobs": 0});
    assert_eq!(
        server.post("/v1/completions", &none).json()["choices"][0]["logprobs"]["tokens"],
        json!(["w5"])
    );
}

#[test]
fn conversations_go_through_the_template() {
    let server = Serving::new(&[]);
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": "w5 w9"}]}, {"role": "user", "content": "w2"}]);
    let body =
        json!({"messages": messages, "max_tokens": 6, "temperature": 0, "logprobs": true, "top_logprobs": 2});
    let reply = server.post("/v1/chat/completions", &body).json();
    let expected = generated(server.folder.path(), "5,9,2", "6");
    assert_eq!(reply["choices"][0]["message"]["content"], expected["sequences"][0]["text"]);
    let told = reply["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert!(
        told.len() == 6 && told.iter().all(|token| token["top_logprobs"][0]["logprob"] == token["logprob"])
    );
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let (events, is_done) = server.post("/v1/chat/completions", &streamed).events();
    let text: String =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert!(is_done && json!(text) == expected["sequences"][0]["text"]);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    // A text of the answer as a stop text ends it before that.
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut stopped = body;
    stopped["stop"] = json!(words[2]);
    let reply = server.post("/v1/chat/completions", &stopped).json();
    let content = reply["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    assert!(text.starts_with(&content) && !content.contains(words[2]), "{content}");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

#[test]
fn what_cannot_be_answered_is_refused_and_the_server_goes_on() {
    let server = Serving::new(&["--max-body", "2000", "--api-key", "secret"]);
    let key = "authorization: Bearer secret\r\n";
    let bad = |body: &[u8]| server.send(&post("/v1/completions", "application/json", key, body));
    for (body, status, words) in [
        (&b"{"[..], 400, "the body is not the JSON of a request"),
        (b"\xff\xfe", 400, "JSON"),
        (b"{\"prompt\": []}", 400, "has no tokens"),
        (b"{\"prompt\": [[]]}", 400, "has no tokens"),
        (b"{\"prompt\": [4000]}", 400, "token 4000 is not one of 37"),
        (b"{\"prompt\": \"w5\", \"n\": 4000}", 400, "4000 answers are asked for"),
        (b"{\"prompt\": \"w5\", \"n\": 18446744073709551615}", 400, "answers are asked for"),
        (b"{\"prompt\": \"w5\", \"temperature\": 1e999}", 400, "JSON"),
        (b"{\"prompt\": \"w5\", \"logit_bias\": {\"1\": 2}}", 400, "logit_bias: is not supported"),
        (&[b"{\"prompt\": \"".as_slice(), &[b'x'; 5000], b"\"}"].concat(), 413, "more than 2000 bytes"),
    ] {
        let reply = bad(body);
        assert_eq!(reply.status, status, "{}", reply.body);
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(words), "{message}");
    }
    let long = json!({"prompt": vec![5; 400]}).to_string();
    assert!(bad(long.as_bytes()).body.contains("has 400 tokens"));
    for (request, status) in [
        (post("/v1/completions", "application/json", "", b"{}"), 401),
        (post("/v1/completions", "application/json", "authorization: Bearer secreT\r\n", b"{}"), 401),
        (post("/v1/completions", "text/plain", key, b"{}"), 415),
        (post("/v1/embeddings", "application/json", key, b"{}"), 404),
        (b"GET /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(), 405),
        (b"nonsense\r\n\r\n".to_vec(), 400),
        (
            format!("GET /v1/models/other HTTP/1.1\r\nhost: x\r\n{key}connection: close\r\n\r\n")
                .into_bytes(),
            404,
        ),
        (b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(), 200),
        (format!("GET /v1/models HTTP/1.1\r\nhost: x\r\n{key}connection: close\r\n\r\n").into_bytes(), 200),
    ] {
        let reply = server.send(&request);
        assert_eq!(reply.status, status, "{}: {}", String::from_utf8_lossy(&request), reply.body);
    }
    let good = bad(br#"{"prompt": [5, 9], "max_tokens": 2, "temperature": 0}"#);
    assert_eq!(good.status, 200, "{}", good.body);
    assert!(server.get("/").body.contains("<title>anemeter</title>"));
}

#[test]
fn clients_that_leave_are_not_worked_for() {
    let server = Serving::new(&["--max-waiting", "4"]);
    for _ in 0..6 {
        let body =
            json!({"prompt": [5], "max_tokens": 100_000, "stream": true, "ignore_eos": true}).to_string();
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(&post("/v1/completions", "application/json", "", body.as_bytes())).unwrap();
        drop(stream);
    }
    // Half a request, which times out by itself and is in nobody's way.
    let half = TcpStream::connect(&server.address).unwrap();
    (&half).write_all(b"POST /v1/completions HTTP/1.1\r\ncontent-le").unwrap();
    let body = json!({"prompt": [5, 9], "max_tokens": 2, "temperature": 0});
    let mut status = 0;
    for _ in 0..100 {
        status = server.post("/v1/completions", &body).status;
        if status == 200 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(status, 200);
    assert_eq!(server.metric("anemeter_requests_running"), 0);
    assert_eq!(server.metric("anemeter_requests_waiting"), 0);
}

#[test]
fn answers_that_are_left_are_cut_when_their_time_is_over() {
    let mut server = Serving::new(&[]);
    let mut client = TcpStream::connect(&server.address).unwrap();
    // It would go on for as long as the context has room, and nobody reads it.
    let body = json!({"prompt": [5], "stream": true, "ignore_eos": true, "max_tokens": 1_000_000, "n": 4});
    client.write_all(&post("/v1/completions", "application/json", "", body.to_string().as_bytes())).unwrap();
    client.read_exact(&mut [0; 15]).unwrap();
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_body_that_is_too_long_is_answered_while_it_is_still_sent() {
    let server = Serving::new(&["--max-body", "2000"]);
    let body = format!("{{\"prompt\": \"{}\"}}", "x".repeat(20 << 20));
    let reply = server.send(&post("/v1/completions", "application/json", "", body.as_bytes()));
    assert_eq!(reply.status, 413, "{}", reply.head);
}

#[test]
fn more_sequences_than_may_ever_wait_are_the_clients_mistake() {
    let server = Serving::new(&["--max-waiting", "4"]);
    let reply = server.post("/v1/completions", &json!({"prompt": [5], "n": 5, "temperature": 0}));
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert!(reply.body.contains("asks for 5 sequences, and 4 may wait"), "{}", reply.body);
}

#[test]
fn an_interrupt_ends_it_in_good_order() {
    let mut server = Serving::new(&["--sessions", "2"]);
    assert_eq!(server.post("/v1/completions", &json!({"prompt": [5], "temperature": 0})).status, 200);
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(&server.address).is_err());
    let taken = Serving::new(&[]);
    let port = taken.address.rsplit(':').next().unwrap();
    let second = anemeter(&["serve", arg(taken.folder.path()), "--port", port]);
    assert!(second.code == 4 && second.stderr.contains("cannot listen"), "{}", second.stderr);
}
