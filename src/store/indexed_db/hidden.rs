//! The method of an object of the browser's that a method of ours hides, and calls in turn.

use core::cell::{Cell, RefCell};

use js_sys::{Function, Object, Reflect};
use wasm_bindgen::prelude::*;

/// The method that ours hides: the browser's, or one that somebody put on the object before, such as another copy of this crate.
pub(super) struct Hidden {
    method: RefCell<Function>,
    /// Whether that was an own property of the object. If not, it is inherited, and reappears when our property is deleted.
    is_on_object: Cell<bool>,
}

impl Hidden {
    /// The method that the object has by now. Where it is missing, calling it fails as in the browser.
    pub(super) fn of(object: &Object, name: &str) -> Self {
        let method = RefCell::new(method_of(object, name).unchecked_into());
        Self { method, is_on_object: Cell::new(Object::has_own(object, &name.into())) }
    }

    pub(super) fn call(&self, object: &JsValue) -> Result<JsValue, JsValue> {
        // Not borrowed while it runs: it may come back here.
        let method = self.method.borrow().clone();
        method.call0(object)
    }

    /// Puts the hidden method back in the place of `ours`. Returns false if somebody has hidden ours meanwhile: then ours stays.
    pub(super) fn uncover(&self, object: &Object, name: &str, ours: &JsValue) -> bool {
        let is_ours = Object::is(&method_of(object, name), ours);
        if is_ours {
            // Neither fails for a property that could be set.
            let _ = match self.is_on_object.get() {
                true => Reflect::set(object, &name.into(), &self.method.borrow()),
                false => Reflect::delete_property(object, &name.into()),
            };
        }
        is_ours
    }

    /// Hides from now on what `other` hides, if this hid `method`, which is the one that hides it.
    pub(super) fn bypass(&self, method: &JsValue, other: &Self) {
        if Object::is(&self.method.borrow(), method) {
            self.is_on_object.set(other.is_on_object.get());
            self.method.replace(other.method.borrow().clone());
        }
    }
}

/// Undefined if somebody replaced the method by a getter that throws.
fn method_of(object: &Object, name: &str) -> JsValue {
    Reflect::get(object, &name.into()).unwrap_or_default()
}
