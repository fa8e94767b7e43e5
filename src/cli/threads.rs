//! How many threads may be asked for, by a flag or by the environment.

use rayon::ThreadPoolBuilder;

use super::output::warn;

/// More threads than any machine has processors; the system refuses to start many more, some way into the work.
pub(super) const MOST: u16 = 1024;
/// What sets the number of threads of the pool that everything but predictions shares.
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// A number of threads.
pub(super) fn count(text: &str) -> Result<u16, String> {
    let found = text.parse().ok().filter(|count| (1..=MOST).contains(count));
    found.ok_or_else(|| format!("`{text}` is not a number of threads from 1 to {MOST}"))
}

/// The same where a number is a size.
pub(super) fn size(text: &str) -> Result<usize, String> {
    count(text).map(usize::from)
}

/// Keeps the environment from asking for more.
pub(super) fn bound_environment() {
    let asked = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<usize>().ok());
    if asked.is_some_and(|asked| asked > usize::from(MOST)) {
        warn(format_args!("warning: {VARIABLE} is above {MOST} and not used"));
        // It fails if there is a pool already, which nobody can have started yet.
        let _ = ThreadPoolBuilder::new().num_threads(num_cpus::get()).build_global();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_within_reason() {
        assert_eq!((count("1"), size("1024")), (Ok(1), Ok(1024)));
        for wrong in ["0", "1025", "100000", "-1", "x", ""] {
            assert!(count(wrong).unwrap_err().contains("is not a number of threads"), "{wrong}");
        }
    }
}
