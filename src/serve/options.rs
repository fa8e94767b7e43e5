//! What is served, to whom, and within which limits.

use std::net::SocketAddr;
use std::time::Duration;

/// How a server is reached and what it takes.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where to listen; port 0 takes any free port.
    pub address: SocketAddr,
    /// The key that requests must bear, if any. `/`, `/health` and `/metrics` need none.
    pub api_key: Option<String>,
    /// Bounds on what clients may ask for.
    pub limits: Limits,
}

/// Bounds on what clients may ask for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest body of a request, in bytes.
    pub body: usize,
    /// Requests that may wait for a session.
    pub waiting: usize,
    /// Sequences that one request may ask for: prompts times `n`.
    pub sequences: usize,
    /// Open connections.
    pub connections: usize,
    /// Longest time for a request to arrive whole.
    pub arrival: Duration,
    /// Longest time for running answers to end once the server is to stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body: 2 << 20,
            waiting: 64,
            sequences: 64,
            connections: 256,
            arrival: Duration::from_secs(20),
            grace: Duration::from_secs(10),
        }
    }
}

/// What is served, as clients are told.
#[derive(Debug, Clone)]
pub struct Served {
    /// The model's name, which requests may repeat.
    pub model: String,
    /// What executes it, for the page: runtime and compute units.
    pub engine: String,
    /// When the model was loaded, in seconds since 1970.
    pub created: u64,
}
