//! Pages in headless Chromium: what they say, what they complain of, what they ask of the network, how they look.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use xtask::process::works;

/// A page as the browser has it.
pub(crate) struct Page {
    /// The document after scripts and styles have done their work.
    pub(crate) document: String,
    /// What was written to the console.
    pub(crate) console: Vec<String>,
    /// Addresses that were asked for, other than the page's own.
    pub(crate) requests: Vec<String>,
}

/// A colour scheme that a reader may prefer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scheme {
    Dark,
    Light,
}

/// Chromium, installed from Debian's package if it is missing; `None` if that cannot be done.
pub(crate) fn chromium() -> Option<PathBuf> {
    let find = || {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        names.iter().find(|name| works(Command::new(name).arg("--version"))).map(PathBuf::from)
    };
    find().or_else(|| {
        let apt = |arguments: &[&str]| {
            works(Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
        };
        apt(&["update"]);
        apt(&["install", "--yes", "--no-install-recommends", "chromium"]).then(find)?
    })
}

/// Opens a page and reads it.
pub(crate) fn read(chromium: &Path, page: &Path) -> Result<Page> {
    let scratch = tempfile::tempdir()?;
    let log = scratch.path().join("net.json");
    let output = start(chromium, scratch.path())
        .arg("--dump-dom")
        .arg("--enable-logging=stderr")
        .arg(format!("--log-net-log={}", log.display()))
        .arg(address(page)?)
        .output()
        .context("start Chromium")?;
    ensure!(output.status.success(), "Chromium failed ({}) on {}", output.status, page.display());
    let said = String::from_utf8_lossy(&output.stderr);
    let console = said.lines().filter(|line| line.contains(":CONSOLE")).map(ToOwned::to_owned).collect();
    let document = String::from_utf8(output.stdout).context("the document is not text")?;
    let log = fs::read_to_string(&log).context("Chromium kept no log of its requests")?;
    Ok(Page { document, console, requests: requests(&log) })
}

/// Takes a picture of a page.
pub(crate) fn picture(chromium: &Path, page: &Path, scheme: Scheme, picture: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let preferred = match scheme {
        Scheme::Dark => 0,
        Scheme::Light => 1,
    };
    let status = start(chromium, scratch.path())
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("--blink-settings=preferredColorScheme={preferred}"))
        .args(["--window-size=1200,3200", "--hide-scrollbars"])
        .arg(address(page)?)
        .output()
        .context("start Chromium")?
        .status;
    ensure!(status.success() && picture.is_file(), "Chromium took no picture of {}", page.display());
    Ok(())
}

fn start(chromium: &Path, scratch: &Path) -> Command {
    let mut command = Command::new(chromium);
    // Containers and the superuser have no sandbox to offer; the pages are the project's own.
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ]);
    command.args(["--disable-component-update", "--disable-sync", "--disable-quic"]);
    command.arg(format!("--user-data-dir={}", scratch.join("profile").display()));
    command
}

fn address(page: &Path) -> Result<String> {
    let path = page.canonicalize().with_context(|| format!("{}", page.display()))?;
    Ok(format!("file://{}", path.display()))
}

/// Addresses in a log of the network that a page asked for. The browser's own errands have no origin.
fn requests(log: &str) -> Vec<String> {
    let log: Value = serde_json::from_str(log).unwrap_or_default();
    let events = log["events"].as_array().map_or(&[][..], Vec::as_slice);
    let of_page =
        |event: &&Value| event["params"]["initiator"].as_str().is_some_and(|by| by != "not an origin");
    let addresses = events.iter().filter(of_page).filter_map(|event| event["params"]["url"].as_str());
    let mut addresses: Vec<String> = addresses
        .filter(|address| {
            ["http:", "https:", "ws:", "wss:", "ftp:"].iter().any(|scheme| address.starts_with(scheme))
        })
        .map(ToOwned::to_owned)
        .collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_addresses_on_a_network() {
        let log = r#"{"events": [
            {"params": {"url": "file:///report.html", "initiator": "null"}}, {},
            {"params": {"url": "https://github.com/own", "initiator": "not an origin"}},
            {"params": {"url": "https://github.com/font", "initiator": "null"}},
            {"params": {"url": "https://github.com/font"}}]}"#;
        assert_eq!(requests(log), ["https://github.com/font"]);
    }
}
