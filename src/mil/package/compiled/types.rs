//! Types: `tensor<fp16, [1, ?]>`, `list<T, n>`, `tuple<T, ..>`, `dict<K, V>`, `state<T>`, and `fp16` for a scalar.

use super::lexer::{Lexer, Token};
use crate::package::check::{DEEPEST, HIGHEST_RANK};
use crate::package::error::{Result, quoted};
use crate::{Dim, TensorType, Type};
use anemeter_kernels::tensor::DType;

/// A type.
pub(super) fn value_type(lexer: &mut Lexer<'_>) -> Result<Type> {
    nested(lexer, 0)
}

/// The type whose first word was taken at a place.
pub(super) fn starting_with(lexer: &mut Lexer<'_>, word: &str, place: usize) -> Result<Type> {
    rest(lexer, word, place, 0)
}

fn nested(lexer: &mut Lexer<'_>, depth: usize) -> Result<Type> {
    let place = lexer.place();
    let word = lexer.name("a type")?;
    rest(lexer, word, place, depth)
}

fn rest(lexer: &mut Lexer<'_>, word: &str, place: usize, depth: usize) -> Result<Type> {
    if depth > DEEPEST {
        return Err(lexer.error_at(place, format!("types nest deeper than {DEEPEST} levels")));
    }
    match word {
        "tensor" => tensor(lexer).map(Type::Tensor),
        "list" => {
            lexer.expect("<")?;
            let element = nested(lexer, depth + 1)?;
            lexer.expect(",")?;
            let length = dim(lexer)?;
            lexer.expect(">")?;
            Ok(Type::List(Box::new(element), length))
        }
        "tuple" => {
            lexer.expect("<")?;
            Ok(Type::Tuple(lexer.list(">", |lexer| nested(lexer, depth + 1))?))
        }
        "dict" => {
            lexer.expect("<")?;
            let key = nested(lexer, depth + 1)?;
            lexer.expect(",")?;
            let value = nested(lexer, depth + 1)?;
            lexer.expect(">")?;
            Ok(Type::Dictionary(Box::new(key), Box::new(value)))
        }
        "state" => {
            lexer.expect("<")?;
            let place = lexer.place();
            let wrapped = nested(lexer, depth + 1)?;
            lexer.expect(">")?;
            match wrapped {
                Type::Tensor(tensor) => Ok(Type::State(tensor)),
                other => Err(lexer.error_at(place, format!("a state wraps {other}, expected a tensor"))),
            }
        }
        scalar => match DType::from_name(scalar) {
            Some(dtype) => Ok(TensorType::scalar(dtype).into()),
            None => Err(lexer.error_at(place, format!("expected a type, found {}", quoted(scalar)))),
        },
    }
}

fn tensor(lexer: &mut Lexer<'_>) -> Result<TensorType> {
    lexer.expect("<")?;
    let place = lexer.place();
    let name = lexer.name("an element type")?;
    let Some(dtype) = DType::from_name(name) else {
        return Err(lexer.error_at(place, format!("expected an element type, found {}", quoted(name))));
    };
    lexer.expect(",")?;
    let place = lexer.place();
    lexer.expect("[")?;
    let mut shape = Vec::new();
    lexer.each("]", |lexer| {
        if shape.len() == HIGHEST_RANK {
            let text =
                format!("a tensor type has more than the {HIGHEST_RANK} dimensions that are supported");
            return Err(lexer.error_at(place, text));
        }
        shape.push(dim(lexer)?);
        Ok(())
    })?;
    lexer.expect(">")?;
    shape.shrink_to_fit();
    Ok(TensorType { dtype, shape })
}

fn dim(lexer: &mut Lexer<'_>) -> Result<Dim> {
    let size = match lexer.peek() {
        Token::Mark("?") => Some(Dim::Unknown),
        Token::Mark("...") => Some(Dim::Variadic),
        Token::Number(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            digits.parse().ok().map(Dim::Fixed)
        }
        _ => None,
    };
    let Some(size) = size else { return Err(lexer.unexpected("a size or `?`")) };
    lexer.take()?;
    Ok(size)
}
