//! The messages of the Core ML format that ML programs use, with their field numbers, as reader and writer
//! share them; and the numbers of its enumerations.

use super::wire::Schema;
use crate::ColorSpace;
use anemeter_kernels::tensor::DType;

/// One module per message: a constant per field and the `SCHEMA` that reading is checked against.
macro_rules! messages {
    ($($module:ident $name:literal {
        $(once $once:ident = $once_number:literal,)*
        $(many $many:ident = $many_number:literal,)*
    })*) => {
        $(pub(super) mod $module {
            use super::Schema;
            $(pub(in crate::package) const $once: u32 = $once_number;)*
            $(pub(in crate::package) const $many: u32 = $many_number;)*
            pub(in crate::package) const SCHEMA: &Schema =
                &Schema { name: $name, once: &[$($once_number,)*], many: &[$($many_number,)*] };
        })*
    };
}

messages! {
    model "Model" {
        once SPECIFICATION_VERSION = 1, once DESCRIPTION = 2, once IS_UPDATABLE = 10, once ML_PROGRAM = 502,
    }
    pipeline "Pipeline" { many MODELS = 1, many NAMES = 2, }
    pipeline_of_kind "pipeline with a purpose" { once PIPELINE = 1, }
    model_description "ModelDescription" {
        once PREDICTED_FEATURE_NAME = 11, once PREDICTED_PROBABILITIES_NAME = 12,
        once DEFAULT_FUNCTION_NAME = 21, once METADATA = 100,
        many INPUT = 1, many OUTPUT = 10, many STATE = 13, many FUNCTIONS = 20, many TRAINING_INPUT = 50,
    }
    function_description "FunctionDescription" {
        once NAME = 1, once PREDICTED_FEATURE_NAME = 4, once PREDICTED_PROBABILITIES_NAME = 5,
        many INPUT = 2, many OUTPUT = 3, many STATE = 6,
    }
    feature_description "FeatureDescription" { once NAME = 1, once SHORT_DESCRIPTION = 2, once TYPE = 3, }
    feature_type "FeatureType" {
        once INT64 = 1, once DOUBLE = 2, once STRING = 3, once IMAGE = 4, once MULTI_ARRAY = 5,
        once DICTIONARY = 6, once SEQUENCE = 7, once STATE = 8, once IS_OPTIONAL = 1000,
    }
    array_feature_type "ArrayFeatureType" {
        once DATA_TYPE = 2, once ENUMERATED_SHAPES = 21, once SHAPE_RANGE = 31,
        once INT_DEFAULT = 41, once FLOAT_DEFAULT = 51, once DOUBLE_DEFAULT = 61,
        many SHAPE = 1,
    }
    enumerated_shapes "EnumeratedShapes" { many SHAPES = 1, }
    shape "Shape" { many SHAPE = 1, }
    shape_range "ShapeRange" { many SIZE_RANGES = 1, }
    size_range "SizeRange" { once LOWER_BOUND = 1, once UPPER_BOUND = 2, }
    state_feature_type "StateFeatureType" { once ARRAY = 1, }
    image_feature_type_message "ImageFeatureType" {
        once WIDTH = 1, once HEIGHT = 2, once COLOR_SPACE = 3, once ENUMERATED_SIZES = 21, once SIZE_RANGE = 31,
    }
    enumerated_image_sizes "EnumeratedImageSizes" { many SIZES = 1, }
    image_size "ImageSize" { once WIDTH = 1, once HEIGHT = 2, }
    image_size_range "ImageSizeRange" { once WIDTH = 1, once HEIGHT = 2, }
    dictionary_feature_type "DictionaryFeatureType" { once INT64_KEY = 1, once STRING_KEY = 2, }
    empty "Empty" {}
    metadata "Metadata" {
        once SHORT_DESCRIPTION = 1, once VERSION = 2, once AUTHOR = 3, once LICENSE = 4,
        many USER_DEFINED = 100,
    }
    entry "map entry" { once KEY = 1, once VALUE = 2, }
    program "Program" { once VERSION = 1, once DOC_STRING = 3, many FUNCTIONS = 2, many ATTRIBUTES = 4, }
    function "Function" {
        once OPSET = 2,
        many INPUTS = 1, many BLOCK_SPECIALIZATIONS = 3, many ATTRIBUTES = 4,
    }
    block "Block" { many INPUTS = 1, many OUTPUTS = 2, many OPERATIONS = 3, many ATTRIBUTES = 4, }
    operation "Operation" {
        once TYPE = 1,
        many INPUTS = 2, many OUTPUTS = 3, many BLOCKS = 4, many ATTRIBUTES = 5,
    }
    argument "Argument" { many ARGUMENTS = 1, }
    binding "Binding" { once NAME = 1, once VALUE = 2, }
    named_value_type "NamedValueType" { once NAME = 1, once TYPE = 2, }
    value_type "ValueType" {
        once TENSOR = 1, once LIST = 2, once TUPLE = 3, once DICTIONARY = 4, once STATE = 5,
    }
    tensor_type "TensorType" { once DATA_TYPE = 1, once RANK = 2, many DIMENSIONS = 3, many ATTRIBUTES = 4, }
    list_type "ListType" { once TYPE = 1, once LENGTH = 2, }
    tuple_type "TupleType" { many TYPES = 1, }
    dictionary_type "DictionaryType" { once KEY = 1, once VALUE = 2, }
    state_type "StateType" { once WRAPPED_TYPE = 1, }
    dimension "Dimension" { once CONSTANT = 1, once UNKNOWN = 2, }
    constant_dimension "ConstantDimension" { once SIZE = 1, }
    unknown_dimension "UnknownDimension" { once VARIADIC = 1, }
    value "Value" { once DOC_STRING = 1, once TYPE = 2, once IMMEDIATE = 3, once BLOB_FILE = 5, }
    immediate_value "ImmediateValue" { once TENSOR = 1, once TUPLE = 2, once LIST = 3, once DICTIONARY = 4, }
    blob_file_value "BlobFileValue" { once FILE_NAME = 1, once OFFSET = 2, }
    tensor_value "TensorValue" {
        once FLOATS = 1, once INTS = 2, once BOOLS = 3, once STRINGS = 4, once LONG_INTS = 5,
        once DOUBLES = 6, once BYTES = 7,
    }
    repeated "repeated values" { many VALUES = 1, }
    dictionary_value "DictionaryValue" { many VALUES = 1, }
    key_value_pair "KeyValuePair" { once KEY = 1, once VALUE = 2, }
}

/// Element type, its number in programs, its code in weight files; 0 where it cannot be there.
const DTYPES: &[(DType, i32, u32)] = &[
    (DType::Bool, 1, 0),
    (DType::String, 2, 0),
    (DType::F16, 10, 1),
    (DType::F32, 11, 2),
    (DType::F64, 12, 0),
    (DType::BF16, 13, 5),
    (DType::F8E4M3FN, 40, 16),
    (DType::F8E5M2, 41, 17),
    (DType::I4, 25, 8),
    (DType::I8, 21, 4),
    (DType::I16, 22, 6),
    (DType::I32, 23, 14),
    (DType::I64, 24, 0),
    (DType::U1, 37, 9),
    (DType::U2, 36, 10),
    (DType::U3, 39, 12),
    (DType::U4, 35, 11),
    (DType::U6, 38, 13),
    (DType::U8, 31, 3),
    (DType::U16, 32, 7),
    (DType::U32, 33, 15),
    (DType::U64, 34, 0),
];

/// Element type and its number in array features.
const ARRAY_DTYPES: &[(DType, i32)] = &[
    (DType::F16, 65552),
    (DType::F32, 65568),
    (DType::F64, 65600),
    (DType::I8, 131_080),
    (DType::I32, 131_104),
];

/// Colour space and its number in image features.
const COLOR_SPACES: &[(ColorSpace, i32)] = &[
    (ColorSpace::Grayscale, 10),
    (ColorSpace::Rgb, 20),
    (ColorSpace::Bgr, 30),
    (ColorSpace::GrayscaleFloat16, 40),
];

/// The element type of a number in a program.
pub(super) fn dtype(number: i32) -> Option<DType> {
    DTYPES.iter().find(|row| row.1 == number).map(|row| row.0)
}

/// The number of an element type in a program.
pub(super) fn dtype_number(dtype: DType) -> i32 {
    DTYPES[dtype as usize].1
}

/// The code of an element type in weight files, if it can be there.
pub(super) fn blob_code(dtype: DType) -> Option<u32> {
    Some(DTYPES[dtype as usize].2).filter(|&code| code != 0)
}

/// The element type of a code in weight files.
pub(super) fn blob_dtype(code: u32) -> Option<DType> {
    DTYPES.iter().find(|row| row.2 == code && code != 0).map(|row| row.0)
}

/// The element type of a number in an array feature.
pub(super) fn array_dtype(number: i32) -> Option<DType> {
    ARRAY_DTYPES.iter().find(|row| row.1 == number).map(|row| row.0)
}

/// The number of an element type in an array feature, if it can be there.
pub(super) fn array_dtype_number(dtype: DType) -> Option<i32> {
    ARRAY_DTYPES.iter().find(|row| row.0 == dtype).map(|row| row.1)
}

/// The colour space of a number.
pub(super) fn color_space(number: i32) -> Option<ColorSpace> {
    COLOR_SPACES.iter().find(|row| row.1 == number).map(|row| row.0)
}

/// The number of a colour space.
pub(super) fn color_space_number(color: ColorSpace) -> i32 {
    COLOR_SPACES[color as usize].1
}

/// The field of `TensorValue` that holds immediate elements of a type.
pub(super) fn immediate_field(dtype: DType) -> u32 {
    match dtype {
        DType::Bool => tensor_value::BOOLS,
        DType::String => tensor_value::STRINGS,
        DType::I16 | DType::U16 | DType::I32 => tensor_value::INTS,
        DType::F32 => tensor_value::FLOATS,
        DType::I64 | DType::U64 => tensor_value::LONG_INTS,
        DType::F64 => tensor_value::DOUBLES,
        _ => tensor_value::BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Apple's schema, as coreml-proto generates it from the `.proto` files.
    #[test]
    fn the_numbers_of_enumerations_are_those_of_apples_schema() {
        use coreml_proto::proto::array_feature_type::ArrayDataType;
        use coreml_proto::proto::image_feature_type::ColorSpace as Official;
        use coreml_proto::proto::mil_spec::DataType;
        let in_programs = [
            (DType::Bool, DataType::Bool),
            (DType::String, DataType::String),
            (DType::F16, DataType::Float16),
            (DType::F32, DataType::Float32),
            (DType::F64, DataType::Float64),
            (DType::BF16, DataType::Bfloat16),
            (DType::F8E4M3FN, DataType::Float8e4m3fn),
            (DType::F8E5M2, DataType::Float8e5m2),
            (DType::I4, DataType::Int4),
            (DType::I8, DataType::Int8),
            (DType::I16, DataType::Int16),
            (DType::I32, DataType::Int32),
            (DType::I64, DataType::Int64),
            (DType::U1, DataType::Uint1),
            (DType::U2, DataType::Uint2),
            (DType::U3, DataType::Uint3),
            (DType::U4, DataType::Uint4),
            (DType::U6, DataType::Uint6),
            (DType::U8, DataType::Uint8),
            (DType::U16, DataType::Uint16),
            (DType::U32, DataType::Uint32),
            (DType::U64, DataType::Uint64),
        ];
        assert_eq!(in_programs.len(), DTYPES.len());
        for (dtype, official) in in_programs {
            assert_eq!(dtype_number(dtype), official as i32, "{dtype:?}");
        }
        let in_arrays = [
            (DType::F16, ArrayDataType::Float16),
            (DType::F32, ArrayDataType::Float32),
            (DType::F64, ArrayDataType::Double),
            (DType::I8, ArrayDataType::Int8),
            (DType::I32, ArrayDataType::Int32),
        ];
        assert_eq!(in_arrays.len(), ARRAY_DTYPES.len());
        for (dtype, official) in in_arrays {
            assert_eq!(array_dtype_number(dtype), Some(official as i32), "{dtype:?}");
        }
        for (color, official) in [
            (ColorSpace::Grayscale, Official::Grayscale),
            (ColorSpace::Rgb, Official::Rgb),
            (ColorSpace::Bgr, Official::Bgr),
            (ColorSpace::GrayscaleFloat16, Official::GrayscaleFloat16),
        ] {
            assert_eq!(color_space_number(color), official as i32);
        }
    }

    #[test]
    fn tables_are_in_enum_order_and_codes_are_unique() {
        for (row, dtype) in DType::all().enumerate() {
            assert_eq!(DTYPES[row].0, dtype);
            assert_eq!(super::dtype(dtype_number(dtype)), Some(dtype));
            assert!(blob_code(dtype).is_none_or(|code| blob_dtype(code) == Some(dtype)));
        }
        for (row, entry) in COLOR_SPACES.iter().enumerate() {
            assert_eq!(entry.0 as usize, row);
        }
    }
}
