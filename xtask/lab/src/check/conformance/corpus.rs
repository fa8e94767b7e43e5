//! The conformance corpus: packages with inputs and expected outputs, unpacked below `target/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use xtask::process::succeed;
use xtask::project::Project;

/// The folder of unpacked cases, or nothing where the archive is not at hand.
pub(super) fn unpack(project: &Project) -> Result<Option<PathBuf>> {
    let archive = project.shared.join("conformance/open.tar.xz");
    if !archive.is_file() {
        return Ok(None);
    }
    let folder = project.target.join("conformance");
    let (cases, stamp_file) = (folder.join("open"), folder.join("open.stamp"));
    let metadata = archive.metadata()?;
    let stamp = format!("{} bytes, modified {:?}\n", metadata.len(), metadata.modified()?);
    if fs::read_to_string(&stamp_file).is_ok_and(|old| old == stamp) {
        return Ok(Some(cases));
    }
    if cases.exists() {
        fs::remove_dir_all(&cases)?;
    }
    fs::create_dir_all(&folder)?;
    succeed(project.command("tar").arg("-xJf").arg(&archive).arg("-C").arg(&folder))?;
    if !cases.is_dir() {
        bail!("{} has no folder `open`", archive.display());
    }
    fs::write(stamp_file, stamp)?;
    Ok(Some(cases))
}

/// The sub-folders of a folder for which `wanted` holds, in name order.
pub(crate) fn folders(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if wanted(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
