//! One timer. Unlike those of gloo, it does not keep Node.js from ending.

use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use std::{cell::Cell, rc::Rc, task::Waker};

use js_sys::Function;
use wasm_bindgen::prelude::*;

/// Ends when its time has passed. Dropping it cancels it.
pub(super) struct Timer {
    id: JsValue,
    state: Rc<State>,
    _ring: Closure<dyn Fn()>,
}

#[derive(Default)]
struct State {
    rang: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl Timer {
    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/Window/setTimeout)
    pub(super) fn new(delay_ms: u32) -> Self {
        let state = Rc::new(State::default());
        let ring = Closure::<dyn Fn()>::new({
            let state = Rc::clone(&state);
            move || {
                state.rang.set(true);
                if let Some(waker) = state.waker.take() {
                    waker.wake();
                }
            }
        });
        let id = set_timeout(ring.as_ref().unchecked_ref(), delay_ms);
        // A number in browsers. In Node.js a lease that is held must not keep a program from ending; whoever waits for an
        // answer sees to it itself.
        if id.is_object() {
            // It is there wherever timers are objects.
            let _ = id.unchecked_ref::<Object>().unref();
        }
        Self { id, state, _ring: ring }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.state.rang.get() {
            return Poll::Ready(());
        }
        self.state.waker.set(Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        clear_timeout(&self.id);
    }
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(ring: &Function, delay_ms: u32) -> JsValue;

    #[wasm_bindgen(js_name = clearTimeout)]
    fn clear_timeout(id: &JsValue);

    /// A timer of Node.js and its like.
    type Object;

    /// [Node.js](https://nodejs.org/api/timers.html#timeoutunref)
    #[wasm_bindgen(method, catch)]
    fn unref(this: &Object) -> Result<JsValue, JsValue>;
}
