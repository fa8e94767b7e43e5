//! Paths, and what answers them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};

use crate::api::{chat, completions, health, models, page, prometheus};
use crate::body::{Reply, document};
use crate::error::ApiError;
use crate::server::Shared;

/// What a handler gives in the end.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Reply, ApiError>> + Send>>;

/// A path and how it is answered.
struct Route {
    method: Method,
    path: &'static str,
    /// Whether it is answered without the key as well.
    is_open: bool,
    handle: fn(Arc<Shared>, Request<Incoming>) -> Answer,
}

const ROUTES: &[Route] = &[
    Route { method: Method::POST, path: "/v1/completions", is_open: false, handle: completions::handle },
    Route { method: Method::POST, path: "/v1/chat/completions", is_open: false, handle: chat::handle },
    Route { method: Method::GET, path: "/v1/models", is_open: false, handle: models::handle },
    Route { method: Method::GET, path: "/health", is_open: true, handle: health::handle },
    Route { method: Method::GET, path: "/metrics", is_open: true, handle: prometheus::handle },
    Route { method: Method::GET, path: "/", is_open: true, handle: page::handle },
];

/// Answers a request, whatever it is.
pub(crate) async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Reply {
    let metrics = Arc::clone(&shared);
    let reply = match route(shared, request).await {
        Ok(reply) => reply,
        Err(error) => refusal(&error),
    };
    metrics.metrics.responded(reply.status().as_u16());
    reply
}

async fn route(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Reply, ApiError> {
    let path = request.uri().path().to_owned();
    // A single model is listed and asked for by its name as well.
    let wanted = if path.starts_with("/v1/models/") { "/v1/models" } else { path.as_str() };
    let Some(route) = ROUTES.iter().find(|route| route.path == wanted) else {
        let known: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        let message = format!("there is no {}; there are {}", path.escape_debug(), known.join(", "));
        return Err(ApiError::with_status(StatusCode::NOT_FOUND, message));
    };
    let is_head = request.method() == Method::HEAD && route.method == Method::GET;
    if request.method() != route.method && !is_head {
        let message = format!("{wanted} takes {}", route.method);
        let mut reply = refusal(&ApiError::with_status(StatusCode::METHOD_NOT_ALLOWED, message));
        reply.headers_mut().insert(
            ALLOW,
            HeaderValue::from_static(if route.method == Method::GET { "GET, HEAD" } else { "POST" }),
        );
        return Ok(reply);
    }
    if !route.is_open {
        check_key(&shared, &request)?;
    }
    (route.handle)(shared, request).await
}

fn check_key(shared: &Shared, request: &Request<Incoming>) -> Result<(), ApiError> {
    let Some(key) = &shared.api_key else { return Ok(()) };
    let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
    if is_same(given, key.as_bytes()) {
        return Ok(());
    }
    Err(ApiError::with_status(StatusCode::UNAUTHORIZED, "the request bears no key, or a wrong one"))
}

/// Takes the same time wherever the first difference is.
fn is_same(given: &[u8], key: &[u8]) -> bool {
    let differences = given.iter().zip(key).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == key.len() && differences == 0
}

fn refusal(error: &ApiError) -> Reply {
    let mut reply = document(error.status, &error.document());
    if error.status == StatusCode::SERVICE_UNAVAILABLE {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    reply
}
