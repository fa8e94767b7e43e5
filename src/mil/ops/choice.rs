//! String parameters that choose between a few behaviours.

use crate::op::{Call, Result};

/// What the given or default value of a parameter stands for. Letter case is ignored.
pub(super) fn choice<T: Copy>(call: &Call<'_>, name: &str, options: &[(&str, T)]) -> Result<T> {
    let given = call.text(name)?;
    match options.iter().find(|option| option.0.eq_ignore_ascii_case(given)) {
        Some(option) => Ok(option.1),
        None => {
            let known: Vec<_> = options.iter().map(|option| format!("`{}`", option.0)).collect();
            Err(op_error!("`{name}` is `{given}`, not one of {}", known.join(", ")))
        }
    }
}
