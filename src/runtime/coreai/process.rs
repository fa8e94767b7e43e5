//! The worker process: started once per loaded asset, asked one thing at a time, and whatever ends it ends only it.

use std::collections::VecDeque;
use std::io::{BufReader, BufWriter, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::frame::{self, Fault, Received};
use crate::RuntimeError;
use anemeter_base::text::visible;
use anemeter_kernels::tensor::TensorView;

/// What of standard error is kept: its end.
const KEPT_BYTES: usize = 16 << 10;
/// Lines of it that an error shows.
const SHOWN_LINES: usize = 8;
/// Characters of a line that an error shows.
const SHOWN_CHARS: usize = 240;
/// How often it is looked whether an answer is overdue.
const WATCH: Duration = Duration::from_millis(100);
/// Time for a worker that has closed its output to end, and for the last of what it printed to arrive.
const ENDING: Duration = Duration::from_secs(5);

/// A worker that may be asked.
pub(super) struct Worker {
    child: Arc<Mutex<Child>>,
    /// `None` once it is told that nothing more will be asked.
    stdin: Option<BufWriter<ChildStdin>>,
    stdout: BufReader<ChildStdout>,
    stderr: Stderr,
    watch: Watch,
    /// How it ended, if it has.
    ended: Option<RuntimeError>,
}

/// A question, and the time that the answer may take.
pub(super) struct Question<'a> {
    /// What is to be done; completes "cannot …".
    pub(super) doing: &'a str,
    pub(super) header: &'a Value,
    pub(super) tensors: &'a [(&'a str, TensorView<'a>)],
    pub(super) limit: Duration,
}

impl Worker {
    /// Starts a worker; the first question shows whether it works.
    pub(super) fn start(mut command: Command) -> Result<Worker, RuntimeError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().display().to_string();
        let mut child = command
            .spawn()
            .map_err(|error| RuntimeError::Environment(format!("{program} cannot be started: {error}")))?;
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = Stderr::of(child.stderr.take().expect("it is piped"));
        let child = Arc::new(Mutex::new(child));
        let watch = Watch::over(&child);
        Ok(Worker {
            child,
            stdin: Some(BufWriter::with_capacity(1 << 16, stdin)),
            stdout: BufReader::with_capacity(1 << 16, stdout),
            stderr,
            watch,
            ended: None,
        })
    }

    /// Asks, and waits for the answer; its tensors replace those in `tensors`.
    pub(super) fn ask<T: DeserializeOwned>(
        &mut self,
        question: &Question<'_>,
        tensors: &mut Vec<Received>,
    ) -> Result<T, RuntimeError> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        let failed = |problem: String| RuntimeError::CoreAi { doing: question.doing.to_owned(), problem };
        self.watch.until(Instant::now() + question.limit);
        let answered = self.exchange(question, tensors);
        self.watch.rest();
        match answered {
            Ok(value) => serde_json::from_value(value).map_err(|error| {
                failed(format!("its worker gave an answer that is not understood: {error}"))
            }),
            Err(Fault::Refused(why)) => Err(failed(shown(&why))),
            Err(Fault::Garbled(what)) => {
                let ended = self.end(question, Some(format!("gave {what}")));
                Err(ended)
            }
            Err(Fault::Broken) => Err(self.end(question, None)),
        }
    }

    fn exchange(&mut self, question: &Question<'_>, tensors: &mut Vec<Received>) -> Result<Value, Fault> {
        let closed = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        frame::send(self.stdin.as_mut().ok_or_else(closed)?, question.header, question.tensors)?;
        frame::receive(&mut self.stdout, tensors)
    }

    /// Ends it and says why there is no answer; every later question gets the same.
    fn end(&mut self, question: &Question<'_>, what: Option<String>) -> RuntimeError {
        self.close();
        // One that broke off by itself tells more by how it ended than by being ended.
        let status = if what.is_some() { self.kill() } else { self.wait() };
        let overdue = self.watch.has_ended_it.load(Ordering::Acquire);
        let ending = match (what, status) {
            _ if overdue => {
                format!("gave no answer within {:.0} s and was ended", question.limit.as_secs_f64())
            }
            (Some(what), _) => what,
            (None, Some(status)) => ended_by(status),
            (None, None) => "closed its output and was ended".to_owned(),
        };
        let ended = RuntimeError::WorkerEnded {
            doing: question.doing.to_owned(),
            ending,
            printed: self.stderr.lines(),
        };
        self.ended = Some(ended.clone());
        ended
    }

    /// Tells it that nothing more will be asked. What could not be written is lost with it.
    fn close(&mut self) {
        drop(self.stdin.take().map(BufWriter::into_parts));
    }

    fn wait(&mut self) -> Option<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < ENDING {
            match self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => {}
                Err(_) => return None,
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        None
    }

    fn kill(&mut self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        child.wait().ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.close();
        self.watch.stop.store(true, Ordering::Release);
        // It ends when its input does; nobody waits for a call that is under way.
        if self.ended.is_none() {
            self.kill();
        }
    }
}

/// How a process ended, in words.
fn ended_by(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("was ended by {}", signal_name(signal));
    }
    match status.code() {
        Some(code) => format!("ended with exit code {code}"),
        None => format!("ended ({status})"),
    }
}

/// The name of a signal; numbers above 6 differ between systems, and those below 9 in this list do not.
#[cfg(unix)]
fn signal_name(signal: i32) -> String {
    let bus = if cfg!(target_os = "macos") { 10 } else { 7 };
    let known = [
        (2, "SIGINT"),
        (4, "SIGILL (Apple's code met a condition that it does not handle)"),
        (5, "SIGTRAP (Apple's code met a condition that it does not handle)"),
        (6, "SIGABRT (Apple's code gave up)"),
        (8, "SIGFPE"),
        (9, "SIGKILL (it may have taken too much memory)"),
        (11, "SIGSEGV"),
        (15, "SIGTERM"),
        (bus, "SIGBUS"),
    ];
    let name = known.iter().find(|(number, _)| *number == signal).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| format!("signal {signal}"))
}

/// Ends a worker whose answer is overdue.
struct Watch {
    began: Instant,
    /// Milliseconds after `began`; 0 while nothing is due.
    due: Arc<AtomicU64>,
    has_ended_it: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Watch {
    fn over(child: &Arc<Mutex<Child>>) -> Watch {
        let watch = Watch {
            began: Instant::now(),
            due: Arc::default(),
            has_ended_it: Arc::default(),
            stop: Arc::default(),
        };
        let (due, ended, stop) =
            (Arc::clone(&watch.due), Arc::clone(&watch.has_ended_it), Arc::clone(&watch.stop));
        let (child, began) = (Arc::clone(child), watch.began);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                std::thread::sleep(WATCH);
                let due = due.load(Ordering::Acquire);
                if due > 0 && began.elapsed().as_millis() as u64 > due {
                    ended.store(true, Ordering::Release);
                    let _ = child.lock().unwrap_or_else(PoisonError::into_inner).kill();
                    return;
                }
            }
        });
        watch
    }

    fn until(&self, due: Instant) {
        let due = due.saturating_duration_since(self.began).as_millis().max(1);
        self.due.store(u64::try_from(due).unwrap_or(u64::MAX), Ordering::Release);
    }

    fn rest(&self) {
        self.due.store(0, Ordering::Release);
    }
}

/// The end of what a process prints.
struct Stderr {
    kept: Arc<Mutex<VecDeque<u8>>>,
    thread: JoinHandle<()>,
}

impl Stderr {
    fn of(mut stream: impl Read + Send + 'static) -> Stderr {
        let kept: Arc<Mutex<VecDeque<u8>>> = Arc::default();
        let into = Arc::clone(&kept);
        let thread = std::thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut block) {
                let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&block[..read]);
                let surplus = kept.len().saturating_sub(KEPT_BYTES);
                kept.drain(..surplus);
            }
        });
        Stderr { kept, thread }
    }

    /// The last lines, once all of them are there or the process has had time to print them.
    fn lines(&self) -> Vec<String> {
        let began = Instant::now();
        while !self.thread.is_finished() && began.elapsed() < ENDING {
            std::thread::sleep(Duration::from_millis(2));
        }
        let kept: Vec<u8> =
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].iter().map(|line| shown(line)).collect()
    }
}

/// Text of others, without control characters and not longer than can be read.
fn shown(text: &str) -> String {
    let text = visible(text.trim_end());
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
