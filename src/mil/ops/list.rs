//! Lists of tensors of one shape. While a program runs a list is one tensor with its length in front; a list
//! whose element shape is not known yet has no elements until the first write.

use crate::mil::op::domain::{ANY, BOOL, FLOAT_INT_BOOL, INT, TEXT};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Dim, Opset, TensorType, Type};
use crate::tensor::{DType, Shape, TensorView, shape};

const LIST: Param = Param::value("ls", ANY);

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "make_list",
        since: Opset::Ios15,
        params: &[
            Param::value("init_length", INT).or_int(1),
            Param::constant("dynamic_length", BOOL).or_bool(true),
            // Elements that are scalars bind nothing here.
            Param::constant("elem_shape", &[DType::I32, DType::String]).many().optional(),
            Param::constant("dtype", TEXT).or_text("fp32"),
        ],
        infer: infer_make,
        eval: Eval::Kernel(make),
    },
    OpDef {
        name: "list_length",
        since: Opset::Ios15,
        params: &[LIST],
        infer: |call| ListType::of(call).map(|_| vec![TensorType::scalar(DType::I32).into()]),
        eval: Eval::Kernel(length),
    },
    OpDef {
        name: "list_read",
        since: Opset::Ios15,
        params: &[LIST, Param::value("index", INT)],
        infer: |call| Ok(vec![ListType::of(call)?.element.into()]),
        eval: Eval::Kernel(read),
    },
    OpDef {
        name: "list_write",
        since: Opset::Ios15,
        params: &[LIST, Param::value("index", INT), Param::value("value", FLOAT_INT_BOOL)],
        infer: infer_write,
        eval: Eval::Kernel(write),
    },
    OpDef {
        name: "list_gather",
        since: Opset::Ios15,
        params: &[LIST, Param::value("indices", INT)],
        infer: infer_gather,
        eval: Eval::Kernel(gather),
    },
    OpDef {
        name: "list_scatter",
        since: Opset::Ios15,
        params: &[LIST, Param::value("indices", INT), Param::value("value", FLOAT_INT_BOOL)],
        infer: infer_scatter,
        eval: Eval::Kernel(scatter),
    },
];

/// A list's element type and its length, which is unknown if the list can grow.
struct ListType {
    element: TensorType,
    length: Dim,
}

impl ListType {
    fn of(call: &Call<'_>) -> Result<ListType, OpError> {
        let ty = call.any_ty("ls")?;
        let list = match ty {
            Type::List(element, length) => {
                element.tensor().map(|element| ListType { element: element.clone(), length: *length })
            }
            Type::Tensor(stored) if stored.rank().is_some() => {
                stored.shape.split_first().map(|(&length, element)| ListType {
                    element: TensorType::new(stored.dtype, element.into()),
                    length,
                })
            }
            _ => None,
        };
        let list = list.ok_or_else(|| OpError::new(format!("`ls` is a {ty}, not a list of tensors")))?;
        check_storable(list.element.dtype)?;
        Ok(list)
    }

    /// The list after elements of type `value` were written up to index `last`, if that is known.
    fn after_write(self, value: &TensorType, last: Option<i64>) -> Result<Type, OpError> {
        let ListType { element, length } = self;
        let mismatch = || OpError::new(format!("a {value} cannot be written to a list of {element}"));
        let shape = match (element.rank(), value.rank()) {
            (Some(m), Some(n)) if m == n => {
                let dims = element.shape.iter().zip(&value.shape);
                let shape: Option<Vec<Dim>> = dims
                    .map(|pair| match pair {
                        (Dim::Fixed(0), written) => Some(*written),
                        (Dim::Fixed(a), Dim::Fixed(b)) if a != b => None,
                        (held, _) => Some(*held),
                    })
                    .collect();
                shape.ok_or_else(mismatch)?
            }
            (Some(_), Some(_)) => return Err(mismatch()),
            _ => element.shape.clone(),
        };
        if element.dtype != value.dtype {
            return Err(mismatch());
        }
        let length = match (length, last.and_then(|last| u64::try_from(last).ok())) {
            (Dim::Fixed(length), Some(last)) => Dim::Fixed(length.max(last + 1)),
            (length, _) => length,
        };
        Ok(Type::List(Box::new(TensorType::new(element.dtype, shape).into()), length))
    }
}

fn check_storable(dtype: DType) -> Result<(), OpError> {
    match dtype {
        DType::String => Err(OpError::new("a list of strings cannot be computed")),
        dtype if dtype.is_sub_byte() => Err(OpError::new(format!("a list of {dtype} cannot be computed"))),
        _ => Ok(()),
    }
}

fn infer_make(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let name = call.text("dtype")?;
    let dtype = DType::from_name(name)
        .ok_or_else(|| OpError::new(format!("`dtype` is `{name}`, which is no type")))?;
    check_storable(dtype)?;
    let known = !call.has("init_length") || call.known("init_length").is_some();
    let length = if known { Dim::from(initial_length(call)?) } else { Dim::Unknown };
    let length = if call.bool("dynamic_length")? { Dim::Unknown } else { length };
    let shape = (0..call.count("elem_shape")).map(|i| element_dim(call, i)).collect::<Result<_, _>>()?;
    Ok(vec![Type::List(Box::new(TensorType::new(dtype, shape).into()), length)])
}

fn initial_length(call: &Call<'_>) -> Result<usize, OpError> {
    let length = call.int("init_length")?;
    usize::try_from(length).map_err(|_| OpError::new(format!("`init_length` is {length}")))
}

/// Dimension `i` of the elements: a number, or a name for a size known later.
fn element_dim(call: &Call<'_>, i: usize) -> Result<Dim, OpError> {
    let view = call.tensor_at("elem_shape", i)?;
    if view.dtype() == DType::String {
        return Ok(Dim::Unknown);
    }
    match view.slice::<i32>()? {
        [size] if *size >= 0 => Ok(Dim::Fixed(size.unsigned_abs().into())),
        other => Err(OpError::new(format!("`elem_shape` {i} is {other:?}, not a size"))),
    }
}

fn make(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let mut shape = Shape::new();
    shape.push(initial_length(call)?);
    for i in 0..call.count("elem_shape") {
        shape.push(element_dim(call, i)?.size().unwrap_or(0));
    }
    outputs.resize(0, &shape)?.bytes().fill(0);
    Ok(())
}

fn length(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let length = stored_list(call)?.shape()[0];
    let length =
        i32::try_from(length).map_err(|_| OpError::new(format!("a list of length {length} is too long")))?;
    outputs.tensor(0)?.slice::<i32>()?.fill(length);
    Ok(())
}

fn stored_list<'a>(call: &Call<'a>) -> Result<TensorView<'a>, OpError> {
    let list = call.tensor("ls")?;
    if list.rank() == 0 {
        return Err(OpError::new("`ls` is a scalar, not a list"));
    }
    Ok(list)
}

/// The bytes of element `index`.
fn element<'a>(list: &TensorView<'a>, index: i32) -> Result<&'a [u8], OpError> {
    let length = list.shape()[0];
    let at = usize::try_from(index).ok().filter(|&at| at < length);
    let at = at.ok_or_else(|| OpError::new(format!("index {index} is outside a list of length {length}")))?;
    let size = list.bytes().len() / length;
    Ok(&list.bytes()[at * size..(at + 1) * size])
}

fn single_index(call: &Call<'_>) -> Result<i32, OpError> {
    match call.tensor("index")?.slice::<i32>()? {
        [index] => Ok(*index),
        more => Err(OpError::new(format!("`index` holds {} integers, not one", more.len()))),
    }
}

fn read(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let list = stored_list(call)?;
    let bytes = element(&list, single_index(call)?)?;
    outputs.resize(0, &list.shape()[1..])?.bytes().copy_from_slice(bytes);
    Ok(())
}

/// The number of indices.
fn index_count(call: &Call<'_>) -> Result<Dim, OpError> {
    let indices = call.ty("indices")?;
    match (indices.rank(), &indices.shape[..]) {
        (Some(1), [count]) => Ok(*count),
        (None, _) => Ok(Dim::Unknown),
        _ => Err(OpError::new(format!("`indices` is a {indices}, not of rank 1"))),
    }
}

fn infer_gather(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let element = ListType::of(call)?.element;
    let shape = [index_count(call)?].into_iter().chain(element.shape).collect();
    Ok(vec![TensorType::new(element.dtype, shape).into()])
}

fn gather(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (list, indices) = (stored_list(call)?, call.tensor("indices")?.slice::<i32>()?);
    let mut shape = Shape::from_slice(list.shape());
    shape[0] = indices.len();
    let mut out = outputs.resize(0, &shape)?.bytes();
    for &index in indices {
        let bytes = element(&list, index)?;
        let (place, rest) = std::mem::take(&mut out).split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        out = rest;
    }
    Ok(())
}

fn infer_write(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let last = call.known_ints("index")?.and_then(|index| index.first().copied());
    Ok(vec![ListType::of(call)?.after_write(call.ty("value")?, last)?])
}

fn infer_scatter(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let value = call.ty("value")?;
    let element = match (value.rank(), value.shape.split_first()) {
        (None, _) => value.clone(),
        (Some(_), Some((count, element))) => {
            if let (Dim::Fixed(indices), Dim::Fixed(values)) = (index_count(call)?, *count)
                && indices != values
            {
                return Err(OpError::new(format!("`value` holds {values} elements for {indices} indices")));
            }
            TensorType::new(value.dtype, element.into())
        }
        (Some(_), None) => return Err(OpError::new("`value` is a scalar, not a list of elements")),
    };
    let last = call.known_ints("indices")?.and_then(|indices| indices.iter().max().copied());
    Ok(vec![ListType::of(call)?.after_write(&element, last)?])
}

fn write(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let value = call.tensor("value")?;
    put(call, outputs, &[single_index(call)?], value.shape(), value.bytes())
}

fn scatter(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (value, indices) = (call.tensor("value")?, call.tensor("indices")?.slice::<i32>()?);
    match value.shape().split_first() {
        Some((&count, element)) if count == indices.len() => {
            put(call, outputs, indices, element, value.bytes())
        }
        _ => Err(OpError::new(format!(
            "`value` of shape {:?} does not hold an element for each of {} indices",
            value.shape(),
            indices.len()
        ))),
    }
}

/// Writes elements of the given shape one after the other, each at its index; the list grows as needed.
fn put(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    indices: &[i32],
    element: &[usize],
    values: &[u8],
) -> Result<(), OpError> {
    let list = stored_list(call)?;
    let (length, held) = (list.shape()[0], &list.shape()[1..]);
    let unwritten = shape::element_count(held) == Some(0);
    if held != element && !unwritten {
        return Err(OpError::new(format!(
            "an element of shape {element:?} cannot be written to a list of shape {held:?}"
        )));
    }
    let mut grown = length;
    for &index in indices {
        let at =
            usize::try_from(index).map_err(|_| OpError::new(format!("list index {index} is negative")))?;
        grown = grown.max(at.saturating_add(1));
    }
    let mut shape = Shape::from_slice(element);
    shape.insert(0, grown);
    let out = outputs.resize(0, &shape)?.bytes();
    let kept = if unwritten { 0 } else { list.bytes().len() };
    out[..kept].copy_from_slice(&list.bytes()[..kept]);
    out[kept..].fill(0);
    let size = if indices.is_empty() { 0 } else { values.len() / indices.len() };
    if size > 0 {
        for (&index, value) in indices.iter().zip(values.chunks_exact(size)) {
            let at = index.unsigned_abs() as usize * size;
            out[at..at + size].copy_from_slice(value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{floats, ints, run};
    use super::super::typed::{Typed, infer};
    use super::*;
    use crate::tensor::Tensor;

    fn apply(name: &str, args: &[(&str, Tensor)]) -> Result<Tensor, OpError> {
        run(name, Opset::Ios15, args).map(|mut out| out.remove(0))
    }

    #[test]
    fn lists_start_as_zeros_and_grow_when_written_past_the_end() {
        let size = Tensor::scalar(2i32);
        let list = apply("make_list", &[("init_length", size.clone()), ("elem_shape", size)]).unwrap();
        assert_eq!(list, floats(&[2, 2], &[0.0; 4]));
        let write = [("ls", list), ("index", Tensor::scalar(3i32)), ("value", floats(&[2], &[1.0, 2.0]))];
        let list = apply("list_write", &write).unwrap();
        assert_eq!(list, floats(&[4, 2], &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0]));
        let value = floats(&[2, 2], &[3.0, 4.0, 5.0, 6.0]);
        let list =
            apply("list_scatter", &[("ls", list), ("indices", ints(&[4, 0])), ("value", value)]).unwrap();
        assert_eq!(apply("list_length", &[("ls", list.clone())]).unwrap(), Tensor::scalar(5i32));
        let gathered = apply("list_gather", &[("ls", list), ("indices", ints(&[0, 4, 3]))]).unwrap();
        assert_eq!(gathered, floats(&[3, 2], &[5.0, 6.0, 3.0, 4.0, 1.0, 2.0]));
    }

    #[test]
    fn the_first_write_fixes_an_unknown_element_shape() {
        let symbol = [("elem_shape", Tensor::from_text("s0")), ("dtype", Tensor::from_text("int32"))];
        let list = apply("make_list", &symbol).unwrap();
        assert_eq!(list.shape(), [1, 0]);
        let write = [("ls", list), ("index", Tensor::scalar(1i32)), ("value", ints(&[7, 8, 9]))];
        let list = apply("list_write", &write).unwrap();
        assert_eq!(list, Tensor::from_slice(&[2, 3], &[0, 0, 0, 7, 8, 9]).unwrap());
        let error =
            apply("list_write", &[("ls", list), write[1].clone(), ("value", ints(&[1]))]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a tensor<int32, [1]> cannot be written to a list of tensor<int32, [3]>"
        );
    }

    #[test]
    fn reads_outside_the_list_are_refused() {
        let list = ("ls", floats(&[2, 1], &[1.0, 2.0]));
        let read = |index: i32| apply("list_read", &[list.clone(), ("index", Tensor::scalar(index))]);
        assert_eq!(read(1).unwrap(), floats(&[1], &[2.0]));
        assert_eq!(read(2).unwrap_err().to_string(), "index 2 is outside a list of length 2");
        assert!(read(-1).is_err());
        assert!(apply("list_gather", &[list.clone(), ("indices", ints(&[0, 2]))]).is_err());
        let write = [list, ("index", Tensor::scalar(-1i32)), ("value", floats(&[1], &[0.0]))];
        assert_eq!(apply("list_write", &write).unwrap_err().to_string(), "list index -1 is negative");
    }

    #[test]
    fn only_lists_of_fixed_length_have_a_known_one() {
        let list = |length| Type::List(Box::new(TensorType::fixed(DType::F32, &[2]).into()), length);
        for length in [Dim::Fixed(3), Dim::Unknown] {
            let arguments = [
                ("ls", list(length)),
                ("index", TensorType::scalar(DType::I32).into()),
                ("value", TensorType::fixed(DType::F32, &[2]).into()),
            ];
            let types =
                infer("list_write", Opset::Ios15, &Typed { arguments: &arguments, ..Typed::default() });
            assert_eq!(types, Ok(vec![list(length)]));
        }
    }
}
