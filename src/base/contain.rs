//! Work that other crates do on outside data, kept from ending the program: a panic in it becomes an error.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Work that panicked, and what it said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Panicked(pub String);

/// Does the work; if it panics, nothing is printed. What the work was about to change is not to be used after that.
pub fn contained<R>(work: impl FnOnce() -> R) -> Result<R, Panicked> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CONTAINED.get() {
                usual(info);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(outer);
    done.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Panicked(text.unwrap_or("no reason given").to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(contained(|| 1), Ok(1));
        let nothing: &[u8] = &[];
        let said = contained(|| nothing.first().copied().expect("there is nothing")).unwrap_err();
        assert_eq!(said.to_string(), "there is nothing");
        assert_eq!(
            contained(|| contained(|| panic!("inner {}", 1))),
            Ok(Err::<(), _>(Panicked("inner 1".to_owned())))
        );
    }
}
