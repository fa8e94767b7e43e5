//! A function as Apple's module describes it, against what the file says.

use serde::Deserialize;

use super::frame::{Spec, name_of};
use anemeter_mil::{Feature, FeatureType, Flexibility, Interface};

/// A function as a worker describes it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Described {
    inputs: Vec<Spec>,
    outputs: Vec<Spec>,
    states: Vec<Spec>,
    /// What loading it took.
    pub(super) elapsed_s: f64,
}

impl Described {
    /// How it differs from what the file says. One of the two readers is wrong then, and nothing that follows is to be
    /// believed.
    pub(super) fn difference(&self, interface: &Interface) -> Option<String> {
        let kinds = [
            ("inputs", &self.inputs, &interface.inputs),
            ("outputs", &self.outputs, &interface.outputs),
            ("states", &self.states, &interface.states),
        ];
        kinds.into_iter().find_map(|(kind, told, read)| {
            let (mut told, mut read) =
                (told.iter().map(as_told).collect::<Vec<_>>(), read.iter().map(as_read).collect::<Vec<_>>());
            told.sort();
            read.sort();
            (told != read).then(|| {
                format!(
                    "its {kind} are {} in the file, and {} by Apple's module",
                    listed(&read),
                    listed(&told)
                )
            })
        })
    }
}

fn listed(ports: &[String]) -> String {
    if ports.is_empty() { "none".to_owned() } else { ports.join(", ") }
}

fn as_told(port: &Spec) -> String {
    let shape: Vec<String> =
        port.shape.iter().map(|&size| if size < 0 { "?".to_owned() } else { size.to_string() }).collect();
    let (name, dtype) = (port.name.escape_debug(), port.dtype.escape_debug());
    format!("`{name}` {dtype} [{}]", shape.join(", "))
}

fn as_read(feature: &Feature) -> String {
    let name = feature.name.escape_debug();
    let (FeatureType::Array(array) | FeatureType::State(array)) = &feature.ty else {
        return format!("`{name}` other []");
    };
    let sizes: Vec<String> = match &array.flexibility {
        Flexibility::Ranges(ranges) => {
            let size = |(low, high): &(u64, Option<u64>)| match high {
                Some(high) if high == low => low.to_string(),
                _ => "?".to_owned(),
            };
            ranges.iter().map(size).collect()
        }
        _ => array.shape.iter().map(u64::to_string).collect(),
    };
    format!("`{name}` {} [{}]", name_of(array.dtype).unwrap_or("other"), sizes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_kernels::tensor::DType;
    use anemeter_mil::{Function, Opset, TensorType, Type};

    fn port(name: &str, dtype: &str, shape: &[i64]) -> Spec {
        Spec { name: name.to_owned(), dtype: dtype.to_owned(), shape: shape.to_vec() }
    }

    #[test]
    fn what_the_two_readers_say_of_a_function_must_be_the_same() {
        let mut function = Function::new("main", Opset::Ios18);
        for (name, shape) in [("a", &[2, 3][..]), ("b", &[])] {
            let id = function.add_value(name, Type::Tensor(TensorType::fixed(DType::F16, shape)));
            function.inputs.push(id);
        }
        let id = function.add_value("kv", Type::State(TensorType::fixed(DType::F32, &[4])));
        function.inputs.push(id);
        let interface = Interface::of(&function);
        let mut told = Described {
            inputs: vec![port("b", "float16", &[]), port("a", "float16", &[2, 3])],
            outputs: vec![],
            states: vec![port("kv", "float32", &[4])],
            elapsed_s: 0.0,
        };
        assert_eq!(told.difference(&interface), None, "whatever the order");
        told.states[0].shape = vec![-1];
        insta::assert_snapshot!(told.difference(&interface).unwrap(), @"its states are `kv` float32 [4] in the file, and `kv` float32 [?] by Apple's module");
        told.inputs.clear();
        insta::assert_snapshot!(told.difference(&interface).unwrap(), @"its inputs are `a` float16 [2, 3], `b` float16 [] in the file, and none by Apple's module");
    }
}
