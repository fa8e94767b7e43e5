//! One run of the program under limits of memory and time, and what is wrong with how it ended.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anemeter::text::is_unseen;
use anyhow::Result;

/// What a run may take.
const MEMORY: u64 = 2 << 30;
const TIME: Duration = Duration::from_secs(20);

/// What a run came to.
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// What must never be.
    pub(super) fault: Option<String>,
    pub(super) peak: u64,
    pub(super) time: Duration,
}

/// Runs a command to its end, or until it exceeds its limits; what it prints goes to files of a folder.
pub(super) fn run(command: &mut Command, folder: &Path) -> Result<Ended> {
    let (out, err) = (folder.join(".stdout"), folder.join(".stderr"));
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
    let began = Instant::now();
    let mut child = command.spawn()?;
    let (status, peak, exceeded) = wait(&mut child, began)?;
    let time = began.elapsed();
    let (stdout, stderr) = (text(&out)?, text(&err)?);
    fs::remove_file(&out)?;
    fs::remove_file(&err)?;
    let mut ended =
        Ended { code: status.and_then(|status| status.code()), stdout, stderr, fault: None, peak, time };
    ended.fault = exceeded.or_else(|| ended.fault());
    Ok(ended)
}

/// Waits; a run that exceeds its limits is ended.
fn wait(child: &mut Child, began: Instant) -> Result<(Option<ExitStatus>, u64, Option<String>)> {
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((Some(status), peak, None));
        }
        peak = peak.max(high_water(&status_file));
        let exceeded = match (peak > MEMORY, began.elapsed() > TIME) {
            (true, _) => Some(format!("more than {} MiB of memory", MEMORY >> 20)),
            (_, true) => Some(format!("did not end within {} s", TIME.as_secs())),
            _ => None,
        };
        if exceeded.is_some() {
            child.kill()?;
            child.wait()?;
            return Ok((None, peak, exceeded));
        }
        let young = began.elapsed() < Duration::from_millis(100);
        thread::sleep(Duration::from_millis(if young { 1 } else { 5 }));
    }
}

/// The most memory that a process has had, in bytes.
fn high_water(status: &str) -> u64 {
    let text = fs::read_to_string(status).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// The start of what was printed, as text.
fn text(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Ended {
    fn fault(&self) -> Option<String> {
        let Self { code, stdout, stderr, .. } = self;
        let forged = |text: &str| {
            let is_command = |line: &str| line.trim_start().starts_with("::") || line.contains("##[");
            let hidden = text.chars().any(|c| is_unseen(c) && c != '\n');
            hidden || text.lines().any(is_command)
        };
        match code {
            None => Some("was ended by a signal".to_owned()),
            Some(code) if !(0..=4).contains(code) => Some(format!("ended with exit code {code}")),
            _ if stderr.contains("panicked at") => Some("panicked".to_owned()),
            Some(2) if !stderr.contains("error: ") => Some("ended with exit code 2 and no error".to_owned()),
            _ if stderr.matches("error: ").count() > stderr.matches("\\nerror: ").count() + 1 => {
                Some("an error that has another in it".to_owned())
            }
            _ if forged(stderr) => Some("control characters or commands on standard error".to_owned()),
            _ if forged(stdout) => Some("control characters or commands on standard output".to_owned()),
            _ => None,
        }
    }
}
