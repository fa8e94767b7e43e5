//! `non_maximum_suppression`: the best boxes, without those that overlap a better one too much.

use super::prelude::*;
use super::sort::rank_float;
use anemeter_kernels::convert::{round_f16, to_f32};

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Movement, "non_maximum_suppression", Ios15, infer, eval).takes(&[
        Param::value("boxes", FLOAT).group('T'),
        Param::value("scores", FLOAT).group('T'),
        Param::constant("iou_threshold", FLOAT).group('T'),
        Param::constant("score_threshold", FLOAT).group('T'),
        Param::constant("max_boxes", INT),
        Param::constant("per_class_suppression", BOOL).or_bool(false),
    ]),
    define(OpClass::Movement, "non_maximum_suppression", Ios17, infer, eval).takes(&[
        Param::value("boxes", FLOAT).group('T'),
        Param::value("scores", FLOAT).group('T'),
        Param::constant("iou_threshold", FLOAT).group('T'),
        Param::constant("max_boxes", INT),
        Param::constant("per_class_suppression", BOOL).or_bool(false),
    ]),
];

/// Whether the boxes are the last dimension, and nothing is said of how many were selected.
fn boxes_last(call: &Call<'_>) -> bool {
    call.opset() >= Ios17
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let last = boxes_last(call);
    let split = |name| -> Result<[Dim; 3]> {
        let dims = dims::of_rank(name, call.ty(name)?, 3)?;
        Ok(if last { [dims[0], dims[2], dims[1]] } else { [dims[0], dims[1], dims[2]] })
    };
    let ([batch, count, corners], [batch_2, count_2, classes]) = (split("boxes")?, split("scores")?);
    let fits = dims::same(count, count_2).is_some() && dims::same(corners, Dim::Fixed(4)).is_some();
    let batch = dims::same(batch, batch_2).filter(|_| fits && classes != Dim::Fixed(0));
    let (boxes, scores) = (call.ty("boxes")?, call.ty("scores")?);
    let batch = batch.ok_or_else(|| op_error!("`boxes` {boxes} do not go with `scores` {scores}"))?;
    call.float("iou_threshold")?;
    call.bool("per_class_suppression")?;
    let most = Dim::from(dims::size("max_boxes", call.int("max_boxes")?)?);
    let shape = |of: Dim| if last { vec![batch, of, most] } else { vec![batch, most, of] };
    let mut types = vec![
        TensorType::new(boxes.dtype, shape(Dim::Fixed(4))).into(),
        TensorType::new(scores.dtype, shape(classes)).into(),
        TensorType::new(DType::I32, vec![batch, most]).into(),
    ];
    if !last {
        call.float("score_threshold")?;
        types.push(TensorType::new(DType::I32, vec![batch]).into());
    }
    Ok(types)
}

/// How boxes are selected.
struct Rule {
    iou_threshold: f32,
    score_threshold: f32,
    per_class: bool,
    rounds: bool,
}

/// The tensors of one call: `batch` images with `count` boxes and `classes` scores per box.
struct Input<'a> {
    boxes: TensorView<'a>,
    scores: TensorView<'a>,
    batch: usize,
    count: usize,
    classes: usize,
    boxes_last: bool,
}

impl Input<'_> {
    /// The place of one of the `fields` numbers of a box, among those of its image.
    fn at(&self, index: usize, field: usize, fields: usize) -> usize {
        if self.boxes_last { field * self.count + index } else { index * fields + field }
    }

    /// Reads the numbers of one image, `fields` per box.
    fn read(&self, tensor: &TensorView<'_>, image: usize, out: &mut [f32]) {
        to_f32(tensor, image * out.len()..(image + 1) * out.len(), out);
    }
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (boxes, scores) = (call.tensor("boxes")?, call.tensor("scores")?);
    let boxes_last = boxes_last(call);
    let (count, classes) = if boxes_last { (2, 1) } else { (1, 2) };
    let input = Input {
        boxes,
        scores,
        batch: boxes.shape()[0],
        count: scores.shape()[count],
        classes: scores.shape()[classes],
        boxes_last,
    };
    let rule = Rule {
        iou_threshold: call.float("iou_threshold")?,
        score_threshold: if boxes_last { f32::NEG_INFINITY } else { call.float("score_threshold")? },
        per_class: call.bool("per_class_suppression")?,
        rounds: call.rounds(boxes.dtype()),
    };
    let (indices, scratch) = outputs.with_scratch(2)?;
    let most = indices.shape()[1];
    let indices = indices.slice::<i32>()?;
    indices.fill(-1);
    for image in 0..input.batch {
        select(&input, &rule, image, scratch, &mut indices[image * most..][..most]);
    }
    let mut all = outputs.all();
    let mut next = || all.next().unwrap_or_else(|| Err(OpError::new("operation needs more outputs")));
    let (out_boxes, out_scores, indices) = (next()?, next()?, next()?);
    let indices = &*indices.slice::<i32>()?;
    gather(&input, &input.boxes, indices, out_boxes);
    gather(&input, &input.scores, indices, out_scores);
    if !boxes_last {
        for (image, selected) in next()?.slice::<i32>()?.iter_mut().enumerate() {
            let found = indices[image * most..][..most].iter().filter(|&&index| index >= 0).count();
            *selected = found as i32;
        }
    }
    Ok(())
}

/// Writes the indices of the selected boxes of an image, best first.
fn select(input: &Input<'_>, rule: &Rule, image: usize, scratch: &mut Scratch, selected: &mut [i32]) {
    let count = input.count;
    let lengths = [2 * count, 4 * count, 4 * count, count, input.classes * count];
    let [keys, boxes, corners, classes, scores] = scratch.floats(lengths);
    let keys: &mut [u64] = bytemuck::cast_slice_mut(keys);
    let classes: &mut [u32] = bytemuck::cast_slice_mut(classes);
    input.read(&input.boxes, image, boxes);
    input.read(&input.scores, image, scores);
    let (mut passed, mut best) = (0, None);
    for index in 0..count {
        let (class, score) = best_class(input, scores, index);
        classes[index] = class;
        let numbers = [0, 1, 2, 3].map(|field| boxes[input.at(index, field, 4)]);
        corners[4 * index..][..4].copy_from_slice(&edges(numbers, rule.rounds));
        let key = u64::from(rank_float(score, false)) << 32 | index as u64;
        best = Some(best.map_or(key, |best: u64| best.min(key)));
        if score >= rule.score_threshold {
            keys[passed] = key;
            passed += 1;
        }
    }
    let candidates = &mut keys[..passed];
    candidates.sort_unstable();
    let index_of = |key: u64| (key & 0xffff_ffff) as usize;
    let mut found = 0;
    for &key in &*candidates {
        if found == selected.len() {
            return;
        }
        let index = index_of(key);
        let suppressed = selected[..found].iter().any(|&better| {
            let better = better as usize;
            (!rule.per_class || classes[better] == classes[index])
                && overlap(corners, better, index, rule.rounds) > rule.iou_threshold
        });
        if !suppressed {
            selected[found] = index as i32;
            found += 1;
        }
    }
    if let (0, Some(best), Some(first)) = (found, best, selected.first_mut()) {
        *first = index_of(best) as i32;
    }
}

/// The class with the highest score of a box, the first if there are several, and that score.
fn best_class(input: &Input<'_>, scores: &[f32], index: usize) -> (u32, f32) {
    let score = |class: usize| scores[input.at(index, class, input.classes)];
    let scores = (0u32..).zip((0..input.classes).map(score));
    scores.reduce(|best, next| if next.1 > best.1 { next } else { best }).unwrap_or((0, f32::NEG_INFINITY))
}

/// Left, bottom, right and top of a box given by its centre and size.
fn edges([x, y, width, height]: [f32; 4], rounds: bool) -> [f32; 4] {
    let (half_width, half_height) = (0.5 * width, 0.5 * height);
    [x - half_width, y - half_height, x + half_width, y + half_height].map(|edge| rounded(edge, rounds))
}

fn rounded(value: f32, rounds: bool) -> f32 {
    if rounds { round_f16(value) } else { value }
}

/// Intersection over union of two boxes.
fn overlap(corners: &[f32], a: usize, b: usize, rounds: bool) -> f32 {
    let edge = |which: usize, i: usize| corners[4 * which + i];
    let area = |width: f32, height: f32| rounded(width.max(0.0) * height.max(0.0), rounds);
    let whole = |i: usize| area(edge(i, 2) - edge(i, 0), edge(i, 3) - edge(i, 1));
    let shared = |low: usize, high: usize| {
        rounded(edge(a, high).min(edge(b, high)) - edge(a, low).max(edge(b, low)), rounds)
    };
    let intersection = area(shared(0, 2), shared(1, 3));
    let union = rounded(whole(a) + whole(b) - intersection, rounds);
    rounded(intersection / union, rounds)
}

/// Copies the numbers of the selected boxes; zero where there are fewer boxes than asked for.
fn gather(input: &Input<'_>, from: &TensorView<'_>, indices: &[i32], out: TensorMut<'_>) {
    let &[_, outer, inner] = out.shape() else { return };
    let (fields, most) = if input.boxes_last { (outer, inner) } else { (inner, outer) };
    let width = from.dtype().bits() as usize / 8;
    let out = out.bytes();
    out.fill(0);
    for (i, &index) in indices.iter().enumerate() {
        let Ok(index) = usize::try_from(index) else { continue };
        let (image, slot) = (i / most, i % most);
        for field in 0..fields {
            let source = (image * input.count * fields + input.at(index, field, fields)) * width;
            let within = if input.boxes_last { field * most + slot } else { slot * fields + field };
            let target = (image * most * fields + within) * width;
            out[target..][..width].copy_from_slice(&from.bytes()[source..][..width]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOXES: [f32; 16] = [0., 0., 2., 2., 0.5, 0., 2., 2., 10., 0., 2., 2., 10., 0., 2., 2.];
    const SCORES: [f32; 8] = [0.3, 0.1, 0.2, 0.9, 0.7, 0.0, 0.1, 0.5];

    fn suppress(threshold: f32, per_class: bool) -> (Vec<i32>, Vec<Tensor>) {
        let args = [
            ("boxes", tensor(&[1, 4, 4], &BOXES)),
            ("scores", tensor(&[1, 4, 2], &SCORES)),
            ("iou_threshold", Tensor::scalar(0.5f32)),
            ("score_threshold", Tensor::scalar(threshold)),
            ("max_boxes", Tensor::scalar(3)),
            ("per_class_suppression", Tensor::from_bool(per_class)),
        ];
        let out = run_many("non_maximum_suppression", Ios15, &args, 4).unwrap();
        (out[2].view().slice::<i32>().unwrap().to_vec(), out)
    }

    #[test]
    fn better_boxes_suppress_overlapping_ones() {
        let (indices, out) = suppress(0.0, false);
        assert_eq!(indices, [1, 2, -1]);
        let boxes = [0.5, 0.0, 2.0, 2.0, 10.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(out[0].view().slice::<f32>().unwrap(), boxes);
        assert_eq!(out[1].view().slice::<f32>().unwrap(), [0.2, 0.9, 0.7, 0.0, 0.0, 0.0]);
        assert_eq!(out[3].view().slice::<i32>().unwrap(), [2]);
        assert_eq!(suppress(0.0, true).0, [1, 2, 3]);
        assert_eq!(suppress(0.4, true).0, [1, 2, 3]);
        assert_eq!(suppress(0.8, false).0, [1, -1, -1]);
    }

    #[test]
    fn the_best_box_stays_even_below_the_threshold() {
        let (indices, out) = suppress(2.0, false);
        assert_eq!(indices, [1, -1, -1]);
        assert_eq!(out[3].view().slice::<i32>().unwrap(), [1]);
    }

    #[test]
    fn from_ios17_on_boxes_come_last() {
        let turn = |values: &[f32], fields: usize| {
            let turned: Vec<f32> = (0..values.len()).map(|i| values[i % 4 * fields + i / 4]).collect();
            tensor(&[1, fields, 4], &turned)
        };
        let args = [
            ("boxes", turn(&BOXES, 4)),
            ("scores", turn(&SCORES, 2)),
            ("iou_threshold", Tensor::scalar(0.5f32)),
            ("max_boxes", Tensor::scalar(2)),
        ];
        let out = run_many("non_maximum_suppression", Ios17, &args, 3).unwrap();
        assert_eq!(out[2].view().slice::<i32>().unwrap(), [1, 2]);
        assert_eq!(out[0].view().slice::<f32>().unwrap(), [0.5, 10.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0]);
        assert_eq!(out[1].view().slice::<f32>().unwrap(), [0.2, 0.7, 0.9, 0.0]);
        let args = [&args[..1], &[("scores", turn(&SCORES[..4], 1))], &args[2..]].concat();
        assert!(run_many("non_maximum_suppression", Ios17, &args, 3).is_ok());
        let args = [&args[1..2], &[("boxes", turn(&SCORES, 2))], &args[2..]].concat();
        assert!(run_many("non_maximum_suppression", Ios17, &args, 3).is_err());
    }
}
