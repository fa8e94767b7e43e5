//! The server: a listener, connections, and a thread per session.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use std::{io, thread};

use anemeter_base::contain::Panicked;
use anemeter_harness::generate::Generator;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use log::debug;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Semaphore, watch};

use crate::error::ApiError;
use crate::event::Event;
use crate::metrics::Metrics;
use crate::options::{Limits, ServeOptions, Served};
use crate::queue::{Queue, Queued};
use crate::routes;
use crate::session;
use crate::task::Task;

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("{address}: cannot listen: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The system gives no thread, or no way to wait for connections.
    #[error("cannot start: {0}")]
    Start(io::Error),
    /// A session came to an end that nobody asked for.
    #[error("a session ended while it answered a request: {0}")]
    Session(Panicked),
}

impl anemeter_base::advice::Advice for ServeError {
    fn remedy(&self) -> Option<anemeter_base::advice::Remedy> {
        match self {
            ServeError::Listen { .. } => Some("choose another address or port".into()),
            ServeError::Start(_) | ServeError::Session(_) => None,
        }
    }

    fn is_environment(&self) -> bool {
        true
    }
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) served: Served,
    pub(crate) api_key: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    queue: Queue,
}

impl Shared {
    /// Queues tasks that belong together; gives the events of each.
    pub(crate) fn submit(&self, tasks: Vec<Task>) -> Result<Vec<UnboundedReceiver<Event>>, ApiError> {
        let most = self.limits.waiting;
        if tasks.len() > most {
            let problem = format!("asks for {} sequences, and {most} may wait", tasks.len());
            return Err(ApiError::parameter("prompt", problem));
        }
        let arrived = Instant::now();
        let (queued, receivers) = tasks
            .into_iter()
            .map(|task| {
                let (events, receiver) = unbounded_channel();
                (Queued { task, events, arrived }, receiver)
            })
            .unzip();
        let full = |_| {
            let status = hyper::StatusCode::SERVICE_UNAVAILABLE;
            ApiError::with_status(status, format!("{} requests wait already", self.limits.waiting))
        };
        self.queue.push(queued).map(|()| receivers).map_err(full)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }
}

/// Asks a server to end: it takes no more connections, and running answers have a while to end.
#[derive(Debug, Clone)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Asks for the end.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// A server that listens.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Listens; connections wait until [`Server::run`].
    pub fn bind(served: Served, options: ServeOptions) -> Result<Server, ServeError> {
        let ServeOptions { address, api_key, limits } = options;
        let listen = || {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = listen().map_err(|source| ServeError::Listen { address, source })?;
        let queue = Queue::new(limits.waiting);
        let shared = Shared { served, api_key, limits, metrics: Metrics::default(), queue };
        Ok(Server { listener, address, shared: Arc::new(shared), stop: watch::Sender::new(false) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A way to end it from anywhere.
    pub fn stop(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Serves with a thread per generator until it is asked to end.
    pub fn run(self, generators: Vec<Generator>) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(ServeError::Start)?;
        let (shared, stop) = (self.shared, self.stop);
        let panicked = Mutex::new(None);
        thread::scope(|scope| {
            // Whatever happens in here, the threads of the scope end with the queue.
            let _closing = Closing(&shared);
            for (number, generator) in generators.into_iter().enumerate() {
                let (shared, stop, panicked) = (&shared, &stop, &panicked);
                let work = move || {
                    if let Err(panic) = session::work(generator, &shared.queue, &shared.metrics) {
                        *panicked.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                        stop.send_replace(true);
                    }
                };
                let name = format!("session-{number}");
                thread::Builder::new().name(name).spawn_scoped(scope, work).map_err(ServeError::Start)?;
            }
            let ended = runtime.block_on(accept(self.listener, Arc::clone(&shared), stop.subscribe()));
            // Connections that are left hold the receivers of running answers, which go on as long as those do.
            runtime.shutdown_background();
            ended
        })?;
        match panicked.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(panic) => Err(ServeError::Session(panic)),
            None => Ok(()),
        }
    }
}

/// Closes the queue at the end.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

async fn accept(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), ServeError> {
    let listener = TcpListener::from_std(listener).map_err(ServeError::Start)?;
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(shared.limits.connections));
    loop {
        let accepted = tokio::select! {
            accepted = place_and_connection(&listener, &places) => accepted,
            // The sender lives as long as the server, so the wait ends with a stop only.
            _ = stop.wait_for(|is_over| *is_over) => break,
        };
        let (place, stream) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many open files pass; an address that went away does not come back, but a stop still ends it.
                debug!("accept: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let answering = answer_all(stream, &shared, &graceful);
        tokio::spawn(async move {
            answering.await;
            drop(place);
        });
    }
    drop(listener);
    let ended = tokio::time::timeout(shared.limits.grace, graceful.shutdown()).await;
    if ended.is_err() {
        debug!("connections are cut after {:?}", shared.limits.grace);
    }
    Ok(())
}

async fn place_and_connection(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(tokio::sync::OwnedSemaphorePermit, TcpStream)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Tokens are small and must not wait for more.
    stream.set_nodelay(true)?;
    Ok((place, stream))
}

/// Answers the requests of a connection until it is closed.
fn answer_all(
    stream: TcpStream,
    shared: &Arc<Shared>,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + use<> {
    let service = {
        let shared = Arc::clone(shared);
        service_fn(move |request| {
            let reply = routes::answer(Arc::clone(&shared), request);
            async move { Ok::<_, Infallible>(reply.await) }
        })
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(shared.limits.arrival).max_buf_size(64 << 10);
    let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
    async move {
        if let Err(error) = connection.await {
            debug!("connection: {error}");
        }
    }
}
