//! Why a reference could not be opened or run.

use anemeter_convert::checkpoint::ConfigError;
use anemeter_harness::verify::OracleError;

/// The first line of what candle says: with backtraces on, it says them too.
pub(super) fn computation(architecture: &'static str, error: &candle_core::Error) -> OracleError {
    let message = error.to_string().lines().next().unwrap_or_default().to_owned();
    OracleError::Computation { architecture, message }
}

/// What can go wrong inside a reference.
#[derive(Debug)]
pub(super) enum Problem {
    Config(ConfigError),
    Candle(candle_core::Error),
}

/// Result of the parts of a reference.
pub(super) type Result<T> = std::result::Result<T, Problem>;

impl Problem {
    pub(super) fn of(self, architecture: &'static str) -> OracleError {
        match self {
            Problem::Config(error) => OracleError::Config(error),
            Problem::Candle(error) => computation(architecture, &error),
        }
    }
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Problem {
        Problem::Config(error)
    }
}

impl From<candle_core::Error> for Problem {
    fn from(error: candle_core::Error) -> Problem {
        Problem::Candle(error)
    }
}
