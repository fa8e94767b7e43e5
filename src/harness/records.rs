//! Reads the records beside `export.json`: what `verify` and `eval` found out about the packages or assets of a bundle.

use std::fs;
use std::path::Path;

use anemeter_base::files;
use anemeter_base::vocabulary::RuntimeName;
use anemeter_convert::bundle::{Bundle, BundleError};
use anemeter_measure::report::Record;

/// The largest record that is read.
const LARGEST: u64 = 16 << 20;

/// What a command recorded about what a runtime executes of a bundle. `None` if it recorded nothing, or something about
/// other packages, as it is after a new export into the same folder.
pub fn read<R: Record>(bundle: &Bundle, runtime: RuntimeName) -> Result<Option<R>, BundleError> {
    let digests = || bundle.manifest().digests_of(runtime);
    Ok(read_any::<R>(bundle)?.filter(|record| digests().eq(record.package_digests())))
}

/// What a command recorded beside a bundle, whatever packages it is about.
pub fn read_any<R: Record>(bundle: &Bundle) -> Result<Option<R>, BundleError> {
    let path = bundle.path(R::FILE);
    let refuse = |message: String| BundleError::new(&path, message).with_help(R::REMEDY);
    let Some(text) = text(&path).map_err(refuse)? else { return Ok(None) };
    R::parse(&text).map(Some).map_err(|error| refuse(error.to_string()))
}

fn text(path: &Path) -> Result<Option<String>, String> {
    match fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("cannot be read: {e}")),
        Ok(_) => files::read_text(path, LARGEST).map(Some).map_err(|e| format!("cannot be read: {e}")),
    }
}
