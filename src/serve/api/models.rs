//! `/v1/models`: the one model there is.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::json;

use crate::body::document;
use crate::error::ApiError;
use crate::routes::Answer;
use crate::server::Shared;

pub(crate) fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Answer {
    Box::pin(async move {
        let served = &shared.served;
        let model = json!({"id": served.model, "object": "model", "created": served.created, "owned_by": "anemeter",
            "engine": served.engine});
        let reply = match request.uri().path().strip_prefix("/v1/models/") {
            None => json!({"object": "list", "data": [model]}),
            Some(name) if name == served.model => model,
            Some(_) => {
                let message = format!("the only model is {}", served.model);
                return Err(ApiError::with_status(StatusCode::NOT_FOUND, message));
            }
        };
        Ok(document(StatusCode::OK, &reply))
    })
}
