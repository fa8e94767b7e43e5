//! The states of a session. Core ML keeps the states of a function in one object; functions with the same states share it.

use std::cell::OnceCell;
use std::ptr::NonNull;

use block2::StackBlock;
use objc2::msg_send;
use objc2::rc::{Retained, autoreleasepool};
use objc2_core_ml::{MLModel, MLMultiArray, MLState};
use objc2_foundation::NSString;

use super::array::{self, ArrayCopy};
use crate::RuntimeError;
use anemeter_kernels::tensor::{Shape, Tensor, TensorView};
use anemeter_mil::{ArrayType, FeatureType, Interface, Model};

/// All states of a model.
pub(super) struct States {
    slots: Vec<Slot>,
    groups: Vec<Group>,
}

/// A state by name.
struct Slot {
    name: String,
    ty: ArrayType,
    /// The group with the latest content; none if nothing was ever written.
    latest: Option<usize>,
    /// The content as it was last looked at.
    seen: OnceCell<Option<ArrayCopy>>,
}

/// The states that a function keeps together.
struct Group {
    /// Their slots, in order.
    slots: Vec<usize>,
    state: Retained<MLState>,
}

impl States {
    pub(super) fn of(model: &Model) -> States {
        let mut slots: Vec<Slot> = Vec::new();
        for feature in model.interfaces().iter().flat_map(|interface| &interface.states) {
            let FeatureType::State(ty) = &feature.ty else { continue };
            if !slots.iter().any(|slot| slot.name == feature.name) {
                let (name, ty) = (feature.name.clone(), ty.clone());
                slots.push(Slot { name, ty, latest: None, seen: OnceCell::new() });
            }
        }
        States { slots, groups: Vec::new() }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.slots.iter().map(|slot| slot.name.clone()).collect()
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.slots.iter().any(|slot| slot.name == name)
    }

    fn slots_of(&self, interface: &Interface) -> Vec<usize> {
        let position = |name: &str| self.slots.iter().position(|slot| slot.name == name);
        let mut slots: Vec<usize> = interface.states.iter().filter_map(|f| position(&f.name)).collect();
        slots.sort_unstable();
        slots
    }

    /// The states for a prediction of a function, with the latest content of each.
    pub(super) fn for_function(
        &mut self,
        model: &MLModel,
        interface: &Interface,
    ) -> Result<Retained<MLState>, RuntimeError> {
        let group = self.group(model, interface)?;
        for slot in self.groups[group].slots.clone() {
            let from = self.slots[slot].latest.replace(group);
            if let Some(from) = from.filter(|&from| from != group) {
                self.carry(slot, from, group)?;
            }
            self.slots[slot].seen.take();
        }
        Ok(self.groups[group].state.clone())
    }

    /// The group of a function, made if it is new.
    fn group(&mut self, model: &MLModel, interface: &Interface) -> Result<usize, RuntimeError> {
        let slots = self.slots_of(interface);
        if let Some(group) = self.groups.iter().position(|group| group.slots == slots) {
            return Ok(group);
        }
        // SAFETY: the method takes nothing and gives a new object; its header promises one, yet a model that cannot make its
        // states may give nil.
        let state: Option<Retained<MLState>> = autoreleasepool(|_| unsafe { msg_send![model, newState] });
        let state = state.ok_or_else(|| RuntimeError::NoState { function: interface.function.clone() })?;
        self.groups.push(Group { slots, state });
        Ok(self.groups.len() - 1)
    }

    /// Copies a state from one group to another.
    fn carry(&self, slot: usize, from: usize, to: usize) -> Result<(), RuntimeError> {
        let slot = &self.slots[slot];
        let error = |problem: String| RuntimeError::State { name: slot.name.clone(), problem };
        let copied = read(&self.groups[from].state, slot).map_err(error)?;
        let view = copied.view().ok_or_else(|| error("cannot be read".to_owned()))?;
        write(&self.groups[to].state, &slot.name, &view).map_err(error)
    }

    /// A state as it is now: zero until a prediction or a caller writes to it.
    pub(super) fn view(&self, name: &str) -> Option<TensorView<'_>> {
        let slot = self.slots.iter().find(|slot| slot.name == name)?;
        let seen = slot.seen.get_or_init(|| match slot.latest {
            Some(group) => read(&self.groups[group].state, slot).ok(),
            None => ArrayCopy::zeroed(slot.ty.dtype, &shape_of(&slot.ty)?),
        });
        seen.as_ref()?.view()
    }

    /// Replaces a state of a function.
    pub(super) fn set(
        &mut self,
        model: &MLModel,
        interface: &Interface,
        name: &str,
        value: &Tensor,
    ) -> Result<(), RuntimeError> {
        let error = |problem: String| RuntimeError::State { name: name.to_owned(), problem };
        let slot = self.slots.iter().position(|slot| slot.name == name);
        let slot = slot.ok_or_else(|| error("the model has no such state".to_owned()))?;
        let ty = &self.slots[slot].ty;
        let expected = shape_of(ty).ok_or_else(|| error("its shape cannot be addressed".to_owned()))?;
        if value.dtype() != ty.dtype || value.shape() != &expected[..] {
            let found = format!("is {} {:?}", value.dtype(), value.shape());
            return Err(error(format!("{found}, expected {} {expected:?}", ty.dtype)));
        }
        let group = self.group(model, interface)?;
        write(&self.groups[group].state, name, &value.view()).map_err(error)?;
        self.slots[slot].latest = Some(group);
        self.slots[slot].seen.take();
        Ok(())
    }
}

fn shape_of(ty: &ArrayType) -> Option<Shape> {
    ty.shape.iter().map(|&size| usize::try_from(size).ok()).collect()
}

fn read(state: &MLState, slot: &Slot) -> Result<ArrayCopy, String> {
    let mut copied = ArrayCopy::default();
    with_array(state, &slot.name, &mut |array| copied.read(array, slot.ty.dtype))?;
    Ok(copied)
}

fn write(state: &MLState, name: &str, view: &TensorView<'_>) -> Result<(), String> {
    with_array(state, name, &mut |array| array::write(array, view))
}

/// Gives the array of a state to a function that does not keep it. The name must be one of the state's.
fn with_array(
    state: &MLState,
    name: &str,
    act: &mut dyn FnMut(&MLMultiArray) -> Result<(), String>,
) -> Result<(), String> {
    let (done, act) = (std::cell::RefCell::new(None), std::cell::RefCell::new(act));
    let (done_in, act_in) = (&done, &act);
    let handler = StackBlock::new(move |array: NonNull<MLMultiArray>| {
        // SAFETY: Core ML lends a live array for the time of the handler.
        let array = unsafe { array.as_ref() };
        *done_in.borrow_mut() = Some((act_in.borrow_mut())(array));
    });
    autoreleasepool(|_| {
        // SAFETY: the handler takes what the method gives and is called before the method returns.
        unsafe { state.getMultiArrayForStateNamed_handler(&NSString::from_str(name), &handler) };
    });
    done.take().ok_or("Core ML does not give access to it")?
}
