//! `cargo xtask check remote`: baselines in an object store, against an S3 server on this machine.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pico_args::Arguments;

use crate::python;
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::Project;

const WHAT: &str = "baselines in an object store";
const BUCKET: &str = "anemeter-test";
/// How long the server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that ends with this value.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(project: &Project, python: &std::path::Path) -> Result<Server> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = project.command(python);
        command.arg("xtask/python/s3_server.py").arg(port.to_string());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("start moto")?;
        let mut server = Server { child, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended early ({status})");
            }
            ensure!(start.elapsed() < PATIENCE, "the server did not start within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    /// Makes a bucket; the server does not ask for a signature.
    fn make_bucket(&self) -> Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let host = format!("127.0.0.1:{}", self.port);
        write!(
            stream,
            "PUT /{BUCKET} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let first = answer.lines().next().unwrap_or_default();
        ensure!(first.contains(" 200 "), "the server made no bucket: {first}");
        Ok(())
    }
}

pub(crate) fn run(project: &Project, _: Arguments) -> Result<Outcome> {
    let Some(python) = python::interpreter_with_moto(project)? else {
        return Ok(Outcome::not_checked(WHAT, "there is no python3"));
    };
    let server = Server::start(project, &python)?;
    server.make_bucket()?;
    let mut test = project.cargo(&["test", "--package", "anemeter-measure", "--features", "remote"]);
    test.args(["--lib", "baseline::", "--", "--include-ignored"]);
    test.env("ANEMETER_TEST_BUCKET", format!("s3://{BUCKET}"))
        .env("AWS_ENDPOINT", format!("http://127.0.0.1:{}", server.port))
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test");
    succeed(&mut test)?;
    Ok(Outcome::Checked("an S3 server keeps every baseline".to_owned()))
}
