//! The stand-in itself, through the same bindings as the module, and its detectors.

use std::cell::RefCell;
use std::ffi::c_void;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

use anemeter::mil::{ColorSpace, ImageSizes};
use block2::{RcBlock, StackBlock};
use coreml_standin::census;
use coreml_standin::fault::Fault;
use half::f16;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{AnyObject, NSObject, ProtocolObject};
use objc2::{AnyThread, DefinedClass, define_class, msg_send};
use objc2_core_ml::{
    MLComputePlan, MLComputeUnits, MLDictionaryFeatureProvider, MLFeatureProvider, MLFeatureType,
    MLFeatureValue, MLImageSizeConstraintType, MLModel, MLModelConfiguration, MLMultiArray,
    MLMultiArrayDataType, MLPredictionOptions,
};
use objc2_core_video::kCVPixelFormatType_32BGRA;
use objc2_foundation::{NSArray, NSDictionary, NSError, NSNumber, NSSet, NSString, NSURL};

use crate::balance::balanced;
use crate::{fixtures, images};

/// What a completion handler was given: an object, or the text of an error.
fn completed<T: objc2::Message + 'static>(
    call: impl FnOnce(&block2::DynBlock<dyn Fn(*mut T, *mut NSError)>),
) -> Result<Retained<T>, String> {
    struct Moved<T>(T);
    // SAFETY: it goes from the thread of the handler to the one that waits for it.
    unsafe impl<T> Send for Moved<T> {}
    let (sender, receiver) = mpsc::channel();
    call(&RcBlock::new(move |object: *mut T, error: *mut NSError| {
        // SAFETY: both are nil or live for the time of the call.
        let given =
            unsafe { Retained::retain(object).ok_or_else(|| (*error).localizedDescription().to_string()) };
        sender.send(Moved(given)).unwrap();
    }));
    receiver.recv().unwrap().0
}

fn compile(package: &Path) -> Result<Retained<NSURL>, String> {
    let url = NSURL::from_directory_path(package).unwrap();
    // SAFETY: the handler is of the type that the method calls.
    completed(|handler| unsafe { MLModel::compileModelAtURL_completionHandler(&url, handler) })
}

fn configuration(function: Option<&str>) -> Retained<MLModelConfiguration> {
    // SAFETY: plain setters.
    unsafe {
        let configuration = MLModelConfiguration::new();
        configuration.setComputeUnits(MLComputeUnits::CPUAndNeuralEngine);
        configuration.setFunctionName(function.map(NSString::from_str).as_deref());
        configuration
    }
}

fn load(compiled: &NSURL, function: Option<&str>) -> Result<Retained<MLModel>, String> {
    let configuration = configuration(function);
    // SAFETY: the handler is of the type that the method calls.
    completed(|handler| unsafe {
        MLModel::loadContentsOfURL_configuration_completionHandler(compiled, &configuration, handler);
    })
}

fn array(shape: &[usize], values: &[f16]) -> Retained<MLMultiArray> {
    let numbers: Vec<_> = shape.iter().map(|&size| NSNumber::new_usize(size)).collect();
    let shape = NSArray::from_retained_slice(&numbers);
    // SAFETY: an array of this type has room for as many elements as its shape says.
    unsafe {
        let ty = MLMultiArrayDataType::Float16;
        let array = MLMultiArray::initWithShape_dataType_error(MLMultiArray::alloc(), &shape, ty).unwrap();
        assert_eq!(array.count() as usize, values.len());
        #[allow(deprecated)]
        let memory: NonNull<f16> = array.dataPointer().cast();
        std::ptr::copy_nonoverlapping(values.as_ptr(), memory.as_ptr(), values.len());
        array
    }
}

fn provider(name: &str, array: &MLMultiArray) -> Retained<MLDictionaryFeatureProvider> {
    // SAFETY: the values are feature values.
    unsafe {
        let value: Retained<AnyObject> = MLFeatureValue::featureValueWithMultiArray(array).into();
        let dictionary = NSDictionary::from_retained_objects(&[&*NSString::from_str(name)], &[value]);
        MLDictionaryFeatureProvider::initWithDictionary_error(
            MLDictionaryFeatureProvider::alloc(),
            &dictionary,
        )
        .unwrap()
    }
}

fn sizes(numbers: &NSArray<NSNumber>) -> Vec<usize> {
    numbers.iter().map(|number| number.as_usize()).collect()
}

/// The elements of an output of rank 2, by its strides.
fn read(given: &ProtocolObject<dyn MLFeatureProvider>, name: &str) -> (Vec<usize>, Vec<f16>) {
    // SAFETY: plain getters, and reads within the bytes that the handler is given.
    unsafe {
        let array = given.featureValueForName(&NSString::from_str(name)).unwrap().multiArrayValue().unwrap();
        let (shape, strides) = (sizes(&array.shape()), sizes(&array.strides()));
        let found = RefCell::new(Vec::new());
        let found_in = &found;
        array.getBytesWithHandler(&StackBlock::new(move |bytes: NonNull<c_void>, size: isize| {
            let all = std::slice::from_raw_parts(bytes.cast::<f16>().as_ptr(), size as usize / 2);
            for row in 0..shape[0] {
                let element = |column: usize| all[row * strides[0] + column * strides[1]];
                found_in.borrow_mut().extend((0..shape[1]).map(element));
            }
        }));
        (sizes(&array.strides()), found.into_inner())
    }
}

fn halves(values: &[f32]) -> Vec<f16> {
    values.iter().map(|&value| f16::from_f32(value)).collect()
}

#[test]
fn collections_and_strings_hold_what_they_are_given() {
    let _balance = balanced(&[]);
    autoreleasepool(|_| {
        let text = NSString::from_str("grüß");
        assert_eq!((text.to_string().as_str(), text.length()), ("grüß", 4));
        let numbers: Vec<_> = [3usize, 4].iter().map(|&n| NSNumber::new_usize(n)).collect();
        let array = NSArray::from_retained_slice(&numbers);
        assert_eq!(sizes(&array), [3, 4]);
        assert_eq!(NSNumber::new_f64(2.5).as_f32(), 2.5);
        assert_eq!(NSNumber::new_isize(-3).as_i64(), -3);
        let again = NSString::from_str("grüß");
        let dictionary = NSDictionary::from_retained_objects(&[&*text, &*NSString::from_str("b")], &numbers);
        assert_eq!(dictionary.objectForKey(&again).unwrap().as_usize(), 3);
        assert_eq!(dictionary.keys().map(|key| key.to_string()).collect::<Vec<_>>(), ["grüß", "b"]);
        assert_eq!(dictionary.allValues().count(), 2);
        let set = NSSet::from_retained_slice(&[text.clone(), again]);
        assert_eq!((set.count(), set.containsObject(&text)), (1, true));
        let url = NSURL::from_file_path("/tmp/a b.mlpackage").unwrap();
        assert_eq!(url.to_file_path().unwrap(), Path::new("/tmp/a b.mlpackage"));
    });
}

#[test]
fn a_model_is_compiled_loaded_and_predicts_into_padded_rows() {
    let _balance = balanced(&[]);
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::two_functions(), folder.path(), "two.mlpackage");
    autoreleasepool(|_| {
        let compiled = compile(&package).unwrap();
        assert_eq!(compiled.to_file_path().unwrap().extension().unwrap(), "mlmodelc");
        let error = load(&compiled, Some("missing")).unwrap_err();
        assert!(error.contains("does not have a function named missing"), "{error}");
        let model = load(&compiled, Some("prefill")).unwrap();
        let input = fixtures::numbers(32, 3);
        let given = provider("x", &array(&[4, 8], &input));
        // SAFETY: features and model are live.
        let outputs =
            unsafe { model.predictionFromFeatures_error(ProtocolObject::from_ref(&*given)) }.unwrap();
        let (strides, found) = read(&outputs, "y");
        assert_eq!(strides, [32, 1], "rows of 8 lie 32 apart");
        assert_eq!(found, expected(&package, "prefill", &[4, 8], &input));
        let wrong = provider("x", &array(&[2, 8], &fixtures::numbers(16, 3)));
        // SAFETY: as above.
        let error =
            unsafe { model.predictionFromFeatures_error(ProtocolObject::from_ref(&*wrong)) }.err().unwrap();
        assert_eq!(error.domain().to_string(), "com.apple.CoreML");
        assert!(error.localizedDescription().to_string().contains("expected [4, 8]"), "{error}");
    });
}

/// What the CPU runtime gives.
fn expected(package: &Path, function: &str, shape: &[usize], input: &[f16]) -> Vec<f16> {
    use anemeter::runtime::{LoadOptions, Runtime, cpu};
    let package = anemeter::package::Package::open(package).unwrap();
    let mut session = cpu().load(&package, &LoadOptions::default()).unwrap().session();
    let input = anemeter::tensor::Tensor::from_slice(shape, input).unwrap();
    session.predict(function, &[("x", input.view())]).unwrap();
    session.output("y").unwrap().slice::<f16>().unwrap().to_vec()
}

#[test]
fn output_backings_are_used_when_they_fit_and_nothing_is_on() {
    for (faults, is_used) in [(&[][..], true), (&[Fault::BackingsIgnored], false)] {
        let _balance = balanced(faults);
        let folder = tempfile::tempdir().unwrap();
        let package = fixtures::write(fixtures::two_functions(), folder.path(), "two.mlpackage");
        autoreleasepool(|_| {
            let model = load(&compile(&package).unwrap(), Some("decode")).unwrap();
            let (input, backing) = (fixtures::numbers(8, 1), array(&[1, 8], &fixtures::numbers(8, 2)));
            let given = provider("x", &array(&[1, 8], &input));
            let object: Retained<AnyObject> = backing.clone().into();
            // SAFETY: keys and values are of the classes that the methods ask for.
            unsafe {
                let options = MLPredictionOptions::new();
                let backings = NSDictionary::from_retained_objects(&[&*NSString::from_str("y")], &[object]);
                options.setOutputBackings(&backings);
                let provider = ProtocolObject::from_ref(&*given);
                let outputs = model.predictionFromFeatures_options_error(provider, &options).unwrap();
                let output = outputs.featureValueForName(&NSString::from_str("y")).unwrap().multiArrayValue();
                assert_eq!(Retained::as_ptr(&output.unwrap()) == Retained::as_ptr(&backing), is_used);
                assert_eq!(read(&outputs, "y").1, expected(&package, "decode", &[1, 8], &input));
            }
        });
    }
}

#[test]
fn states_are_kept_lent_and_zero_at_first() {
    let _balance = balanced(&[]);
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::accumulator(), folder.path(), "sum.mlpackage");
    autoreleasepool(|_| {
        let model = load(&compile(&package).unwrap(), None).unwrap();
        let given = provider("x", &array(&[1, 4], &halves(&[1.0, 2.0, 3.0, 4.0])));
        let given = ProtocolObject::from_ref(&*given);
        // SAFETY: features, state and model are live, and the handler reads what it is given.
        unsafe {
            assert!(model.predictionFromFeatures_error(given).is_err(), "a stateful model needs a state");
            let state = model.newState();
            for _ in 0..2 {
                model.predictionFromFeatures_usingState_error(given, &state).unwrap();
            }
            let seen = RefCell::new(Vec::new());
            let seen_in = &seen;
            let handler = StackBlock::new(move |array: NonNull<MLMultiArray>| {
                #[allow(deprecated)]
                let memory: NonNull<f16> = array.as_ref().dataPointer().cast();
                *seen_in.borrow_mut() = std::slice::from_raw_parts(memory.as_ptr(), 4).to_vec();
                *memory.as_ptr() = f16::from_f32(100.0);
            });
            state.getMultiArrayForStateNamed_handler(&NSString::from_str("total"), &handler);
            assert_eq!(*seen.borrow(), halves(&[2.0, 4.0, 6.0, 8.0]));
            let outputs = model.predictionFromFeatures_usingState_error(given, &state).unwrap();
            assert_eq!(read(&outputs, "sum").1, halves(&[101.0, 6.0, 9.0, 12.0]));
        }
    });
}

#[test]
fn a_plan_tells_of_every_operation() {
    let _balance = balanced(&[]);
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::two_functions(), folder.path(), "two.mlpackage");
    autoreleasepool(|_| {
        let (compiled, configuration) = (compile(&package).unwrap(), configuration(None));
        // SAFETY: the handler is of the type that the method calls.
        let plan = completed(|handler| unsafe {
            MLComputePlan::loadContentsOfURL_configuration_completionHandler(
                &compiled,
                &configuration,
                handler,
            );
        });
        let plan = plan.unwrap();
        // SAFETY: plain getters of objects that the plan gave.
        unsafe {
            let functions = plan.modelStructure().program().unwrap().functions();
            assert_eq!(functions.count(), 2);
            let block = functions.objectForKey(&NSString::from_str("decode")).unwrap().block();
            let (mut weight, mut kinds) = (0.0, Vec::new());
            for operation in block.operations() {
                kinds.push(operation.operatorName().to_string());
                let is_constant = kinds.last().unwrap().ends_with(".const");
                let usage = plan.computeDeviceUsageForMLProgramOperation(&operation);
                assert_eq!(usage.is_none(), is_constant, "constants have no device");
                let cost = plan.estimatedCostOfMLProgramOperation(&operation);
                weight += cost.map_or(0.0, |cost| cost.weight());
            }
            assert!(kinds.iter().any(|kind| kind == "ios18.linear"), "{kinds:?}");
            assert!((weight - 1.0).abs() < 1e-9, "{weight}");
        }
    });
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "ProviderOfTheTests"]
    #[ivars = Retained<MLMultiArray>]
    struct OwnProvider;

    unsafe impl MLFeatureProvider for OwnProvider {
        #[unsafe(method_id(featureNames))]
        fn names(&self) -> Retained<NSSet<NSString>> {
            NSSet::from_retained_slice(&[NSString::from_str("x")])
        }

        #[unsafe(method_id(featureValueForName:))]
        fn value(&self, _name: &NSString) -> Option<Retained<MLFeatureValue>> {
            // SAFETY: the array is one.
            Some(unsafe { MLFeatureValue::featureValueWithMultiArray(self.ivars()) })
        }
    }
);

#[test]
fn classes_of_the_program_work_like_those_of_the_system() {
    let _balance = balanced(&[]);
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::two_functions(), folder.path(), "two.mlpackage");
    autoreleasepool(|_| {
        let model = load(&compile(&package).unwrap(), Some("decode")).unwrap();
        let input = fixtures::numbers(8, 9);
        let own = OwnProvider::alloc().set_ivars(array(&[1, 8], &input));
        // SAFETY: `init` of the root class, and a prediction of live objects.
        let outputs = unsafe {
            let own: Retained<OwnProvider> = msg_send![super(own), init];
            model.predictionFromFeatures_error(ProtocolObject::from_ref(&*own)).unwrap()
        };
        assert_eq!(read(&outputs, "y").1, expected(&package, "decode", &[1, 8], &input));
    });
}

#[test]
fn descriptions_say_which_images_are_taken() {
    let _balance = balanced(&[]);
    let folder = tempfile::tempdir().unwrap();
    let sizes = ImageSizes::Enumerated(vec![(7, 5), (16, 4)]);
    let package = fixtures::write(images::scaled(ColorSpace::Bgr, sizes), folder.path(), "image.mlpackage");
    autoreleasepool(|_| {
        let model = load(&compile(&package).unwrap(), None).unwrap();
        // SAFETY: plain getters of objects that the model gave.
        unsafe {
            let inputs = model.modelDescription().inputDescriptionsByName();
            let input = inputs.objectForKey(&NSString::from_str("image")).unwrap();
            assert_eq!((input.r#type(), input.multiArrayConstraint()), (MLFeatureType::Image, None));
            let image = input.imageConstraint().unwrap();
            assert_eq!((image.pixelsWide(), image.pixelsHigh()), (7, 5));
            assert_eq!(image.pixelFormatType(), kCVPixelFormatType_32BGRA);
            let sizes = image.sizeConstraint();
            assert_eq!(sizes.r#type(), MLImageSizeConstraintType::Enumerated);
            let sizes = sizes.enumeratedImageSizes();
            let sizes: Vec<_> = sizes.iter().map(|size| (size.pixelsWide(), size.pixelsHigh())).collect();
            assert_eq!(sizes, [(7, 5), (16, 4)]);
        }
    });
}

#[test]
fn memory_of_others_is_given_back_once() {
    let _balance = balanced(&[]);
    let given_back = Arc::new(AtomicUsize::new(0));
    autoreleasepool(|_| {
        let (count, memory) = (Arc::clone(&given_back), RefCell::new(vec![0u16; 4]));
        let pointer = NonNull::new(memory.borrow_mut().as_mut_ptr()).unwrap().cast();
        let deallocator = RcBlock::new(move |freed: NonNull<c_void>| {
            assert_eq!(freed, pointer);
            memory.borrow_mut().clear();
            count.fetch_add(1, SeqCst);
        });
        let numbers = |values: &[usize]| {
            NSArray::from_retained_slice(&values.iter().map(|&n| NSNumber::new_usize(n)).collect::<Vec<_>>())
        };
        // SAFETY: the memory is as large as the shape says.
        let array = unsafe {
            MLMultiArray::initWithDataPointer_shape_dataType_strides_deallocator_error(
                MLMultiArray::alloc(),
                pointer,
                &numbers(&[2, 2]),
                MLMultiArrayDataType::Float16,
                &numbers(&[2, 1]),
                Some(&deallocator),
            )
        };
        drop((array.unwrap(), deallocator));
    });
    assert_eq!(given_back.load(SeqCst), 1);
}

#[test]
fn the_detectors_detect() {
    let balance = balanced(&[]);
    let before = census::take();
    let leaked = Retained::into_raw(NSString::from_str("leaked"));
    assert_eq!(census::take().objects["NSString"], before.objects["NSString"] + 1);
    // SAFETY: the first release is due; a second one meets a grave, which is what is tested.
    unsafe {
        drop(Retained::from_raw(leaked));
        drop(Retained::from_raw(leaked));
    }
    let after = census::take();
    assert_eq!(after.objects, before.objects);
    assert_eq!(after.dead_messages, before.dead_messages + 1);
    assert_eq!(census::last_dead_message().unwrap(), "release sent to a deallocated NSString");
    std::thread::spawn(|| {
        let _ = Retained::autorelease_ptr(NSString::from_str("unpooled"));
    })
    .join()
    .unwrap();
    assert_eq!(census::take().unpooled, before.unpooled + 1);
    let unknown = std::panic::catch_unwind(|| {
        let text = NSString::from_str("text");
        // SAFETY: nothing answers, which is what is tested.
        let _: () = unsafe { msg_send![&*text, noSuchSelector] };
    });
    assert!(unknown.is_err());
    balance.pardon();
}
