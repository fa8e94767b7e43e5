//! Bodies of requests and responses.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ApiError;

/// A response with any body.
pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// How long a body that is too long is taken without being kept.
const DRAINING: Duration = Duration::from_secs(2);

/// Reads a request's JSON, of `most` bytes and within `time`.
///
/// Only `application/json` is taken: a page of another site cannot send that without being asked for permission, which
/// this server never gives.
pub(crate) async fn json<T: DeserializeOwned>(
    request: Request<Incoming>,
    most: usize,
    time: Duration,
) -> Result<T, ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = format!("the content type is `{}`, should be application/json", kind.escape_default());
        return Err(ApiError::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let too_long = || {
        let message = format!("the body has more than {most} bytes");
        ApiError::with_status(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let mut body = request.into_body();
    if body.size_hint().lower() > most as u64 {
        // A client that still sends reads no answer: what is on its way is taken first, as far as it stays bounded.
        let drained = async { while let Some(Ok(_)) = body.frame().await {} };
        let _ = tokio::time::timeout(DRAINING, drained).await;
        return Err(too_long());
    }
    let collected = tokio::time::timeout(time, Limited::new(body, most).collect()).await;
    let late = |_| ApiError::with_status(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
    let bytes = collected.map_err(late)?.map_err(|error| match error.is::<LengthLimitError>() {
        true => too_long(),
        false => ApiError::bad_request("the body ended before it was complete"),
    })?;
    serde_json::from_slice(&bytes.to_bytes())
        .map_err(|error| ApiError::bad_request(format!("the body is not the JSON of a request: {error}")))
}

/// A response of one piece.
pub(crate) fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    with_body(status, kind, Full::new(body.into()).boxed_unsync())
}

/// A response of JSON.
pub(crate) fn document(status: StatusCode, document: &Value) -> Reply {
    whole(status, "application/json", document.to_string())
}

/// A response with a body that may come in pieces.
pub(crate) fn with_body(
    status: StatusCode,
    kind: &'static str,
    body: UnsyncBoxBody<Bytes, Infallible>,
) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}
