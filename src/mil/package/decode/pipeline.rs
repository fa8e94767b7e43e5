//! Models inside a pipeline, as its protobuf message holds them.

use crate::package::error::{PackageError, Result};
use crate::package::kind::{self, Kind};
use crate::package::pipeline::Stage;
use crate::package::schema::{model, pipeline, pipeline_of_kind};
use crate::package::wire::{Field, fields};

/// The stages of the pipeline in the bytes of `model.mlmodel` that start at `offset`; `None` if it is no pipeline.
pub(in crate::package) fn models(bytes: &[u8], offset: usize) -> Result<Option<Vec<Stage>>> {
    pipeline_field(bytes, offset)?.map(|field| stages(&field)).transpose()
}

/// The bytes of one model of a pipeline, given by its index in each of the pipelines around it, and where they start.
pub(in crate::package) fn model_at<'a>(bytes: &'a [u8], path: &[usize]) -> Result<(&'a [u8], usize)> {
    let (mut bytes, mut offset) = (bytes, 0);
    for &index in path {
        let Some(field) = pipeline_field(bytes, offset)? else {
            return Err(PackageError::malformed("is no pipeline, so it has no models to choose from")
                .with_help("leave the name of the model away"));
        };
        let inner = members(&field)?;
        let Some((model, _)) = inner.get(index) else {
            return Err(kind::no_such_stage(index, &stages(&field)?));
        };
        (bytes, offset) = (model.bytes()?, model.offset());
    }
    Ok((bytes, offset))
}

/// What a pipeline consists of.
pub(super) fn stages(field: &Field<'_>) -> Result<Vec<Stage>> {
    let members = members(field)?;
    let stage = |(index, (model, title)): (usize, &(Field<'_>, &str))| {
        Ok(Stage::new(index, kind_of(model)?, (*title).to_owned()))
    };
    members.iter().enumerate().map(stage).collect()
}

fn pipeline_field(bytes: &[u8], offset: usize) -> Result<Option<Field<'_>>> {
    for field in fields(bytes, offset, model::SCHEMA.name) {
        let field = field?;
        if kind::is_pipeline(field.number()) {
            return Ok(Some(field));
        }
    }
    Ok(None)
}

/// The models of a pipeline with the names that it gives them.
fn members<'a>(field: &Field<'a>) -> Result<Vec<(Field<'a>, &'a str)>> {
    let message = match field.number() == kind::PLAIN_PIPELINE {
        true => field.message(pipeline::SCHEMA)?,
        false => {
            let outer = field.message(pipeline_of_kind::SCHEMA)?;
            outer.get_or_empty(pipeline_of_kind::PIPELINE).message(pipeline::SCHEMA)?
        }
    };
    let names = message.all(pipeline::NAMES).map(|name| name.text()).collect::<Result<Vec<_>>>()?;
    let titles = names.into_iter().chain(std::iter::repeat(""));
    Ok(message.all(pipeline::MODELS).zip(titles).collect())
}

/// The kind of a model by its field number alone.
fn kind_of(model: &Field<'_>) -> Result<Option<Kind>> {
    for field in fields(model.bytes()?, model.offset(), model::SCHEMA.name) {
        if let Some(kind) = Kind::of(field?.number()) {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}
