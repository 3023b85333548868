//! One request to the database, and the handlers that bring its answer. The answer says only whether the request was done. What the request
//! found is left in a place that its caller has chosen. So one type of answer fits all requests.

use core::cell::RefCell;
use std::rc::Rc;

use js_sys::Function;
use wasm_bindgen::prelude::*;
use web_sys::Event;

use crate::machine::StoreError;
use crate::oneshot::{self, Receiver, Sender};

/// Whether the request was done.
pub(super) type Done = Result<(), StoreError>;
/// Receives the answer, unless the browser never gives one.
pub(super) type Answer = Receiver<Done>;

pub(super) async fn done(answer: Answer) -> Done {
    answer.await.unwrap_or_else(|| Err(StoreError::unknown("the transaction ended without an answer")))
}

type Handler = Closure<dyn Fn(Event)>;

/// Who waits for an answer, and the event handler that may bring it. The handler lives exactly until the browser has answered, even
/// if nobody waits for it any more: the browser would call one that was dropped, and log an error.
pub(super) struct Pending(RefCell<Option<Asked>>);

struct Asked {
    /// `None` once an answer was given ahead of the browser's.
    answer: Option<Sender<Done>>,
    handler: Option<Handler>,
}

impl Pending {
    pub(super) fn new() -> (Rc<Self>, Answer) {
        let (answer, receiver) = oneshot::channel();
        let asked = Asked { answer: Some(answer), handler: None };
        (Rc::new(Self(RefCell::new(Some(asked)))), receiver)
    }

    /// Makes the event handler, which lives until the answer. What it captures may own this `Pending`.
    pub(super) fn handler(&self, handle: impl Fn(Event) + 'static) -> Function {
        let handler = Handler::new(handle);
        let function = handler.as_ref().unchecked_ref::<Function>().clone();
        if let Some(asked) = &mut *self.0.borrow_mut() {
            asked.handler = Some(handler);
        }
        function
    }

    /// Gives an answer ahead of the browser's, which is dropped when it comes.
    pub(super) fn give_up(&self, done: Done) {
        let answer = self.0.borrow_mut().as_mut().and_then(|asked| asked.answer.take());
        if let Some(answer) = answer {
            answer.send(done);
        }
    }

    /// Gives the answer, once, and drops the handler. A handler may do this in its own call: it is freed after that.
    pub(super) fn settle(&self, done: Done) {
        let asked = self.0.take();
        if let Some(Asked { answer, handler }) = asked {
            drop(handler);
            if let Some(answer) = answer {
                answer.send(done);
            }
        }
    }
}
