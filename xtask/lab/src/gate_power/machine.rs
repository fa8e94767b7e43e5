//! Simulated machines: how launches, sessions and requests vary, from a quiet desktop to a laptop in use.

/// How a machine varies. Sizes are logarithms: 0.01 is one per cent.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    /// Deviation of whole sessions, in part common to all metrics.
    pub(crate) session: f64,
    /// Deviation of launches, in part common to all metrics.
    pub(crate) launch: f64,
    /// Deviation of requests, correlated from one to the next by `request_memory`.
    pub(crate) request: f64,
    pub(crate) request_memory: f64,
    /// Share of requests that are much slower, and by how much on average.
    pub(crate) outliers: (f64, f64),
    /// Chance that a burst of other work begins at a request, its mean length in requests, and its size.
    pub(crate) bursts: (f64, f64, f64),
    /// By how much a session slows down as the machine heats up.
    pub(crate) heat: f64,
    /// Share of launches that come out in a slower mode, and by how much.
    pub(crate) slow_mode: (f64, f64),
    /// Size of an oscillation from launch to launch, with a period near four.
    pub(crate) oscillation: f64,
    /// Milliseconds that the clock counts in.
    pub(crate) tick_ms: f64,
    /// Deviation of the canary.
    pub(crate) canary: f64,
}

const TYPICAL: Machine = Machine {
    name: "typical",
    session: 0.007,
    launch: 0.010,
    request: 0.015,
    request_memory: 0.4,
    outliers: (0.01, 0.12),
    bursts: (0.001, 6.0, 0.08),
    heat: 0.01,
    slow_mode: (0.0, 0.0),
    oscillation: 0.002,
    tick_ms: 0.001,
    canary: 0.004,
};

/// The machines that gates are scored on. Launches of one binary are reported to differ by 0.5 to 2 %.
pub(crate) const MACHINES: [Machine; 5] = [
    Machine {
        name: "quiet",
        session: 0.003,
        launch: 0.004,
        request: 0.008,
        request_memory: 0.3,
        outliers: (0.002, 0.1),
        bursts: (0.0, 0.0, 0.0),
        heat: 0.004,
        slow_mode: (0.0, 0.0),
        oscillation: 0.0,
        tick_ms: 0.001,
        canary: 0.002,
    },
    TYPICAL,
    Machine {
        name: "noisy",
        session: 0.015,
        launch: 0.025,
        request: 0.05,
        request_memory: 0.5,
        outliers: (0.04, 0.25),
        bursts: (0.006, 8.0, 0.15),
        heat: 0.02,
        slow_mode: (0.0, 0.0),
        oscillation: 0.005,
        tick_ms: 0.1,
        canary: 0.01,
    },
    Machine { name: "bursty", bursts: (0.008, 20.0, 0.2), oscillation: 0.01, canary: 0.006, ..TYPICAL },
    Machine {
        name: "two modes",
        session: 0.006,
        launch: 0.007,
        request: 0.012,
        request_memory: 0.4,
        outliers: (0.005, 0.1),
        bursts: (0.0005, 6.0, 0.08),
        heat: 0.008,
        slow_mode: (0.3, 0.07),
        oscillation: 0.0,
        tick_ms: 0.001,
        canary: 0.004,
    },
];
