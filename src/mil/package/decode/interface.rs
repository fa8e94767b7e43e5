//! Inputs, outputs, states and metadata.

use crate::package::check::{self, MAIN};
use crate::package::error::{ErrorKind, PackageError, Result, quoted};
use crate::package::schema::model_description as description;
use crate::package::schema::{array_feature_type as array, image_feature_type_message as image, *};
use crate::package::wire::{Field, Message};
use crate::{
    ArrayType, DefaultValue, Feature, FeatureType, Flexibility, ImageSizes, ImageType, Interface, Interfaces,
    Metadata, Program,
};

/// The fewest bytes of a described function, its tag and length included.
const SMALLEST_FUNCTION: usize = 6;
/// The fewest bytes of a described feature, its tag and length included.
const SMALLEST_FEATURE: usize = 9;
/// The fewest bytes of a shape, size or range, its tag and length included.
const SMALLEST_SHAPE: usize = 2;

/// The interfaces and the metadata; an absent description is an empty one.
pub(super) fn description(field: Option<Field<'_>>, program: &Program) -> Result<(Interfaces, Metadata)> {
    match field {
        Some(field) => described(&field.message(description::SCHEMA)?, program),
        None => described(&Message::root(&[], description::SCHEMA)?, program),
    }
}

/// The interfaces and the metadata of a `ModelDescription` that stands alone, `offset` bytes into its file.
pub(in crate::package) fn description_at(
    bytes: &[u8],
    offset: usize,
    program: &Program,
) -> Result<(Interfaces, Metadata)> {
    described(&Message::at(bytes, offset, description::SCHEMA)?, program)
}

fn described(message: &Message<'_>, program: &Program) -> Result<(Interfaces, Metadata)> {
    if message.get(description::TRAINING_INPUT).is_some() {
        return Err(PackageError::new(
            ErrorKind::Unsupported,
            "has training inputs, which are not supported",
        ));
    }
    let metadata = message.get(description::METADATA).map_or(Ok(Metadata::default()), |f| texts(&f))?;
    let interface = Interface {
        function: MAIN.to_owned(),
        inputs: features(message, description::INPUT)?,
        outputs: features(message, description::OUTPUT)?,
        states: features(message, description::STATE)?,
        predicted_feature: message.text(description::PREDICTED_FEATURE_NAME)?.to_owned(),
        predicted_probabilities: message.text(description::PREDICTED_PROBABILITIES_NAME)?.to_owned(),
    };
    let default = message.text(description::DEFAULT_FUNCTION_NAME)?;
    let interfaces = if message.get(description::FUNCTIONS).is_some() {
        if interface != (Interface { function: MAIN.to_owned(), ..Interface::default() }) {
            return Err(message.error("describes both single functions and the model as a whole"));
        }
        let functions = message.each(description::FUNCTIONS, SMALLEST_FUNCTION, function)?;
        Interfaces::Many { functions, default: default.to_owned() }
    } else if default.is_empty() {
        Interfaces::Single(interface)
    } else {
        let default = quoted(default);
        return Err(message.error(format!("names the default function {default} but describes none")));
    };
    check::interfaces(&interfaces, program).map_err(|text| message.error(text))?;
    Ok((interfaces, metadata))
}

fn function(field: &Field<'_>) -> Result<Interface> {
    use function_description as function;
    let message = field.message(function::SCHEMA)?;
    let name = message.text(function::NAME)?;
    let in_function = |e: PackageError| e.in_function(name);
    Ok(Interface {
        function: name.to_owned(),
        inputs: features(&message, function::INPUT).map_err(in_function)?,
        outputs: features(&message, function::OUTPUT).map_err(in_function)?,
        states: features(&message, function::STATE).map_err(in_function)?,
        predicted_feature: message.text(function::PREDICTED_FEATURE_NAME)?.to_owned(),
        predicted_probabilities: message.text(function::PREDICTED_PROBABILITIES_NAME)?.to_owned(),
    })
}

fn features(message: &Message<'_>, number: u32) -> Result<Vec<Feature>> {
    message.each(number, SMALLEST_FEATURE, feature)
}

fn feature(field: &Field<'_>) -> Result<Feature> {
    use feature_description as feature;
    let message = field.message(feature::SCHEMA)?;
    let name = message.text(feature::NAME)?;
    let Some(ty) = message.get(feature::TYPE) else {
        return Err(message.error("has no type").at_tensor(name));
    };
    let (ty, optional) = feature_type(&ty).map_err(|e| e.at_tensor(name))?;
    let description = message.text(feature::SHORT_DESCRIPTION)?.to_owned();
    Ok(Feature { name: name.to_owned(), description, ty, optional })
}

fn feature_type(field: &Field<'_>) -> Result<(FeatureType, bool)> {
    let message = field.message(feature_type::SCHEMA)?;
    let optional = message.boolean(feature_type::IS_OPTIONAL)?;
    let kinds = feature_type::SCHEMA.once.iter().filter(|&&n| n != feature_type::IS_OPTIONAL);
    let mut found = kinds.filter_map(|&n| Some((n, message.get(n)?)));
    let (Some((kind, field)), None) = (found.next(), found.next()) else {
        return Err(message.error("a feature type must have exactly one kind"));
    };
    let ty = match kind {
        feature_type::INT64 => field.message(empty::SCHEMA).map(|_| FeatureType::Int64)?,
        feature_type::DOUBLE => field.message(empty::SCHEMA).map(|_| FeatureType::Double)?,
        feature_type::STRING => field.message(empty::SCHEMA).map(|_| FeatureType::Text)?,
        feature_type::IMAGE => FeatureType::Image(image_type(&field)?),
        feature_type::MULTI_ARRAY => FeatureType::Array(array_type(&field)?),
        feature_type::DICTIONARY => dictionary(&field)?,
        feature_type::SEQUENCE => {
            return Err(PackageError::new(ErrorKind::Unsupported, "is a sequence, which is not supported"));
        }
        _ => {
            let state = field.message(state_feature_type::SCHEMA)?;
            match state.get(state_feature_type::ARRAY) {
                Some(array) => FeatureType::State(array_type(&array)?),
                None => return Err(state.error("a state has no array type")),
            }
        }
    };
    Ok((ty, optional))
}

fn dictionary(field: &Field<'_>) -> Result<FeatureType> {
    use dictionary_feature_type as dictionary;
    let message = field.message(dictionary::SCHEMA)?;
    let (ty, key) = match (message.get(dictionary::INT64_KEY), message.get(dictionary::STRING_KEY)) {
        (Some(key), None) => (FeatureType::Int64Dictionary, key),
        (None, Some(key)) => (FeatureType::TextDictionary, key),
        _ => return Err(message.error("a dictionary must have exactly one key type")),
    };
    key.message(empty::SCHEMA)?;
    Ok(ty)
}

fn array_type(field: &Field<'_>) -> Result<ArrayType> {
    let message = field.message(array::SCHEMA)?;
    let number = message.int32(array::DATA_TYPE)?;
    let Some(dtype) = array_dtype(number) else {
        return Err(message.error(format!("has the unknown array data type {number}")));
    };
    let flexibility = match (message.get(array::ENUMERATED_SHAPES), message.get(array::SHAPE_RANGE)) {
        (None, None) => Flexibility::Fixed,
        (Some(field), None) => {
            let list = field.message(enumerated_shapes::SCHEMA)?;
            let one = |field: &Field<'_>| sizes(&field.message(shape::SCHEMA)?, shape::SHAPE);
            Flexibility::Enumerated(list.each(enumerated_shapes::SHAPES, SMALLEST_SHAPE, one)?)
        }
        (None, Some(field)) => {
            let list = field.message(shape_range::SCHEMA)?;
            Flexibility::Ranges(list.each(shape_range::SIZE_RANGES, SMALLEST_SHAPE, range)?)
        }
        (Some(_), Some(_)) => return Err(message.error("has both enumerated shapes and ranges")),
    };
    let int = message.get(array::INT_DEFAULT).map(|f| f.int32().map(DefaultValue::Int));
    let float = message.get(array::FLOAT_DEFAULT).map(|f| f.float().map(DefaultValue::Float));
    let double = message.get(array::DOUBLE_DEFAULT).map(|f| f.double().map(DefaultValue::Double));
    let mut defaults = [int, float, double].into_iter().flatten();
    let default = defaults.next().transpose()?;
    fail_if!(defaults.next().is_some(), message.error("has more than one default value"));
    Ok(ArrayType { dtype, shape: sizes(&message, array::SHAPE)?, flexibility, default })
}

fn image_type(field: &Field<'_>) -> Result<ImageType> {
    let message = field.message(image::SCHEMA)?;
    let number = message.int32(image::COLOR_SPACE)?;
    let Some(color) = color_space(number) else {
        return Err(message.error(format!("has the unknown colour space {number}")));
    };
    let sizes = match (message.get(image::ENUMERATED_SIZES), message.get(image::SIZE_RANGE)) {
        (None, None) => ImageSizes::Fixed,
        (Some(field), None) => {
            let list = field.message(enumerated_image_sizes::SCHEMA)?;
            ImageSizes::Enumerated(list.each(enumerated_image_sizes::SIZES, SMALLEST_SHAPE, |field| {
                let size = field.message(image_size::SCHEMA)?;
                Ok((size.uint64(image_size::WIDTH)?, size.uint64(image_size::HEIGHT)?))
            })?)
        }
        (None, Some(field)) => {
            let both = field.message(image_size_range::SCHEMA)?;
            let bounds = |number| both.get(number).map_or(Ok((0, Some(0))), |field| range(&field));
            let (width, height) = (bounds(image_size_range::WIDTH)?, bounds(image_size_range::HEIGHT)?);
            ImageSizes::Range { width, height }
        }
        (Some(_), Some(_)) => return Err(message.error("has both enumerated sizes and a range")),
    };
    let side = |number| size(&message, message.int64(number)?);
    Ok(ImageType { width: side(image::WIDTH)?, height: side(image::HEIGHT)?, color, sizes })
}

fn range(field: &Field<'_>) -> Result<(u64, Option<u64>)> {
    let message = field.message(size_range::SCHEMA)?;
    let lower = message.uint64(size_range::LOWER_BOUND)?;
    match message.int64(size_range::UPPER_BOUND)? {
        -1 => Ok((lower, None)),
        upper => Ok((lower, Some(size(&message, upper)?))),
    }
}

fn sizes(message: &Message<'_>, number: u32) -> Result<Vec<u64>> {
    let mut sizes = Vec::new();
    for field in message.all(number) {
        field.each_varint(|value| {
            sizes.push(size(message, value.cast_signed())?);
            Ok(())
        })?;
    }
    Ok(sizes)
}

fn size(message: &Message<'_>, value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| message.error(format!("has the size {value}")))
}

fn texts(field: &Field<'_>) -> Result<Metadata> {
    let message = field.message(metadata::SCHEMA)?;
    let mut user_defined = Vec::new();
    for field in message.all(metadata::USER_DEFINED) {
        let pair = field.message(entry::SCHEMA)?;
        user_defined.push((pair.text(entry::KEY)?.to_owned(), pair.text(entry::VALUE)?.to_owned()));
    }
    user_defined.sort_unstable();
    if let Some(pair) = user_defined.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(message.error(format!("metadata {} occurs twice", quoted(&pair[0].0))));
    }
    Ok(Metadata {
        description: message.text(metadata::SHORT_DESCRIPTION)?.to_owned(),
        version: message.text(metadata::VERSION)?.to_owned(),
        author: message.text(metadata::AUTHOR)?.to_owned(),
        license: message.text(metadata::LICENSE)?.to_owned(),
        user_defined,
    })
}
