//! Models for Core AI as Core ML packages can have them.

use anemeter::mil::{FeatureType, Model, Type};
use anemeter::tensor::DType;

/// The model with int32 in place of uint16, which no input of a package can be.
pub(crate) fn for_a_package(mut model: Model) -> Model {
    for function in &mut model.program.functions {
        for value in &mut function.values {
            if let Type::Tensor(ty) = &mut value.ty
                && ty.dtype == DType::U16
            {
                ty.dtype = DType::I32;
            }
        }
    }
    let names: Vec<String> = model.program.functions.iter().map(|function| function.name.clone()).collect();
    for name in names {
        for feature in model.interface_mut(&name).into_iter().flat_map(|interface| &mut interface.inputs) {
            if let FeatureType::Array(array) = &mut feature.ty
                && array.dtype == DType::U16
            {
                array.dtype = DType::I32;
            }
        }
    }
    model
}
