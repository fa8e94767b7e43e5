//! Images as inputs: the Core ML module gives what the CPU runtime gives for the same pixels.

use anemeter::mil::{
    Builder, ColorSpace, Dim, FeatureType, ImageSizes, ImageType, Literal, Model, Opset, TensorType,
};
use anemeter::runtime::Session;
use anemeter::tensor::{DType, Tensor};
use coreml_standin::census;
use coreml_standin::fault::Fault;

use crate::balance::balanced;
use crate::module::{agree, scene_of};
use crate::scene::Scene;

/// Scales each channel of an image by a number of its own.
pub(crate) fn scaled(color: ColorSpace, sizes: ImageSizes) -> Model {
    let channels = usize::try_from(color.channels()).unwrap();
    let is_fixed = sizes == ImageSizes::Fixed;
    let side = |size: usize| if is_fixed { size.into() } else { Dim::Unknown };
    let mut main = Builder::new("main", Opset::Ios18);
    let shape = vec![1usize.into(), channels.into(), side(5), side(7)];
    let image = main.input("image", TensorType::new(DType::F32, shape));
    let scales = [1.0f32, 0.25, -2.0];
    let scales = Tensor::from_slice(&[1, channels, 1, 1], &scales[..channels]).unwrap();
    let scales = main.constant("scales", Literal::blob(&scales));
    let y = main.op("mul").arg("x", image).arg("y", scales).named("y").push().unwrap();
    let mut model = Model::single(main.finish(&[y]));
    let image = ImageType { width: 7, height: 5, color, sizes };
    model.interface_mut("main").unwrap().inputs[0].ty = FeatureType::Image(image);
    model
}

/// Pixels that differ from each other.
fn pixels(shape: &[usize], seed: u8) -> Tensor {
    let pixel = |at: usize| (at * 37 % 251) as u8 ^ seed;
    Tensor::from_slice(shape, &(0..shape.iter().product()).map(pixel).collect::<Vec<u8>>()).unwrap()
}

fn refused(session: &mut dyn Session, tensor: &Tensor) -> String {
    session.predict("main", &[("image", tensor.view())]).unwrap_err().to_string()
}

#[test]
fn images_agree_with_the_cpu_runtime() {
    let _balance = balanced(&[]);
    for (color, shapes) in [
        (ColorSpace::Rgb, &[&[5, 7, 3][..]][..]),
        (ColorSpace::Bgr, &[&[5, 7, 3]]),
        (ColorSpace::Grayscale, &[&[5, 7], &[5, 7, 1]]),
    ] {
        let scene = Scene::new();
        let mut both = scene.both(scaled(color, ImageSizes::Fixed));
        for seed in 0..3 {
            for shape in shapes {
                agree(&mut both, "main", &[("image", &pixels(shape, seed))], &["y"]);
            }
        }
    }
}

#[test]
fn red_is_the_first_channel_of_rgb_and_the_last_of_bgr() {
    let _balance = balanced(&[]);
    for (color, expected) in [(ColorSpace::Rgb, [200.0, 2.5, -6.0]), (ColorSpace::Bgr, [3.0, 2.5, -400.0])] {
        let scene = Scene::new();
        let mut session = scene_of(&scene, scaled(color, ImageSizes::Fixed));
        let image = Tensor::from_slice(&[5, 7, 3], &[200u8, 10, 3].repeat(35)).unwrap();
        session.predict("main", &[("image", image.view())]).unwrap();
        let y = session.output("y").unwrap();
        let y = y.slice::<f32>().unwrap();
        for (channel, expected) in y.chunks(35).zip(expected) {
            assert_eq!(channel, [expected; 35], "{color:?}");
        }
    }
}

#[test]
fn images_of_every_enumerated_size_agree() {
    let balance = balanced(&[]);
    let scene = Scene::new();
    // Width before height, as packages have them; a row of 16 pixels is a multiple of what rows are aligned to.
    let sizes = ImageSizes::Enumerated(vec![(7, 5), (16, 4), (1, 9)]);
    let mut both = scene.both(scaled(ColorSpace::Rgb, sizes));
    for seed in 0..3 {
        for shape in [[5, 7, 3], [4, 16, 3], [9, 1, 3]] {
            agree(&mut both, "main", &[("image", &pixels(&shape, seed))], &["y"]);
        }
    }
    let before = balance.faults.predictions();
    let text = refused(&mut *both[0], &pixels(&[16, 4, 3], 0));
    assert!(
        text.contains("`image` is an image of 16x4, height by width; allowed is 5x7, 4x16, 9x1"),
        "{text}"
    );
    assert_eq!(balance.faults.predictions(), before, "Core ML was not asked");
}

#[test]
fn what_is_no_image_of_the_input_is_refused_before_the_call() {
    let balance = balanced(&[]);
    for (color, tensor, problem) in [
        (
            ColorSpace::Rgb,
            pixels(&[5, 8, 3], 0),
            "`image` is an image of 5x8, height by width; allowed is 5x7",
        ),
        (ColorSpace::Bgr, pixels(&[5, 7], 0), "`image` has shape [5, 7], expected [height, width, 3] pixels"),
        (
            ColorSpace::Grayscale,
            pixels(&[5, 7, 3], 0),
            "has shape [5, 7, 3], expected [height, width] pixels",
        ),
        (
            ColorSpace::Rgb,
            Tensor::from_slice(&[1, 3, 5, 7], &[0f32; 105]).unwrap(),
            "`image` is fp32 [1, 3, 5, 7], expected the pixels of an image, uint8 [height, width, 3]",
        ),
        (
            ColorSpace::GrayscaleFloat16,
            pixels(&[5, 7], 0),
            "the input `image` is a grayscale image of float16, and the coreml runtime takes images of 8-bit",
        ),
    ] {
        let scene = Scene::new();
        let mut session = scene_of(&scene, scaled(color, ImageSizes::Fixed));
        let before = balance.faults.predictions();
        let text = refused(&mut *session, &tensor);
        assert!(text.contains(problem), "{text}");
        assert_eq!(balance.faults.predictions(), before, "Core ML was not asked");
    }
}

#[test]
fn images_as_outputs_are_refused_before_the_call() {
    let balance = balanced(&[]);
    let scene = Scene::new();
    let mut model = scaled(ColorSpace::Rgb, ImageSizes::Fixed);
    let interface = model.interface_mut("main").unwrap();
    interface.outputs[0].ty = interface.inputs[0].ty.clone();
    let mut session = scene_of(&scene, model);
    let before = balance.faults.predictions();
    let text = refused(&mut *session, &pixels(&[5, 7, 3], 0));
    assert!(text.contains("the output `y` is an image, and the coreml runtime gives no images"), "{text}");
    assert_eq!(balance.faults.predictions(), before, "Core ML was not asked");
}

#[test]
fn pixel_buffers_are_kept_and_used_again() {
    let balance = balanced(&[]);
    let scene = Scene::new();
    let sizes = ImageSizes::Enumerated(vec![(7, 5), (16, 4)]);
    let mut session = scene_of(&scene, scaled(ColorSpace::Rgb, sizes));
    let images = [[5, 7, 3], [4, 16, 3]].map(|shape| pixels(&shape, 1));
    let mut round = |step: usize| session.predict("main", &[("image", images[step % 2].view())]).unwrap();
    (0..10).for_each(&mut round);
    let before = census::take();
    assert_eq!(before.objects["CVPixelBuffer"], 2, "one for each size");
    (10..200).for_each(&mut round);
    assert_eq!(census::take(), before, "while the session lives, nothing is added");
    drop(session);
    balance.settle();
}

#[test]
fn a_pixel_buffer_that_cannot_be_made() {
    let balance = balanced(&[Fault::NoPixelBuffer]);
    let scene = Scene::new();
    let mut session = scene_of(&scene, scaled(ColorSpace::Rgb, ImageSizes::Fixed));
    let image = pixels(&[5, 7, 3], 1);
    let text = refused(&mut *session, &image);
    assert!(
        text.contains("cannot make a pixel buffer, 5 high and 7 wide: Core Video's error -6662"),
        "{text}"
    );
    balance.faults.mend();
    session.predict("main", &[("image", image.view())]).unwrap();
}
