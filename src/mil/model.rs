//! A program together with what its users see: inputs, outputs, states, shapes and metadata per function.

use super::ops::classify::Classifier;
use super::{Function, Program, TensorType, Type, Value, ValueId};
use anemeter_kernels::tensor::DType;

/// Everything a package says, weights included.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Specification version: 9 is iOS 18 / macOS 15.
    pub spec_version: i32,
    /// Functions with their operations.
    pub program: Program,
    /// One interface, or one per function.
    pub interfaces: Interfaces,
    /// Author, licence and other texts.
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
    /// Name of the function.
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

impl Feature {
    /// The shapes of a tensor that enumerates them.
    pub fn enumerated(&self) -> Option<&[Vec<u64>]> {
        match &self.ty {
            FeatureType::Array(ArrayType { flexibility: Flexibility::Enumerated(shapes), .. }) => {
                Some(shapes)
            }
            _ => None,
        }
    }
}

/// The type of a feature.
#[derive(Debug, Clone, PartialEq)]
pub enum FeatureType {
    /// A multi-array.
    Array(ArrayType),
    /// A tensor that outlives a prediction.
    State(ArrayType),
    /// An image.
    Image(ImageType),
    /// A 64-bit integer.
    Int64,
    /// A 64-bit float.
    Double,
    /// A string.
    Text,
    /// Numbers by integer key.
    Int64Dictionary,
    /// Numbers by string key.
    TextDictionary,
}

impl FeatureType {
    /// The feature that a value of this type is; none that is a list or a tuple.
    fn of(ty: &Type) -> Option<FeatureType> {
        let array = |tensor: &TensorType| {
            let shape = tensor.concrete().unwrap_or_default().iter().map(|&d| d as u64).collect();
            ArrayType { dtype: tensor.dtype, shape, flexibility: Flexibility::Fixed, default: None }
        };
        match ty {
            Type::Tensor(tensor) if tensor.shape.is_empty() && tensor.dtype == DType::String => {
                Some(FeatureType::Text)
            }
            Type::Tensor(tensor) if tensor.shape.is_empty() && tensor.dtype == DType::I64 => {
                Some(FeatureType::Int64)
            }
            Type::Tensor(tensor) => Some(FeatureType::Array(array(tensor))),
            Type::State(tensor) => Some(FeatureType::State(array(tensor))),
            Type::Dictionary(key, _) => match key.tensor()?.dtype {
                DType::String => Some(FeatureType::TextDictionary),
                DType::I64 => Some(FeatureType::Int64Dictionary),
                _ => None,
            },
            Type::List(..) | Type::Tuple(_) => None,
        }
    }
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

impl ColorSpace {
    /// Numbers of a pixel.
    pub fn channels(self) -> u64 {
        match self {
            ColorSpace::Rgb | ColorSpace::Bgr => 3,
            ColorSpace::Grayscale | ColorSpace::GrayscaleFloat16 => 1,
        }
    }
}

/// Author, licence and other texts of a model.
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

impl Interface {
    /// The interface a function implies: every input, state and output as its declared type says. Shapes with
    /// unknown sizes stay open and have to be filled in.
    pub fn of(function: &Function) -> Interface {
        let feature = |value: &Value| {
            let ty = FeatureType::of(&value.ty)?;
            Some(Feature { name: value.name.clone(), description: String::new(), ty, optional: false })
        };
        let list = |ids: &[ValueId], states: bool| {
            let values = ids.iter().map(|&id| function.value(id));
            values.filter(|v| matches!(v.ty, Type::State(_)) == states).filter_map(feature).collect()
        };
        let classifier = Classifier::of(function);
        let (label, probabilities) = classifier.map_or(("", ""), |c| (c.label, c.probabilities));
        Interface {
            function: function.name.clone(),
            inputs: list(&function.inputs, false),
            outputs: list(&function.body.outputs, false),
            states: list(&function.inputs, true),
            predicted_feature: label.to_owned(),
            predicted_probabilities: probabilities.to_owned(),
        }
    }

    /// Enumerates the shapes of an input; the first is the default. Lists of several inputs pair by index.
    pub fn enumerate(&mut self, input: &str, shapes: &[Vec<u64>]) {
        for feature in self.inputs.iter_mut().filter(|f| f.name == input) {
            if let (FeatureType::Array(array), Some(default)) = (&mut feature.ty, shapes.first()) {
                array.shape.clone_from(default);
                array.flexibility = Flexibility::Enumerated(shapes.to_vec());
            }
        }
    }
}

impl Model {
    /// A model with the single function `main`, as the function's own types describe it.
    pub fn single(main: Function) -> Model {
        let interface = Interface::of(&main);
        Model {
            spec_version: main.opset.spec_version(),
            interfaces: Interfaces::Single(interface),
            program: Program { version: 1, functions: vec![main], attributes: Vec::new() },
            metadata: Metadata::default(),
        }
    }

    /// A model with several functions, the first of which is the default.
    pub fn multi(mut functions: Vec<Function>) -> Model {
        let interfaces: Vec<Interface> = functions.iter().map(Interface::of).collect();
        let default = functions.first().map(|f| f.name.clone()).unwrap_or_default();
        let spec_version = functions.iter().map(|f| f.opset.spec_version()).max().unwrap_or(9);
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        Model {
            spec_version,
            interfaces: Interfaces::Many { functions: interfaces, default },
            program: Program { version: 1, functions, attributes: Vec::new() },
            metadata: Metadata::default(),
        }
    }

    /// The interface of a function, to be changed.
    pub fn interface_mut(&mut self, function: &str) -> Option<&mut Interface> {
        match &mut self.interfaces {
            Interfaces::Single(interface) => Some(interface).filter(|i| i.function == function),
            Interfaces::Many { functions, .. } => functions.iter_mut().find(|i| i.function == function),
        }
    }
}
