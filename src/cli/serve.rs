//! `anemeter serve`: the OpenAI interface over a bundle.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::choice::{AUTO, OrAuto, bundle_runtime, choice};
use super::inputs::open_bundle;
use super::interrupt;
use super::output::{note, warn};
use super::python::{PythonArg, say_engine};
use super::{Failure, Output, Result, Status};
use crate::bundle::Bundle;
use crate::generate::{Driver, Generator, SystemClock, Text, sessions};
use crate::runtime::{self, LoadOptions, Runtime};
use crate::serve::{Limits, ServeOptions, Served, Server};
use crate::vocabulary::{ComputeUnits, KvForm, RuntimeName};

/// Where the key can be that requests must bear.
const KEY: &str = "ANEMETER_API_KEY";

/// Serve a bundle over the OpenAI interface, for evaluation and load tools, with a page to talk to the model.
#[derive(clap::Args)]
#[command(
    after_help = "Paths: /v1/models, /v1/completions (with echo and logprobs), /v1/chat/completions, /health, /metrics\n\
(Prometheus) and a page at /. Interrupting it once lets running answers end, twice ends it at once.\n\n\
Examples:\n  anemeter serve bundle\n  anemeter serve bundle --port 9000 --sessions 2\n  \
ANEMETER_API_KEY=secret anemeter serve bundle --host 0.0.0.0"
)]
pub(super) struct Args {
    /// The bundle to serve; a package or a folder of packages with a contract works too.
    bundle: PathBuf,
    /// Address to listen on.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on; 0 takes any free port.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Requests that are worked on at once; each session holds its own caches.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    sessions: u16,
    /// Requests that may wait for a session; more are refused with status 503.
    #[arg(long, value_name = "N", default_value_t = Limits::default().waiting)]
    max_waiting: usize,
    /// Largest body of a request, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().body)]
    max_body: usize,
    /// Key that requests must bear as `Authorization: Bearer KEY` [default: that of ANEMETER_API_KEY, or none].
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// KV cache form [default: the bundle's first].
    #[arg(long, value_name = "FORM", value_parser = choice::<KvForm>())]
    kv: Option<KvForm>,
    /// Runtime that executes the bundle; `auto` takes the first that is available and prints its name.
    #[arg(long, default_value = AUTO, value_parser = bundle_runtime())]
    runtime: OrAuto<RuntimeName>,
    #[command(flatten)]
    python: PythonArg,
    /// Compute units that Core ML may use [default: those of the bundle].
    #[arg(long, value_name = "UNITS", value_parser = choice::<ComputeUnits>())]
    compute_units: Option<ComputeUnits>,
    /// Threads of the `cpu` runtime [default: the number of physical cores].
    #[arg(long, value_parser = crate::cli::threads::count)]
    threads: Option<u16>,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    args.python.apply();
    let bundle = open_bundle(&args.bundle)?;
    bundle.check_generates()?;
    let runtime = runtime::choose(args.runtime.given())?;
    say_engine(runtime);
    let units = args.compute_units.unwrap_or(bundle.manifest().compute_units());
    let served = Served {
        model: bundle.manifest().name.clone(),
        engine: engine(runtime, units),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    };
    let server = Server::bind(served, options(args)?)?;
    let generators = generators(args, &bundle, runtime, units)?;
    let stop = server.stop();
    interrupt::take(move || {
        note("note: no more connections are taken; running answers have a while to end");
        stop.stop();
    });
    if !args.host.is_loopback() && args.api_key.is_none() && std::env::var_os(KEY).is_none() {
        warn("warning: anybody who reaches this address can use the model: --api-key KEY");
    }
    output.line(format_args!("{} on {}", bundle.manifest().name, engine(runtime, units)))?;
    output.line(format_args!("listening on http://{}", server.address()))?;
    output.flush()?;
    server.run(generators)?;
    Ok(Status::Good)
}

fn options(args: &Args) -> Result<ServeOptions> {
    let api_key = match &args.api_key {
        Some(key) => Some(key.clone()),
        None => std::env::var(KEY).ok(),
    };
    if api_key.as_ref().is_some_and(|key| key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        return Err(Failure::bad_input("the key is empty or has characters that a header cannot bear")
            .with_help("use letters, digits and punctuation of ASCII"));
    }
    let limits = Limits { body: args.max_body, waiting: args.max_waiting, ..Limits::default() };
    Ok(ServeOptions { address: SocketAddr::new(args.host, args.port), api_key, limits })
}

/// A generator per session. They share the tokenizer.
fn generators(
    args: &Args,
    bundle: &Bundle,
    runtime: &dyn Runtime,
    units: ComputeUnits,
) -> Result<Vec<Generator>> {
    let options = LoadOptions { threads: args.threads.map(usize::from), units, ..LoadOptions::default() };
    let clock = Arc::new(SystemClock::default());
    let text = Text::open(bundle, Some(SystemTime::now()))?.map(Arc::new);
    let generator = |_| {
        let driver = Driver::new(bundle, sessions(bundle, runtime, &options)?, args.kv, clock.clone())?;
        Ok(Generator::new(driver, text.clone(), clock.clone()))
    };
    (0..args.sessions).map(generator).collect()
}

/// What executes the model, as clients are told: a time of one runtime says nothing about another.
fn engine(runtime: &dyn Runtime, units: ComputeUnits) -> String {
    match runtime.name() {
        RuntimeName::Cpu => "the CPU runtime of anemeter".to_owned(),
        name => format!("{name}, compute units {units}"),
    }
}
