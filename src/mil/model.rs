//! A program together with what its users see: inputs, outputs, states, shapes and metadata per function.

use super::Program;
use crate::tensor::DType;

/// Everything a package says, weights included.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Specification version: 9 is iOS 18 / macOS 15.
    pub spec_version: i32,
    /// The program.
    pub program: Program,
    /// One interface, or one per function.
    pub interfaces: Interfaces,
    /// Descriptive texts.
    pub metadata: Metadata,
}

impl Model {
    /// Every function's interface.
    pub fn interfaces(&self) -> &[Interface] {
        match &self.interfaces {
            Interfaces::Single(interface) => std::slice::from_ref(interface),
            Interfaces::Many { functions, .. } => functions,
        }
    }

    /// The interface of a function.
    pub fn interface(&self, function: &str) -> Option<&Interface> {
        self.interfaces().iter().find(|i| i.function == function)
    }

    /// The function that is meant when none is named.
    pub fn default_function(&self) -> &str {
        match &self.interfaces {
            Interfaces::Single(interface) => &interface.function,
            Interfaces::Many { default, .. } => default,
        }
    }
}

/// How a model describes its functions.
#[derive(Debug, Clone, PartialEq)]
pub enum Interfaces {
    /// A model with the single function `main`.
    Single(Interface),
    /// A multi-function model, even if it has only one.
    Many {
        /// The functions, in file order.
        functions: Vec<Interface>,
        /// The one that is meant when none is named.
        default: String,
    },
}

/// Inputs, outputs and states of one function.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Interface {
    /// The function.
    pub function: String,
    /// Inputs, in file order.
    pub inputs: Vec<Feature>,
    /// Outputs, in file order.
    pub outputs: Vec<Feature>,
    /// States, in file order.
    pub states: Vec<Feature>,
    /// Output that holds a classifier's label; empty if there is none.
    pub predicted_feature: String,
    /// Output that holds a classifier's probabilities; empty if there is none.
    pub predicted_probabilities: String,
}

/// One input, output or state.
#[derive(Debug, Clone, PartialEq)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its type.
    pub ty: FeatureType,
    /// Whether it may be left out.
    pub optional: bool,
}

/// The type of a feature.
#[derive(Debug, Clone, PartialEq)]
pub enum FeatureType {
    /// A tensor.
    Array(ArrayType),
    /// A tensor that outlives a prediction.
    State(ArrayType),
    /// An image.
    Image(ImageType),
    /// An integer.
    Int64,
    /// A number.
    Double,
    /// A string.
    Text,
    /// Numbers by integer key.
    Int64Dictionary,
    /// Numbers by string key.
    TextDictionary,
}

/// A tensor at a function's boundary.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayType {
    /// Element type.
    pub dtype: DType,
    /// Default shape; empty where only the program says it.
    pub shape: Vec<u64>,
    /// Other shapes that are allowed.
    pub flexibility: Flexibility,
    /// Value of every element when an optional input is left out.
    pub default: Option<DefaultValue>,
}

/// Value of every element of an optional input that is left out.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "one variant per width the format has")]
pub enum DefaultValue {
    Int(i32),
    Float(f32),
    Double(f64),
}

/// Which shapes an array may have.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Flexibility {
    /// Only the default one.
    #[default]
    Fixed,
    /// One of a list. Lists of several inputs pair by index.
    Enumerated(Vec<Vec<u64>>),
    /// Each dimension within its bounds; no upper bound means unbounded.
    Ranges(Vec<(u64, Option<u64>)>),
}

/// An image at a function's boundary.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageType {
    /// Width in pixels.
    pub width: u64,
    /// Height in pixels.
    pub height: u64,
    /// Colour space.
    pub color: ColorSpace,
    /// Other sizes that are allowed.
    pub sizes: ImageSizes,
}

/// Which sizes an image may have.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ImageSizes {
    /// Only the given one.
    #[default]
    Fixed,
    /// One of a list of (width, height).
    Enumerated(Vec<(u64, u64)>),
    /// Width and height within bounds.
    Range {
        /// Bounds of the width.
        width: (u64, Option<u64>),
        /// Bounds of the height.
        height: (u64, Option<u64>),
    },
}

/// The colour space of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the format's own names")]
pub enum ColorSpace {
    Grayscale,
    Rgb,
    Bgr,
    GrayscaleFloat16,
}

/// Descriptive texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metadata {
    /// What the model does.
    pub description: String,
    /// Its version.
    pub version: String,
    /// Its author.
    pub author: String,
    /// Its licence.
    pub license: String,
    /// Anything else, in key order.
    pub user_defined: Vec<(String, String)>,
}
