//! Refusals and failures as the OpenAI interface writes them.

use anemeter_base::advice::Advice;
use anemeter_base::contain::Panicked;
use anemeter_harness::generate::GenerateError;
use hyper::StatusCode;
use serde_json::{Value, json};

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// The class of the problem, in the words of the interface.
    kind: &'static str,
    /// The parameter it is about.
    param: Option<&'static str>,
    message: String,
}

impl ApiError {
    /// The client asked for something that cannot be.
    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    pub(crate) fn parameter(name: &'static str, problem: impl Into<String>) -> ApiError {
        let message = format!("{name}: {}", problem.into());
        ApiError { param: Some(name), ..ApiError::bad_request(message) }
    }

    pub(crate) fn with_status(status: StatusCode, message: impl Into<String>) -> ApiError {
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            _ if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        ApiError::new(status, kind, message)
    }

    /// A defect of the server ended the answer.
    pub(crate) fn internal(panic: &Panicked) -> ApiError {
        let message = format!("a defect of the server ended the answer: {panic}");
        ApiError::with_status(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, kind, param: None, message: message.into() }
    }

    /// The body of the response.
    pub(crate) fn document(&self) -> Value {
        let ApiError { status, kind, param, message } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": status.as_u16()}})
    }
}

impl From<GenerateError> for ApiError {
    /// What a request makes impossible is the client's to mend; anything else is the server's.
    fn from(error: GenerateError) -> ApiError {
        let help = error.remedy().map(|remedy| format!(" ({remedy})")).unwrap_or_default();
        let message = format!("{error}{help}");
        match error {
            GenerateError::Request { .. } | GenerateError::Template(_) => ApiError::bad_request(message),
            _ => ApiError::with_status(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}
