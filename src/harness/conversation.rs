//! A conversation with a worker until it has finished, failed or used up its time.

use std::time::Duration;

use super::child::{Child, Incoming, Launcher, WorkerExit};
use super::protocol::{Job, Message};
use crate::generate::Clock;
use anemeter_measure::report::{Failure, Outcome};

/// How much of a line that is not a message is kept.
const SHOWN: usize = 200;

/// How a conversation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conversation {
    pub(super) outcome: Outcome,
    /// The end of standard error, unless all went well.
    pub(super) stderr: Option<String>,
    /// The end of standard error, whatever happened.
    pub(super) said: String,
}

/// Starts a worker on a job and passes on what it says until it has finished. Its time is limited as a whole, so
/// one that keeps talking ends too.
pub(super) fn converse(
    launcher: &mut dyn Launcher,
    job: &Job,
    limit: Duration,
    clock: &dyn Clock,
    hear: &mut dyn FnMut(Message),
) -> Conversation {
    let began = clock.now();
    let mut child = match launcher.launch(job) {
        Ok(child) => child,
        Err(why) => return failed(Failure::NotStarted(why.to_string()), String::new()),
    };
    let failure = listen(child.as_mut(), limit, &|| clock.now().saturating_sub(began), hear);
    let WorkerExit { status, success, stderr } = child.end();
    let failure = failure.or_else(|| (!success).then(|| Failure::Crashed(status.clone())));
    match failure {
        None => Conversation { outcome: Outcome::Completed, stderr: None, said: stderr },
        Some(Failure::Crashed(_)) => failed(Failure::Crashed(status), stderr),
        Some(other) => failed(other, stderr),
    }
}

fn failed(failure: Failure, stderr: String) -> Conversation {
    let said = stderr.clone();
    let stderr = Some(stderr).filter(|text| !text.is_empty());
    Conversation { outcome: Outcome::Failed(failure), stderr, said }
}

fn listen(
    child: &mut dyn Child,
    limit: Duration,
    elapsed: &dyn Fn() -> Duration,
    hear: &mut dyn FnMut(Message),
) -> Option<Failure> {
    let mut finished = false;
    loop {
        let timed_out = || Some(Failure::TimedOut(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)));
        let left = limit.saturating_sub(elapsed());
        if left.is_zero() && !finished {
            return timed_out();
        }
        let line = match child.next(left) {
            Incoming::Line(line) => line,
            Incoming::Closed if finished => return None,
            Incoming::Closed => return Some(Failure::Crashed(String::new())),
            Incoming::Silence => return timed_out(),
        };
        match serde_json::from_slice(&line) {
            Ok(Message::Failed(why)) => return Some(Failure::Reported(why)),
            Ok(_) | Err(_) if finished => return Some(Failure::Garbled(shown(&line))),
            Ok(message) => {
                finished = matches!(message, Message::Finished { .. });
                hear(message);
            }
            Err(_) => return Some(Failure::Garbled(shown(&line))),
        }
    }
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().take(SHOWN).collect()
}
