//! A mapped file that another program makes shorter while it is read: the system raises SIGBUS for what is not there any
//! more, and would end the program without a word.
//!
//! This is one of the crate's unsafe islands: what a signal's handler may do is for its author to keep to.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

use signal_hook::consts::{SIGBUS, SIGTERM};
use signal_hook::low_level;

/// Whether it has happened, and the address that was read.
static HAPPENED: AtomicBool = AtomicBool::new(false);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);

/// From now on, such a fault ends the program in good order: the thread that read sleeps until the end, and the program is
/// asked to end as by a signal.
pub(super) fn watch() -> io::Result<()> {
    let fault = |info: &libc::siginfo_t| {
        // The other threads read the same file. A second request to end would be obeyed at once, without a word.
        if !HAPPENED.swap(true, Ordering::SeqCst) {
            // SAFETY: the system fills in the address of a fault for SIGBUS, the only signal that comes here.
            ADDRESS.store(unsafe { info.si_addr() }.addr(), Ordering::SeqCst);
            // A failure would leave the program asleep, which whoever waits can end.
            let _ = low_level::raise(SIGTERM);
        }
        loop {
            thread::sleep(Duration::from_secs(3600));
        }
    };
    // SAFETY: the handler stores to atomics, raises a signal and sleeps, all of which a handler may do; it takes no lock
    // and no memory, and never returns to the read that cannot be done.
    unsafe { signal_hook_registry::register_sigaction(SIGBUS, fault) }.map(drop)
}

/// What to say if that is why the program ends.
pub(super) fn problem() -> Option<String> {
    HAPPENED.load(Ordering::SeqCst).then(|| match file_at(ADDRESS.load(Ordering::SeqCst)) {
        Some(path) => format!("{path}: became shorter while it was read"),
        None => "a file became shorter while it was read".to_owned(),
    })
}

/// The file that is mapped at an address, where the system tells.
fn file_at(address: usize) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| file_of(line, address))
}

/// The file of a line such as `7f00-7fff r--p 00000000 fd:00 42    /path`, if the address is in it.
fn file_of(line: &str, address: usize) -> Option<String> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    let is_there = (number(start)?..number(end)?).contains(&address);
    let path = &rest[rest.find('/')?..];
    is_there.then(|| path.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_found_by_address() {
        let line = "7f00-7fff r--s 00000000 fd:00 42                         /tmp/a b.bin";
        assert_eq!(file_of(line, 0x7f80).as_deref(), Some("/tmp/a b.bin"));
        assert_eq!(file_of(line, 0x8000), None);
        assert_eq!(file_of("7f00-7fff rw-p 00000000 00:00 0 ", 0x7f80), None);
    }
}
