//! A folder as a .tar.gz, the same bytes for the same content.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// Writes a folder as an archive in which it has this name. Times and owners are left out.
pub(super) fn write(folder: &Path, name: &str, archive: &Path) -> Result<()> {
    let file = BufWriter::new(File::create(archive).with_context(|| format!("write {}", archive.display()))?);
    let encoder: GzEncoder<_> = GzBuilder::new().mtime(0).write(file, Compression::best());
    let mut builder = Builder::new(encoder);
    for path in files(folder)? {
        let inside = Path::new(name).join(path.strip_prefix(folder)?);
        let bytes = fs::read(&path)?;
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(bytes.len() as u64);
        header.set_mode(if is_program(&path) { 0o755 } else { 0o644 });
        header.set_mtime(0);
        builder.append_data(&mut header, &inside, &bytes[..])?;
    }
    builder.into_inner()?.finish()?;
    Ok(())
}

fn is_program(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| name == "anemeter")
        && path.extension().is_none_or(|extension| extension == "exe")
}

/// All files below a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_gives_the_same_archive() {
        let folder = tempfile::tempdir().unwrap();
        let content = folder.path().join("content");
        fs::create_dir_all(content.join("man")).unwrap();
        fs::write(content.join("anemeter"), "program").unwrap();
        fs::write(content.join("man/anemeter.1"), "page").unwrap();
        let archives = ["a.tar.gz", "b.tar.gz"].map(|name| folder.path().join(name));
        for archive in &archives {
            write(&content, "anemeter-1", archive).unwrap();
        }
        assert_eq!(fs::read(&archives[0]).unwrap(), fs::read(&archives[1]).unwrap());
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&archives[0]).unwrap()));
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap())
        });
        let expected = [("anemeter-1/anemeter", 0o755), ("anemeter-1/man/anemeter.1", 0o644)];
        assert_eq!(entries.collect::<Vec<_>>(), expected.map(|(path, mode)| (path.to_owned(), mode)));
    }
}
