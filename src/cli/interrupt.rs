//! Signals that ask the program to end: unfinished files go, and the exit code tells the signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::{io, thread};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::output::warn;
use super::{Status, shrunk};
use crate::atomic;

/// Whether the program is on its way out.
static ENDING: AtomicBool = AtomicBool::new(false);

/// What a shell adds to a signal to make an exit code of it.
const BY_SIGNAL: i32 = 128;

/// What the first signal does instead of ending the program.
static TAKEN: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// Lets a command end by itself when it is asked to for the first time. Only `serve` has answers to finish.
#[cfg(feature = "serve")]
pub(super) fn take(on_signal: impl Fn() + Send + Sync + 'static) {
    // A command takes it once.
    let _ = TAKEN.set(Box::new(on_signal));
}

/// From now on, interrupts and requests to end are obeyed in good order; a second one at once. SIGHUP stays as it is:
/// `nohup` relies on that.
pub(super) fn watch() -> io::Result<()> {
    let ending = Arc::new(AtomicBool::new(false));
    let wanted = [SIGINT, SIGTERM];
    for signal in wanted {
        flag::register_conditional_shutdown(signal, BY_SIGNAL + signal, Arc::clone(&ending))?;
        flag::register(signal, Arc::clone(&ending))?;
    }
    // By default, a file that grows beyond its limit ends the process on the spot; handled, the write fails instead.
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    shrunk::watch()?;
    let mut signals = Signals::new(wanted)?;
    thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            match TAKEN.get() {
                Some(on_signal) => on_signal(),
                None => end(signal),
            }
        }
    })?;
    Ok(())
}

#[expect(clippy::exit, reason = "the work in hand cannot be unwound from here, and must not go on")]
fn end(signal: i32) -> ! {
    ENDING.store(true, Ordering::SeqCst);
    let left = atomic::abandon();
    let shrunk = shrunk::problem();
    match &shrunk {
        Some(problem) => {
            warn(format_args!("error: {problem}"));
            warn("help: let nothing write to it, and run the command again");
        }
        None => warn("interrupted"),
    }
    for path in left {
        warn(format_args!("warning: {} could not be removed", path.display()));
    }
    std::process::exit(shrunk.map_or(BY_SIGNAL + signal, |_| Status::BadInput as i32))
}

/// Waits for the end if the program is on its way out: what the work in hand says now is about files that were taken away.
pub(super) fn yield_to_it() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}
