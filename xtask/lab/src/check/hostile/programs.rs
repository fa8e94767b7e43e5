//! Programs that ask for memory without end, or do not end.

use std::path::Path;

use anemeter::mil::verify::verify;
use anemeter::mil::{Builder, Function, Model, Opset, TensorType, Type, ValueId};
use anemeter::package::{WriteOptions, write};
use anemeter::tensor::DType;
use anyhow::{Result, anyhow};
use fastrand::Rng;

/// Writes one; false if the builder or the verifier refuses it.
pub(super) fn write_one(path: &Path, random: &mut Rng) -> Result<bool> {
    let Ok(function) = made(random) else { return Ok(false) };
    let Ok(verified) = verify(Model::single(function)) else { return Ok(false) };
    write(&verified, path, WriteOptions::default())?;
    Ok(true)
}

fn size(random: &mut Rng) -> i32 {
    let sizes = [0, 1, -1, 7, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 28, 1 << 30, i32::MAX, i32::MIN];
    sizes[random.usize(..sizes.len())]
}

fn made(random: &mut Rng) -> Result<Function> {
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(DType::F32, &[1, 4]));
    let y = match random.u8(..9) {
        0 => fill(&mut main, random)?,
        1 => {
            let reps = [size(random), size(random)];
            main.op("tile").arg("x", x).arg("reps", reps).push()?
        }
        2 => {
            let (start, step) = (0f32, [1f32, 0.0, -1.0, 1e-30, f32::NAN][random.usize(..5)]);
            let end = [1e9f32, 3e38, f32::INFINITY, -5.0][random.usize(..4)];
            main.op("range_1d").arg("start", start).arg("end", end).arg("step", step).push()?
        }
        3 => {
            let indices = [0, 1, size(random)];
            let classes = size(random);
            main.op("one_hot").arg("indices", indices).arg("one_hot_vector_size", classes).push()?
        }
        4 => {
            let pad = [0, size(random), size(random), 0];
            main.op("pad")
                .arg("x", x)
                .arg("pad", pad)
                .arg("mode", "constant")
                .arg("constant_val", 0f32)
                .push()?
        }
        5 => {
            let image = main.op("reshape").arg("x", x).arg("shape", [1, 1, 2, 2]).push()?;
            let (high, wide) = (size(random), size(random));
            let mode = "STRICT_ALIGN_CORNERS";
            let op = main.op("resize_bilinear").arg("x", image).arg("target_size_height", high);
            op.arg("target_size_width", wide).arg("sampling_mode", mode).push()?
        }
        6 => {
            let times = random.usize(1..40);
            (0..times).try_fold(x, |x, _| main.op("concat").args("values", &[x, x]).arg("axis", 1).push())?
        }
        7 => looped(&mut main, x, random.usize(1..4), random)?,
        _ => {
            let shape = main.op("fill").arg("shape", [2]).arg("value", size(random)).push()?;
            main.op("fill").arg("shape", shape).arg("value", 1f32).push()?
        }
    };
    Ok(main.finish(&[y]))
}

fn fill(main: &mut Builder, random: &mut Rng) -> Result<ValueId> {
    let shape = [size(random), size(random)];
    Ok(main.op("fill").arg("shape", shape).arg("value", 1f32).push()?)
}

/// Loops in loops that never end, or whose variable doubles.
fn looped(main: &mut Builder, x: ValueId, depth: usize, random: &mut Rng) -> Result<ValueId> {
    let ty: Type = match random.bool() {
        true => TensorType::fixed(DType::F32, &[1, 4]).into(),
        false => TensorType::new(DType::F32, vec![1usize.into(), anemeter::mil::Dim::Unknown]).into(),
    };
    let (condition_input, body_input) = (format!("c{depth}"), format!("b{depth}"));
    let doubles = random.bool();
    let condition = main.block(&[(&condition_input, ty.clone())], |main, _| {
        let one = main.op("equal").arg("x", 1i32).arg("y", 1i32).push()?;
        Ok(vec![one])
    })?;
    let mut inner_failure = None;
    let body = main.block(&[(&body_input, ty)], |main, inputs| {
        let x = inputs[0];
        let y = match doubles {
            true => main.op("concat").args("values", &[x, x]).arg("axis", 1).push()?,
            false => main.op("add").arg("x", x).arg("y", 1f32).push()?,
        };
        if depth <= 1 {
            return Ok(vec![y]);
        }
        match looped(main, y, depth - 1, random) {
            Ok(inner) => Ok(vec![inner]),
            Err(error) => {
                inner_failure = Some(error);
                Ok(vec![y])
            }
        }
    })?;
    if let Some(error) = inner_failure {
        return Err(anyhow!("an inner loop: {error}"));
    }
    Ok(main.op("while_loop").arg("loop_vars", x).nested(condition).nested(body).push()?)
}
