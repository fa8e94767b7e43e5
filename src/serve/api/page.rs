//! `/`: a page to talk to the model, which loads nothing from anywhere else.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Request, StatusCode};

use crate::body::whole;
use crate::routes::Answer;
use crate::server::Shared;

const PAGE: &str = include_str!("../page/index.html");

/// Its own script and style, requests to this server, and nothing else; no site may show it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) fn handle(_: Arc<Shared>, _: Request<Incoming>) -> Answer {
    Box::pin(async move {
        let mut reply = whole(StatusCode::OK, "text/html; charset=utf-8", PAGE);
        reply.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Ok(reply)
    })
}
