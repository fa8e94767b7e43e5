//! `/metrics`: counts and times for Prometheus.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use crate::body::whole;
use crate::routes::Answer;
use crate::server::Shared;

pub(crate) fn handle(shared: Arc<Shared>, _: Request<Incoming>) -> Answer {
    Box::pin(async move {
        let text = shared.metrics.text(shared.waiting());
        Ok(whole(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
    })
}
