//! `MLModelDescription`, `MLFeatureDescription` and the constraints in them.

use anemeter::mil::{ArrayType, Feature, FeatureType, Flexibility, Interface};
use objc2::rc::Retained;
use objc2::runtime::NSObject;
use objc2::{ClassType, DefinedClass, define_class};
use objc2_core_ml::{MLFeatureDescription, MLModelDescription, MLMultiArrayConstraint};
use objc2_foundation::{NSArray, NSDictionary, NSNumber, NSString};

use super::array::{numbers, to_number};
use super::features::{MULTI_ARRAY, kind_of_classifier};
use crate::instance::make_public;

/// `MLFeatureTypeInvalid` and `MLFeatureTypeState`.
const INVALID: isize = 0;
const STATE: isize = 8;
/// `MLMultiArrayShapeConstraintType`, by how the shape may vary.
const UNSPECIFIED: isize = 1;
const ENUMERATED: isize = 2;
const RANGES: isize = 3;

type Descriptions = NSDictionary<NSString, MLFeatureDescription>;

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelDescription"]
    #[ivars = Interface]
    struct Description;

    impl Description {
        #[unsafe(method_id(inputDescriptionsByName))]
        fn inputs(&self) -> Retained<Descriptions> {
            by_name(&self.ivars().inputs)
        }

        #[unsafe(method_id(outputDescriptionsByName))]
        fn outputs(&self) -> Retained<Descriptions> {
            by_name(&self.ivars().outputs)
        }

        #[unsafe(method_id(stateDescriptionsByName))]
        fn states(&self) -> Retained<Descriptions> {
            by_name(&self.ivars().states)
        }
    }
);

/// The description of a function.
pub(super) fn of(interface: &Interface) -> Retained<MLModelDescription> {
    make_public::<Description, _>(interface.clone())
}

fn by_name(features: &[Feature]) -> Retained<Descriptions> {
    let names: Vec<_> = features.iter().map(|feature| NSString::from_str(&feature.name)).collect();
    let names: Vec<&NSString> = names.iter().map(|name| &**name).collect();
    let values: Vec<_> =
        features.iter().map(|feature| make_public::<FeatureDescription, _>(feature.clone())).collect();
    NSDictionary::from_retained_objects(&names, &values)
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLFeatureDescription"]
    #[ivars = Feature]
    struct FeatureDescription;

    impl FeatureDescription {
        #[unsafe(method_id(name))]
        fn name(&self) -> Retained<NSString> {
            NSString::from_str(&self.ivars().name)
        }

        #[unsafe(method(type))]
        fn kind(&self) -> isize {
            match &self.ivars().ty {
                FeatureType::Array(_) => MULTI_ARRAY,
                FeatureType::State(_) => STATE,
                other => kind_of_classifier(other).unwrap_or(INVALID),
            }
        }

        #[unsafe(method(isOptional))]
        fn is_optional(&self) -> bool {
            self.ivars().optional
        }

        #[unsafe(method_id(multiArrayConstraint))]
        fn constraint(&self) -> Option<Retained<MLMultiArrayConstraint>> {
            match &self.ivars().ty {
                FeatureType::Array(array) => Some(make_public::<Constraint, _>(array.clone())),
                _ => None,
            }
        }
    }
);

fn sizes(shape: &[u64]) -> Retained<NSArray<NSNumber>> {
    numbers(&shape.iter().map(|&size| size as usize).collect::<Vec<_>>())
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLMultiArrayConstraint"]
    #[ivars = ArrayType]
    struct Constraint;

    impl Constraint {
        #[unsafe(method_id(shape))]
        fn shape(&self) -> Retained<NSArray<NSNumber>> {
            sizes(&self.ivars().shape)
        }

        #[unsafe(method(dataType))]
        fn data_type(&self) -> isize {
            to_number(self.ivars().dtype).unwrap_or(0)
        }

        #[unsafe(method_id(shapeConstraint))]
        fn shape_constraint(&self) -> Retained<ShapeConstraint> {
            crate::instance::make(self.ivars().clone())
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLMultiArrayShapeConstraint"]
    #[ivars = ArrayType]
    struct ShapeConstraint;

    impl ShapeConstraint {
        #[unsafe(method(type))]
        fn kind(&self) -> isize {
            match self.ivars().flexibility {
                Flexibility::Fixed => UNSPECIFIED,
                Flexibility::Enumerated(_) => ENUMERATED,
                Flexibility::Ranges(_) => RANGES,
            }
        }

        #[unsafe(method_id(enumeratedShapes))]
        fn shapes(&self) -> Retained<NSArray<NSArray<NSNumber>>> {
            let shapes: &[Vec<u64>] = match &self.ivars().flexibility {
                Flexibility::Enumerated(shapes) => shapes,
                _ => &[],
            };
            NSArray::from_retained_slice(&shapes.iter().map(|shape| sizes(shape)).collect::<Vec<_>>())
        }
    }
);

pub(super) fn register() {
    Description::class();
    FeatureDescription::class();
    Constraint::class();
    ShapeConstraint::class();
}
