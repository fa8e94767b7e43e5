//! Reading files that were named by somebody: only regular ones, and only as much as was agreed on.
//!
//! A pipe or a device in the place of a file could block, never end, or take all memory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// What a file of settings may have.
pub const SETTINGS: u64 = 16 << 20;
/// What a file of texts may have.
pub const TEXTS: u64 = 256 << 20;

/// Opens a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    regular(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    // Another may be in its place by now.
    regular(&file.metadata()?)?;
    Ok(file)
}

/// The content of a regular file of at most so many bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    if length > most {
        return Err(too_long(length, most));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(most + 1).read_to_end(&mut bytes)?;
    within(bytes, most)
}

/// The same as text.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text(read(path, most)?)
}

/// The text of a stream, such as standard input, of at most so many bytes.
pub fn read_stream(from: impl Read, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    text(within(bytes, most)?)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    let no_text = |e: std::string::FromUtf8Error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("is not UTF-8: {}", e.utf8_error()))
    };
    String::from_utf8(bytes).map_err(no_text)
}

fn within(bytes: Vec<u8>, most: u64) -> io::Result<Vec<u8>> {
    let length = bytes.len() as u64;
    if length > most { Err(too_long(length, most)) } else { Ok(bytes) }
}

fn too_long(length: u64, most: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("has {length} bytes or more, at most {most} are read"),
    )
}

fn regular(found: &fs::Metadata) -> io::Result<()> {
    match found {
        found if found.is_file() => Ok(()),
        found if found.is_dir() => {
            Err(io::Error::new(io::ErrorKind::IsADirectory, "is a folder, expected a file"))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        crate::atomic::write_file(&path, "é".as_bytes()).unwrap();
        assert_eq!(read_text(&path, 2).unwrap(), "é");
        assert!(read(&path, 1).unwrap_err().to_string().contains("at most 1 are read"));
        assert!(read_stream(io::repeat(b'a'), 9).unwrap_err().to_string().contains("at most 9 are read"));
        crate::atomic::write_file(&path, b"\xff").unwrap();
        assert!(read_text(&path, 2).unwrap_err().to_string().contains("is not UTF-8"));
    }

    #[cfg(unix)]
    #[test]
    fn pipes_devices_and_folders_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&pipe, Path::new("/dev/zero")] {
            assert_eq!(read(path, 9).unwrap_err().to_string(), "is not a regular file");
        }
        assert_eq!(read(folder.path(), 9).unwrap_err().to_string(), "is a folder, expected a file");
    }
}
