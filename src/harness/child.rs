//! Workers as processes: started fresh, listened to with a limit, ended whatever they do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::protocol::Job;
use anemeter_runtime::coreai;

/// The longest line of a worker.
const LONGEST_LINE: u64 = 64 << 20;
/// How much of standard error is kept: its end.
const KEPT_STDERR: usize = 16 << 10;

/// Starts worker processes.
pub trait Launcher {
    /// Starts a worker on a job.
    fn launch(&mut self, job: &Job) -> Result<Box<dyn Child>, LaunchError>;
}

/// Why a worker was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LaunchError(pub String);

/// A worker that was started.
pub trait Child {
    /// Waits for the next line, but not longer than this.
    fn next(&mut self, limit: Duration) -> Incoming;

    /// Ends it if it still runs.
    fn end(&mut self) -> WorkerExit;
}

/// What comes from a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// A line, without its end.
    Line(Vec<u8>),
    /// Nothing more will come.
    Closed,
    /// Nothing came in time.
    Silence,
}

/// How a worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerExit {
    /// Its exit status in words.
    pub status: String,
    /// Whether that is success.
    pub success: bool,
    /// The end of what it wrote to standard error.
    pub stderr: String,
}

/// The argument that makes a program a worker.
pub(super) const WORKER: &str = "worker";

/// Starts a program with arguments; the job goes to its standard input.
#[derive(Debug, Clone)]
pub struct Processes {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Processes {
    /// Workers of this very program, which has to call [`serve_if_worker`](super::serve_if_worker) before anything else.
    pub fn of_this_program() -> io::Result<Processes> {
        Ok(Processes::of_program(std::env::current_exe()?))
    }

    /// Workers of another program: `anemeter`, or one that calls [`serve_if_worker`](super::serve_if_worker).
    pub fn of_program(program: impl Into<PathBuf>) -> Processes {
        Processes { program: program.into(), arguments: vec![WORKER.to_owned()] }
    }
}

struct Process {
    child: std::process::Child,
    lines: Receiver<Vec<u8>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Launcher for Processes {
    fn launch(&mut self, job: &Job) -> Result<Box<dyn Child>, LaunchError> {
        let mut line = serde_json::to_vec(job).expect("a job is plain data");
        line.push(b'\n');
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A worker executes with the interpreter that its parent was told of.
        if let Some(python) = coreai::named_interpreter() {
            command.env(coreai::PYTHON_VARIABLE, python);
        }
        let child = command.spawn();
        let mut child = child.map_err(|e| LaunchError(format!("{}: {e}", self.program.display())))?;
        log::debug!("worker {} started", child.id());
        let mut stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        let (sender, lines) = mpsc::sync_channel(64);
        std::thread::spawn(move || {
            // A worker that does not read its job is noticed by what it says, or does not say.
            let _ = stdin.write_all(&line);
        });
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            while let Some(line) = read_line(&mut reader) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let stderr = std::thread::spawn(move || tail(stderr));
        Ok(Box::new(Process { child, lines, stderr: Some(stderr) }))
    }
}

/// A line without its end; `None` at the end of the stream.
fn read_line(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let read = reader.take(LONGEST_LINE).read_until(b'\n', &mut line).ok()?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    (read > 0).then_some(line)
}

/// The end of a stream.
fn tail(mut stream: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut block = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut block) {
        kept.extend_from_slice(&block[..read]);
        if kept.len() > 2 * KEPT_STDERR {
            kept.drain(..kept.len() - KEPT_STDERR);
        }
    }
    let start = kept.len().saturating_sub(KEPT_STDERR);
    kept.split_off(start)
}

impl Child for Process {
    fn next(&mut self, limit: Duration) -> Incoming {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Incoming::Line(line),
            Err(RecvTimeoutError::Timeout) => Incoming::Silence,
            Err(RecvTimeoutError::Disconnected) => Incoming::Closed,
        }
    }

    fn end(&mut self) -> WorkerExit {
        // A worker that has closed its output is about to end; whatever else it does, it is ended now.
        let waited = match self.lines.try_recv() {
            Err(mpsc::TryRecvError::Disconnected) => wait(&mut self.child),
            _ => None,
        };
        let status = waited.map_or_else(
            || {
                let _ = self.child.kill();
                self.child.wait()
            },
            Ok,
        );
        let stderr = self.stderr.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        WorkerExit {
            status: status.as_ref().map_or_else(ToString::to_string, ToString::to_string),
            success: status.is_ok_and(|status| status.success()),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

/// Gives a process that has closed its output a moment to end by itself.
fn wait(child: &mut std::process::Child) -> Option<std::process::ExitStatus> {
    const MOMENTS: usize = 200;
    for _ in 0..MOMENTS {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(_) => return None,
        }
    }
    None
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_their_ends_only() {
        let mut reader = io::Cursor::new(b"one\n\ntwo \xff\nthree".to_vec());
        let lines: Vec<Vec<u8>> = std::iter::from_fn(|| read_line(&mut reader)).collect();
        assert_eq!(lines, [b"one".to_vec(), vec![], b"two \xff".to_vec(), b"three".to_vec()]);
    }

    #[test]
    fn the_end_of_a_long_stream_is_kept() {
        let mut text = vec![b'a'; 5 * KEPT_STDERR + 17];
        text.extend_from_slice(b"the end");
        let kept = tail(&text[..]);
        assert_eq!(kept.len(), KEPT_STDERR);
        assert!(kept.ends_with(b"the end"));
        assert_eq!(tail(&b"short"[..]), b"short");
    }

    #[cfg(unix)]
    mod processes {
        use super::*;

        fn shell(script: &str) -> Box<dyn Child> {
            let arguments = ["-c", script].map(str::to_owned).to_vec();
            let mut processes = Processes { program: PathBuf::from("/bin/sh"), arguments };
            processes.launch(&Job::Probe { threads: 1 }).unwrap()
        }

        const LONG: Duration = Duration::from_secs(60);

        #[test]
        fn a_worker_gets_its_job_and_is_heard() {
            let mut child = shell("read job; echo \"$job\"; echo problem >&2; exit 3");
            let Incoming::Line(line) = child.next(LONG) else { panic!("no line") };
            assert_eq!(serde_json::from_slice::<Job>(&line).unwrap(), Job::Probe { threads: 1 });
            assert_eq!(child.next(LONG), Incoming::Closed);
            let ended = child.end();
            assert_eq!((ended.status.as_str(), ended.success), ("exit status: 3", false));
            assert_eq!(ended.stderr, "problem\n");
        }

        #[test]
        fn a_worker_that_hangs_is_ended() {
            let mut child = shell("exec sleep 1000");
            assert_eq!(child.next(Duration::ZERO), Incoming::Silence);
            let ended = child.end();
            assert!(!ended.success && ended.status.contains("signal"), "{}", ended.status);
        }

        #[test]
        fn what_cannot_be_started_says_so() {
            let mut nothing = Processes { program: PathBuf::from("/no/such/program"), arguments: vec![] };
            let error = nothing.launch(&Job::Probe { threads: 1 }).err().unwrap();
            assert!(error.to_string().starts_with("/no/such/program: "), "{error}");
        }
    }
}
