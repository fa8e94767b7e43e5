//! `/health`: the server answers.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::json;

use crate::body::document;
use crate::routes::Answer;
use crate::server::Shared;

pub(crate) fn handle(shared: Arc<Shared>, _: Request<Incoming>) -> Answer {
    Box::pin(
        async move { Ok(document(StatusCode::OK, &json!({"status": "ok", "waiting": shared.waiting()}))) },
    )
}
