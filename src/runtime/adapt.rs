//! A model as the driver of a bundle calls it.
//!
//! The driver names the functions of a bundle and gives fp16. A Core AI asset has a function for each shape of such a
//! function, and a bundle with fp32 activations takes fp32: fp16 is widened, which loses nothing. Outputs and states stay as
//! the model gives them.

use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;
use smallvec::SmallVec;

use crate::{HeldState, LoadedModel, Loading, Observer, Placement, RuntimeError, Session};
use anemeter_base::engine::CallOverhead;
use anemeter_kernels::tensor::{AlignedBuf, DType, Shape, Tensor, TensorView};
use anemeter_mil::{Feature, FeatureType, Interface, Model};

/// The model itself if it can be called as it is; else one that translates calls. Each function of the bundle comes with
/// the functions of the model that it is, one for each shape.
pub fn adapted(loaded: Arc<dyn LoadedModel>, functions: &[(&str, Vec<&str>)]) -> Arc<dyn LoadedModel> {
    let model = loaded.model();
    let is_itself = |(name, is): &(&str, Vec<&str>)| is[..] == [*name];
    let takes_fp32 =
        |interface: &Interface| interface.inputs.iter().any(|input| dtype(input) == Some(DType::F32));
    if functions.iter().all(is_itself) && !model.interfaces().iter().any(takes_fp32) {
        return loaded;
    }
    let owned = |(name, is): &(&str, Vec<&str>)| {
        ((*name).to_owned(), is.iter().map(|&name| name.to_owned()).collect())
    };
    let functions = functions.iter().map(owned).collect();
    Arc::new(Adapted { loaded, functions })
}

fn dtype(feature: &Feature) -> Option<DType> {
    match &feature.ty {
        FeatureType::Array(array) => Some(array.dtype),
        _ => None,
    }
}

struct Adapted {
    loaded: Arc<dyn LoadedModel>,
    /// What each function of the bundle is called in the model.
    functions: Vec<(String, Vec<String>)>,
}

impl Adapted {
    /// The functions of the model that a function of a bundle may be.
    fn candidates(&self, function: &str) -> impl Iterator<Item = &Interface> {
        let named = self.functions.iter().find(|(name, _)| name == function);
        let names = named.into_iter().flat_map(|(_, names)| names);
        names.filter_map(|name| self.loaded.model().interface(name))
    }

    /// The function that takes inputs of these names and shapes.
    fn resolve<'a>(
        &'a self,
        function: &str,
        inputs: &[(&str, TensorView<'_>)],
    ) -> Result<&'a Interface, RuntimeError> {
        let takes = |interface: &&Interface| {
            interface.inputs.len() == inputs.len()
                && inputs.iter().all(|(name, view)| {
                    interface.inputs.iter().any(|input| input.name == *name && fits(input, view))
                })
        };
        let found: SmallVec<[&'a Interface; 4]> = self.candidates(function).collect();
        // The only one says itself what is wrong with its inputs.
        if let [only] = found[..] {
            return Ok(only);
        }
        found.into_iter().find(takes).ok_or_else(|| {
            let given = inputs.iter().map(|(name, view)| format!("`{name}` {:?}", view.shape()));
            let known: Vec<&str> = self.candidates(function).map(|one| one.function.as_str()).collect();
            let problem = match known.is_empty() {
                true => "the model has no such function at any shape".to_owned(),
                false => {
                    let given = given.collect::<Vec<_>>().join(", ");
                    format!("none of {} takes {given}", known.join(", "))
                }
            };
            RuntimeError::Inputs { function: function.to_owned(), problems: vec![problem] }
        })
    }
}

/// Whether an input takes the shape of a tensor.
fn fits(input: &Feature, view: &TensorView<'_>) -> bool {
    let FeatureType::Array(array) = &input.ty else { return false };
    array.shape.is_empty() || array.shape.iter().copied().eq(view.shape().iter().map(|&size| size as u64))
}

impl LoadedModel for Adapted {
    fn model(&self) -> &Model {
        self.loaded.model()
    }

    fn session(self: Arc<Self>) -> Box<dyn Session> {
        let session = Arc::clone(&self.loaded).session();
        Box::new(AdaptedSession { session, model: self, resolved: Vec::new() })
    }

    fn prepare(&self, functions: &[&str]) -> Result<(), RuntimeError> {
        let all: Vec<&str> = functions
            .iter()
            .flat_map(|function| self.candidates(function))
            .map(|one| one.function.as_str())
            .collect();
        self.loaded.prepare(&all)
    }

    fn loading(&self) -> Loading {
        self.loaded.loading()
    }

    fn call_overheads(&self) -> Result<Vec<CallOverhead>, RuntimeError> {
        self.loaded.call_overheads()
    }

    fn placement(&self, functions: &[&str]) -> Result<Option<Placement>, RuntimeError> {
        self.loaded.placement(functions)
    }
}

struct AdaptedSession {
    session: Box<dyn Session>,
    model: Arc<Adapted>,
    /// What calls became; a bundle has few functions and shapes.
    resolved: Vec<Resolved>,
}

/// A function at shapes.
struct Resolved {
    function: String,
    shapes: SmallVec<[Shape; 16]>,
    /// What it is called.
    name: String,
    /// For each input in order, where it is widened to.
    widened: Vec<Option<AlignedBuf>>,
}

impl Resolved {
    fn is_of(&self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> bool {
        self.function == function
            && self.shapes.len() == inputs.len()
            && self.shapes.iter().zip(inputs).all(|(shape, (_, view))| shape[..] == *view.shape())
    }

    fn new(function: &str, interface: &Interface, inputs: &[(&str, TensorView<'_>)]) -> Resolved {
        let wants_fp32 = |name: &str| {
            interface.inputs.iter().any(|input| input.name == name && dtype(input) == Some(DType::F32))
        };
        let widened = inputs.iter().map(|(name, view)| {
            (view.dtype() == DType::F16 && wants_fp32(name)).then(|| AlignedBuf::zeroed(4 * view.len()))
        });
        Resolved {
            function: function.to_owned(),
            shapes: inputs.iter().map(|(_, view)| view.shape().into()).collect(),
            name: interface.function.clone(),
            widened: widened.collect(),
        }
    }

    fn widen(&mut self, inputs: &[(&str, TensorView<'_>)]) {
        for (buffer, (_, view)) in self.widened.iter_mut().zip(inputs) {
            let (Some(buffer), Ok(halves)) = (buffer, view.slice::<f16>()) else { continue };
            halves.convert_to_f32_slice(bytemuck::cast_slice_mut(&mut buffer[..]));
        }
    }
}

impl Session for AdaptedSession {
    fn predict(&mut self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError> {
        let known = self.resolved.iter().position(|resolved| resolved.is_of(function, inputs));
        let at = match known {
            Some(at) => at,
            None => {
                let interface = self.model.resolve(function, inputs)?;
                self.resolved.push(Resolved::new(function, interface, inputs));
                self.resolved.len() - 1
            }
        };
        let resolved = &mut self.resolved[at];
        resolved.widen(inputs);
        let given = inputs.iter().zip(&resolved.widened).map(|((name, view), widened)| {
            let wide =
                widened.as_ref().and_then(|bytes| TensorView::new(DType::F32, view.shape(), bytes).ok());
            (*name, wide.unwrap_or(*view))
        });
        let given: SmallVec<[(&str, TensorView<'_>); 16]> = given.collect();
        self.session.predict(&resolved.name, &given)
    }

    crate::delegate::to_session!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoadOptions;
    use anemeter_mil::{Builder, Function, Opset, TensorType};

    /// `y = x + x` of one shape.
    fn double(name: &str, dtype: DType, width: usize) -> Function {
        let mut function = Builder::new(name, Opset::Ios18);
        let x = function.input("x", TensorType::fixed(dtype, &[1, width]));
        let y = function.op("add").arg("x", x).arg("y", x).named("y").push().unwrap();
        function.finish(&[y])
    }

    fn load(functions: Vec<Function>) -> Arc<dyn LoadedModel> {
        crate::cpu().load_model(Model::multi(functions), &LoadOptions::default()).unwrap()
    }

    fn halves(values: &[f32]) -> Tensor {
        let values: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
        Tensor::from_slice(&[1, values.len()], &values).unwrap()
    }

    #[test]
    fn functions_are_found_by_their_shapes_and_halves_are_widened() {
        let functions = vec![double("prefill_2", DType::F32, 2), double("prefill_3", DType::F32, 3)];
        let loaded = adapted(load(functions), &[("prefill", vec!["prefill_2", "prefill_3"])]);
        loaded.prepare(&["prefill"]).unwrap();
        let mut session = loaded.session();
        for _ in 0..2 {
            for values in [&[0.5, -1.5][..], &[1.0, 2.0, 3.0]] {
                session.predict("prefill", &[("x", halves(values).view())]).unwrap();
                let expected: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
                assert_eq!(session.output("y").unwrap().slice::<f32>().unwrap(), expected);
            }
        }
        let wrong = session.predict("prefill", &[("x", halves(&[0.0; 4]).view())]).unwrap_err();
        insta::assert_snapshot!(wrong, @"function `prefill`: none of prefill_2, prefill_3 takes `x` [1, 4]");
        let none = session.predict("decode", &[("x", halves(&[0.0; 2]).view())]).unwrap_err();
        insta::assert_snapshot!(none, @"function `decode`: the model has no such function at any shape");
    }

    #[test]
    fn what_can_be_called_as_it_is_stays_as_it_is() {
        let loaded = load(vec![double("main", DType::F16, 2)]);
        assert!(Arc::ptr_eq(&loaded, &adapted(loaded.clone(), &[("main", vec!["main"])])));
        let wide = load(vec![double("main", DType::F32, 2)]);
        let mut session = adapted(wide, &[("main", vec!["main"])]).session();
        session.predict("main", &[("x", halves(&[1.0, 4.0]).view())]).unwrap();
        assert_eq!(session.output("y").unwrap().slice::<f32>().unwrap(), [2.0, 8.0]);
        let wrong = session.predict("main", &[("x", halves(&[1.0]).view())]).unwrap_err();
        insta::assert_snapshot!(wrong, @"function `main`: `x` has shape [1, 1], expected [1, 2]");
    }
}
