//! What the fences in one transaction have in common: they hold up the user's `commit()` until all have answered, since
//! after it a transaction cannot be aborted any more; and each sees what the others have written.

use core::cell::{Cell, RefCell};
use std::{rc::Rc, string::String, vec::Vec};

use js_sys::{Object, Reflect};
use wasm_bindgen::prelude::*;
use web_sys::DomException;

use super::{bindings::Transaction, hidden::Hidden};
use crate::machine::Row;

std::thread_local! {
    /// The transactions whose `commit()` is held up: several fences in one share it.
    static HELD: RefCell<Vec<Rc<Held>>> = const { RefCell::new(Vec::new()) };
}

/// A transaction whose own `commit` hides another `commit`.
struct Held {
    transaction: Transaction,
    fences: Cell<usize>,
    state: Rc<Cell<State>>,
    written: RefCell<Vec<(Row, Option<String>)>>,
    /// Usually the browser's; or that of another copy of this crate in the page, which waits for that copy's own fences.
    hidden: Rc<Hidden>,
    own: Closure<dyn Fn() -> Result<JsValue, JsValue>>,
}

/// The state of our `commit()`.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Held,
    /// It was called while it was held.
    Wanted,
    /// It calls the one that it hides. Code that read the property while a fence was under way may still call it.
    Free,
}

/// The `commit()` of a transaction, held up. It is kept until the transaction is over, so that its function can be called until then.
pub(super) struct HeldCommit(Rc<Held>);

impl HeldCommit {
    /// From now on the first call of `commit()` is only noted, and each later call throws what the browser's own would throw.
    pub(super) fn hold(transaction: &Transaction) -> Self {
        HELD.with_borrow_mut(|all| {
            let known = all.iter().find(|held| Object::is(&held.transaction, transaction)).cloned();
            let held = known.unwrap_or_else(|| {
                let held = Rc::new(Held::new(transaction.clone()));
                all.push(Rc::clone(&held));
                held
            });
            held.fences.set(held.fences.get() + 1);
            Self(held)
        })
    }

    /// A fence has written a row, or deleted it, after others may have asked for it.
    pub(super) fn wrote(&self, row: Row, text: Option<String>) {
        self.0.written.borrow_mut().push((row, text));
    }

    /// What a fence made of this row last; the inner `None` if it deleted it.
    pub(super) fn written(&self, row: &Row) -> Option<Option<String>> {
        let written = self.0.written.borrow();
        written.iter().rev().find(|(known, _)| known == row).map(|(_, text)| text.clone())
    }

    /// This fence has answered. After the last one the hidden `commit()` is back. If a commit was wanted, whatever is there now is called:
    /// another copy may have hidden ours meanwhile, for fences that have not answered.
    pub(super) fn release(&self, passed: bool) {
        let Self(held) = self;
        held.fences.set(held.fences.get() - 1);
        if !passed {
            // What was aborted needs no commit.
            held.state.set(State::Held);
        }
        if held.fences.get() > 0 {
            return;
        }
        HELD.with_borrow_mut(|all| {
            let at = all.iter().position(|other| Rc::ptr_eq(other, held));
            at.map(|at| all.swap_remove(at))
        });
        held.hidden.uncover(&held.transaction, COMMIT, held.own.as_ref());
        if held.state.replace(State::Free) == State::Wanted {
            // Where the method is missing, nobody can have called it.
            let _ = held.transaction.commit();
        }
    }
}

const COMMIT: &str = "commit";

impl Held {
    fn new(transaction: Transaction) -> Self {
        let (state, hidden) = (Rc::new(Cell::new(State::Held)), Rc::new(Hidden::of(&transaction, COMMIT)));
        let own = Closure::<dyn Fn() -> Result<JsValue, JsValue>>::new({
            let (state, hidden, transaction) = (Rc::clone(&state), Rc::clone(&hidden), transaction.clone());
            move || match state.get() {
                State::Held => {
                    state.set(State::Wanted);
                    Ok(JsValue::UNDEFINED)
                }
                State::Wanted => Err(called_twice()),
                State::Free => hidden.call(&transaction),
            }
        });
        let _ = Reflect::set(&transaction, &COMMIT.into(), own.as_ref());
        Self { transaction, fences: Cell::new(0), state, written: RefCell::default(), hidden, own }
    }
}

/// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBTransaction/commit#exceptions)
fn called_twice() -> JsValue {
    let error = DomException::new_with_message_and_name("commit() was called before", "InvalidStateError");
    error.map_or_else(|thrown| thrown, JsValue::from)
}
