//! Records beside a bundle: how they are written.

use super::output::note;
use super::{Failure, Result};
use crate::atomic::write_file;
use crate::bundle::Bundle;
use crate::report::Record;

pub(super) fn write<R: Record>(bundle: &Bundle, record: &R) -> Result<()> {
    if !bundle.is_on_disk() {
        // The folder of packages that others made is theirs.
        note(format_args!(
            "not recorded: a bundle keeps {}, and `anemeter adopt` makes one of packages",
            R::FILE
        ));
        return Ok(());
    }
    let path = bundle.path(R::FILE);
    let text = record.to_json().map_err(|e| Failure::at(&path, e))?;
    write_file(&path, text.as_bytes()).map_err(|e| {
        Failure::at(&path, format_args!("cannot be written: {e}"))
            .with_help("`bench`, `bless` and `gate` rely on the record; to do without it: --no-record")
    })
}
