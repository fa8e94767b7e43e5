//! Lists of tensors of one shape. While a program runs a list is one tensor with its length in front; a list
//! whose element shape is not known yet has no elements until the first write.

use super::prelude::*;

const LIST: Param = Param::value("ls", ANY);
const INDEX: Param = Param::value("index", INT);
const INDICES: Param = Param::value("indices", INT);
const VALUE: Param = Param::value("value", FLOAT_INT_BOOL);

pub(super) const OPS: &[OpDef] = &[
    list_op("make_list", infer_make, make).takes(&[
        Param::value("init_length", INT).or_int(1),
        Param::constant("dynamic_length", BOOL).or_bool(true),
        // Elements that are scalars bind nothing here.
        Param::constant("elem_shape", &[DType::I32, DType::String]).many().optional(),
        Param::constant("dtype", TEXT).or_text("fp32"),
    ]),
    list_op("list_length", infer_length, length).takes(&[LIST]),
    list_op("list_read", |call| Ok(vec![ListType::of(call)?.element.into()]), read).takes(&[LIST, INDEX]),
    list_op("list_write", infer_write, write).takes(&[LIST, INDEX, VALUE]),
    list_op("list_gather", infer_gather, gather).takes(&[LIST, INDICES]),
    list_op("list_scatter", infer_scatter, scatter).takes(&[LIST, INDICES, VALUE]),
];

const fn list_op(name: &'static str, infer: Infer, kernel: Kernel) -> OpDef {
    define(OpClass::Movement, name, Ios15, infer, kernel)
}

/// A list's element type and its length, which is unknown if the list can grow.
struct ListType {
    element: TensorType,
    length: Dim,
}

impl ListType {
    fn of(call: &Call<'_>) -> Result<ListType> {
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
        let list = list.ok_or_else(|| op_error!("`ls` is a {ty}, not a list of tensors"))?;
        check_storable(list.element.dtype)?;
        Ok(list)
    }

    /// The list after elements of type `value` were written up to index `last`, if that is known.
    fn after_write(self, value: &TensorType, last: Option<i64>) -> Result<Type> {
        let ListType { element, length } = self;
        let mismatch = || op_error!("a {value} cannot be written to a list of {element}");
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

fn check_storable(dtype: DType) -> Result {
    match dtype {
        DType::String => Err(OpError::new("a list of strings cannot be computed")),
        dtype if dtype.is_sub_byte() => refuse!("a list of {dtype} cannot be computed"),
        _ => Ok(()),
    }
}

fn infer_make(call: &Call<'_>) -> Result<Vec<Type>> {
    let name = call.text("dtype")?;
    let dtype = DType::from_name(name).ok_or_else(|| op_error!("`dtype` is `{name}`, which is no type"))?;
    check_storable(dtype)?;
    let known = !call.has("init_length") || call.known("init_length").is_some();
    let length = if known { Dim::from(initial_length(call)?) } else { Dim::Unknown };
    let length = if call.bool("dynamic_length")? { Dim::Unknown } else { length };
    let shape = (0..call.count("elem_shape")).map(|i| element_dim(call, i)).collect::<Result<_, _>>()?;
    Ok(vec![Type::List(Box::new(TensorType::new(dtype, shape).into()), length)])
}

fn initial_length(call: &Call<'_>) -> Result<usize> {
    let length = call.int("init_length")?;
    usize::try_from(length).map_err(|_| op_error!("`init_length` is {length}"))
}

/// Dimension `i` of the elements: a number, or a name for a size known later.
fn element_dim(call: &Call<'_>, i: usize) -> Result<Dim> {
    let view = call.tensor_at("elem_shape", i)?;
    if view.dtype() == DType::String {
        return Ok(Dim::Unknown);
    }
    match view.slice::<i32>()? {
        [size] if *size >= 0 => Ok(Dim::Fixed(size.unsigned_abs().into())),
        other => refuse!("`elem_shape` {i} is {other:?}, not a size"),
    }
}

fn make(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let mut shape = Shape::new();
    shape.push(initial_length(call)?);
    for i in 0..call.count("elem_shape") {
        shape.push(element_dim(call, i)?.size().unwrap_or(0));
    }
    outputs.resize(0, &shape)?.bytes().fill(0);
    Ok(())
}

fn length(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let length = stored_list(call)?.shape()[0];
    let length = i32::try_from(length).map_err(|_| op_error!("a list of length {length} is too long"))?;
    outputs.tensor(0)?.slice::<i32>()?.fill(length);
    Ok(())
}

fn stored_list<'a>(call: &Call<'a>) -> Result<TensorView<'a>> {
    let list = call.tensor("ls")?;
    refuse_if!(list.rank() == 0, "`ls` is a scalar, not a list");
    Ok(list)
}

/// The bytes of element `index`.
fn element<'a>(list: &TensorView<'a>, index: i32) -> Result<&'a [u8]> {
    let length = list.shape()[0];
    let at = usize::try_from(index).ok().filter(|&at| at < length);
    let at = at.ok_or_else(|| op_error!("index {index} is outside a list of length {length}"))?;
    let size = list.bytes().len() / length;
    Ok(&list.bytes()[at * size..(at + 1) * size])
}

fn single_index(call: &Call<'_>) -> Result<i32> {
    match call.tensor("index")?.slice::<i32>()? {
        [index] => Ok(*index),
        more => refuse!("`index` holds {} integers, not one", more.len()),
    }
}

fn read(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let list = stored_list(call)?;
    let bytes = element(&list, single_index(call)?)?;
    outputs.resize(0, &list.shape()[1..])?.bytes().copy_from_slice(bytes);
    Ok(())
}

/// The number of indices.
fn index_count(call: &Call<'_>) -> Result<Dim> {
    let indices = call.ty("indices")?;
    match (indices.rank(), &indices.shape[..]) {
        (Some(1), [count]) => Ok(*count),
        (None, _) => Ok(Dim::Unknown),
        _ => refuse!("`indices` is a {indices}, not of rank 1"),
    }
}

fn infer_gather(call: &Call<'_>) -> Result<Vec<Type>> {
    let element = ListType::of(call)?.element;
    let shape = [index_count(call)?].into_iter().chain(element.shape).collect();
    Ok(dims::one(element.dtype, shape))
}

fn gather(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
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

fn infer_length(call: &Call<'_>) -> Result<Vec<Type>> {
    ListType::of(call).map(|_| vec![TensorType::scalar(DType::I32).into()])
}

fn infer_write(call: &Call<'_>) -> Result<Vec<Type>> {
    let last = call.known_ints("index")?.and_then(|index| index.first().copied());
    Ok(vec![ListType::of(call)?.after_write(call.ty("value")?, last)?])
}

fn infer_scatter(call: &Call<'_>) -> Result<Vec<Type>> {
    let value = call.ty("value")?;
    let element = match (value.rank(), value.shape.split_first()) {
        (None, _) => value.clone(),
        (Some(_), Some((count, element))) => {
            if let (Dim::Fixed(indices), Dim::Fixed(values)) = (index_count(call)?, *count)
                && indices != values
            {
                refuse!("`value` holds {values} elements for {indices} indices");
            }
            TensorType::new(value.dtype, element.into())
        }
        (Some(_), None) => refuse!("`value` is a scalar, not a list of elements"),
    };
    let last = call.known_ints("indices")?.and_then(|indices| indices.iter().max().copied());
    Ok(vec![ListType::of(call)?.after_write(&element, last)?])
}

fn write(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let value = call.tensor("value")?;
    put(call, outputs, &[single_index(call)?], value.shape(), value.bytes())
}

fn scatter(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (value, indices) = (call.tensor("value")?, call.tensor("indices")?.slice::<i32>()?);
    match value.shape().split_first() {
        Some((&count, element)) if count == indices.len() => {
            put(call, outputs, indices, element, value.bytes())
        }
        _ => refuse!(
            "`value` of shape {:?} does not hold an element for each of {} indices",
            value.shape(),
            indices.len()
        ),
    }
}

/// Writes elements of the given shape one after the other, each at its index; the list grows as needed.
fn put(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    indices: &[i32],
    element: &[usize],
    values: &[u8],
) -> Result {
    let list = stored_list(call)?;
    let (length, held) = (list.shape()[0], &list.shape()[1..]);
    let unwritten = shape::element_count(held) == Some(0);
    if held != element && !unwritten {
        refuse!("an element of shape {element:?} cannot be written to a list of shape {held:?}");
    }
    let mut grown = length;
    for &index in indices {
        let at = usize::try_from(index).map_err(|_| op_error!("list index {index} is negative"))?;
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
    use super::*;

    fn apply(name: &str, args: &[(&str, Tensor)]) -> Result<Tensor> {
        run(name, Ios15, args).map(|mut out| out.remove(0))
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
        let symbol = [text("elem_shape", "s0"), text("dtype", "int32")];
        let list = apply("make_list", &symbol).unwrap();
        assert_eq!(list.shape(), [1, 0]);
        let write = [("ls", list), ("index", Tensor::scalar(1i32)), ("value", ints(&[7, 8, 9]))];
        let list = apply("list_write", &write).unwrap();
        assert_eq!(list, tensor(&[2, 3], &[0, 0, 0, 7, 8, 9]));
        refused(
            apply("list_write", &[("ls", list), write[1].clone(), ("value", ints(&[1]))]),
            "a tensor<int32, [1]> cannot be written to a list of tensor<int32, [3]>",
        );
    }

    #[test]
    fn reads_outside_the_list_are_refused() {
        let list = ("ls", floats(&[2, 1], &[1.0, 2.0]));
        let read = |index: i32| apply("list_read", &[list.clone(), ("index", Tensor::scalar(index))]);
        assert_eq!(read(1).unwrap(), floats(&[1], &[2.0]));
        refused(read(2), "index 2 is outside a list of length 2");
        assert!(read(-1).is_err());
        assert!(apply("list_gather", &[list.clone(), ("indices", ints(&[0, 2]))]).is_err());
        let write = [list, ("index", Tensor::scalar(-1i32)), ("value", floats(&[1], &[0.0]))];
        refused(apply("list_write", &write), "list index -1 is negative");
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
            let types = infer("list_write", Ios15, &Typed { arguments: &arguments, ..Typed::default() });
            assert_eq!(types, Ok(vec![list(length)]));
        }
    }
}
