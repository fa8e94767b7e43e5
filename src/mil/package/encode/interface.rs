//! Inputs, outputs, states and metadata.

use super::{model_error, sorted};
use crate::package::error::{PackageError, Result};
use crate::package::schema::model_description as description;
use crate::package::schema::{array_feature_type as array, image_feature_type_message as image, *};
use crate::package::wire::Writer;
use crate::{
    ArrayType, DefaultValue, Feature, FeatureType, Flexibility, ImageSizes, ImageType, Interface, Interfaces,
    Metadata, Model,
};

/// The content of a `ModelDescription`.
pub(super) fn description(out: &mut Writer, model: &Model) -> Result<()> {
    match &model.interfaces {
        Interfaces::Single(interface) => {
            features(out, description::INPUT, &interface.inputs)?;
            features(out, description::OUTPUT, &interface.outputs)?;
            out.text(description::PREDICTED_FEATURE_NAME, &interface.predicted_feature);
            out.text(description::PREDICTED_PROBABILITIES_NAME, &interface.predicted_probabilities);
            features(out, description::STATE, &interface.states)?;
        }
        Interfaces::Many { functions, default } => {
            for interface in functions {
                out.message(description::FUNCTIONS, |out| function(out, interface))
                    .map_err(|e| e.in_function(&interface.function))?;
            }
            out.text(description::DEFAULT_FUNCTION_NAME, default);
        }
    }
    if model.metadata != Metadata::default() {
        out.message(description::METADATA, |out| texts(out, &model.metadata))?;
    }
    Ok(())
}

fn function(out: &mut Writer, interface: &Interface) -> Result<()> {
    use function_description as function;
    out.text(function::NAME, &interface.function);
    features(out, function::INPUT, &interface.inputs)?;
    features(out, function::OUTPUT, &interface.outputs)?;
    out.text(function::PREDICTED_FEATURE_NAME, &interface.predicted_feature);
    out.text(function::PREDICTED_PROBABILITIES_NAME, &interface.predicted_probabilities);
    features(out, function::STATE, &interface.states)
}

fn features(out: &mut Writer, field: u32, features: &[Feature]) -> Result<()> {
    use feature_description as description;
    features.iter().try_for_each(|feature| {
        out.message(field, |out| {
            out.text(description::NAME, &feature.name);
            out.text(description::SHORT_DESCRIPTION, &feature.description);
            out.message(description::TYPE, |out| {
                feature_type(out, &feature.ty)?;
                out.boolean(feature_type::IS_OPTIONAL, feature.optional);
                Ok(())
            })
        })
        .map_err(|e: PackageError| e.at_tensor(&feature.name))
    })
}

fn feature_type(out: &mut Writer, ty: &FeatureType) -> Result<()> {
    use dictionary_feature_type as dictionary;
    let empty = |_: &mut Writer| ();
    match ty {
        FeatureType::Array(ty) => return out.message(feature_type::MULTI_ARRAY, |out| array_type(out, ty)),
        FeatureType::State(ty) => {
            return out.message(feature_type::STATE, |out| {
                out.message(state_feature_type::ARRAY, |out| array_type(out, ty))
            });
        }
        FeatureType::Image(ty) => return out.message(feature_type::IMAGE, |out| image_type(out, ty)),
        FeatureType::Int64 => out.message(feature_type::INT64, empty),
        FeatureType::Double => out.message(feature_type::DOUBLE, empty),
        FeatureType::Text => out.message(feature_type::STRING, empty),
        FeatureType::Int64Dictionary => {
            out.message(feature_type::DICTIONARY, |out| out.message(dictionary::INT64_KEY, empty));
        }
        FeatureType::TextDictionary => {
            out.message(feature_type::DICTIONARY, |out| out.message(dictionary::STRING_KEY, empty));
        }
    }
    Ok(())
}

fn array_type(out: &mut Writer, ty: &ArrayType) -> Result<()> {
    let Some(dtype) = array_dtype_number(ty.dtype) else {
        return Err(model_error(format!("{} cannot cross a model's boundary", ty.dtype)));
    };
    sizes(out, array::SHAPE, &ty.shape)?;
    out.int64(array::DATA_TYPE, dtype.into());
    match &ty.flexibility {
        Flexibility::Fixed => {}
        Flexibility::Enumerated(shapes) => out.message(array::ENUMERATED_SHAPES, |out| {
            shapes.iter().try_for_each(|sizes_of| {
                out.message(enumerated_shapes::SHAPES, |out| sizes(out, shape::SHAPE, sizes_of))
            })
        })?,
        Flexibility::Ranges(ranges) => out.message(array::SHAPE_RANGE, |out| {
            ranges.iter().try_for_each(|&bounds| range(out, shape_range::SIZE_RANGES, bounds))
        })?,
    }
    match ty.default {
        None => {}
        Some(DefaultValue::Int(value)) => out.present_int64(array::INT_DEFAULT, value.into()),
        Some(DefaultValue::Float(value)) => out.present_float(array::FLOAT_DEFAULT, value),
        Some(DefaultValue::Double(value)) => out.present_double(array::DOUBLE_DEFAULT, value),
    }
    Ok(())
}

fn image_type(out: &mut Writer, ty: &ImageType) -> Result<()> {
    out.int64(image::WIDTH, signed(ty.width)?);
    out.int64(image::HEIGHT, signed(ty.height)?);
    out.int64(image::COLOR_SPACE, color_space_number(ty.color).into());
    match &ty.sizes {
        ImageSizes::Fixed => {}
        ImageSizes::Enumerated(sizes) => out.message(image::ENUMERATED_SIZES, |out| {
            for &(width, height) in sizes {
                out.message(enumerated_image_sizes::SIZES, |out| {
                    out.uint64(image_size::WIDTH, width);
                    out.uint64(image_size::HEIGHT, height);
                });
            }
        }),
        ImageSizes::Range { width, height } => out.message(image::SIZE_RANGE, |out| {
            range(out, image_size_range::WIDTH, *width)?;
            range(out, image_size_range::HEIGHT, *height)
        })?,
    }
    Ok(())
}

fn range(out: &mut Writer, field: u32, (lower, upper): (u64, Option<u64>)) -> Result<()> {
    let upper = upper.map_or(Ok(-1), signed)?;
    out.message(field, |out| {
        out.uint64(size_range::LOWER_BOUND, lower);
        out.int64(size_range::UPPER_BOUND, upper);
    });
    Ok(())
}

fn sizes(out: &mut Writer, field: u32, sizes: &[u64]) -> Result<()> {
    sizes.iter().try_for_each(|&size| signed(size).map(drop))?;
    out.packed(field, sizes.iter().copied());
    Ok(())
}

fn signed(size: u64) -> Result<i64> {
    i64::try_from(size).map_err(|_| model_error(format!("the size {size} is too large for the format")))
}

fn texts(out: &mut Writer, texts: &Metadata) -> Result<()> {
    out.text(metadata::SHORT_DESCRIPTION, &texts.description);
    out.text(metadata::VERSION, &texts.version);
    out.text(metadata::AUTHOR, &texts.author);
    out.text(metadata::LICENSE, &texts.license);
    for (key, value) in sorted(&texts.user_defined, |(key, _)| key, "metadata")? {
        out.message(metadata::USER_DEFINED, |out| {
            out.present_text(entry::KEY, key);
            out.present_text(entry::VALUE, value);
        });
    }
    Ok(())
}
