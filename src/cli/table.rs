//! Tables fit the terminal.

use std::io::{IsTerminal, stdout};

/// Makes tables fit the terminal, or `COLUMNS` if that is set. Into pipes and files they go as wide as they are.
pub(super) fn fit_to_terminal() {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || {
        let (width, _) = stdout().is_terminal().then(terminal_size::terminal_size)??;
        Some(usize::from(width.0))
    };
    if let Some(columns) = asked.or_else(terminal).filter(|&columns| columns > 0) {
        crate::render::fit_tables(columns);
    }
}
