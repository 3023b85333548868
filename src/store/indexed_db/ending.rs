//! How the store notices the end of a connection at once.
//!
//! The browser fires an event when it closes a connection itself, but nothing reports a call of `close()`. Yet most of the user's
//! connections end by such a call: a page that hears `versionchange` closes its own, so that another tab can upgrade. A lease would then
//! count as valid until its next renewal, and the beacon would keep all others waiting for longer.
//!
//! A connection that the store opened itself is closed when somebody deletes the database. Other contexts can then be granted the leases.

use core::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use js_sys::Reflect;
use wasm_bindgen::prelude::*;

use super::{bindings::Database, hidden::Hidden};
use crate::executor::WeakShared;
use crate::store::StoreWatcher;

/// The name of the event and of the method.
pub(super) const CLOSE: &str = "close";

/// The managers over the store, which are notified when a connection ends.
pub(super) type Watchers = Rc<RefCell<Vec<WeakShared<dyn StoreWatcher>>>>;

/// Whether a connection has ended, and who is notified of it.
pub(super) struct Ending {
    is_over: Cell<bool>,
    /// Whether another connection can take its place.
    is_replaced: bool,
    watchers: Watchers,
}

impl Ending {
    pub(super) fn new(watchers: &Watchers, is_replaced: bool) -> Rc<Self> {
        Rc::new(Self { is_over: Cell::new(false), is_replaced, watchers: Rc::clone(watchers) })
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Nothing more begins on the connection. A manager that notices this by its own transaction need not be told.
    pub(super) fn note(&self) -> bool {
        !self.is_over.replace(true)
    }

    /// The same, and notifies all managers.
    pub(super) fn come(&self) {
        if !self.note() {
            return;
        }
        let watchers = self.watchers.borrow().clone();
        for watcher in watchers.iter().filter_map(WeakShared::upgrade) {
            if self.is_replaced {
                watcher.connection_ended();
            } else {
                watcher.store_gone();
            }
        }
    }
}

thread_local! {
    /// What all our `close()`s hide that still exist. A manager that closes searches them for the `close()` that calls its own.
    static LINKS: RefCell<Vec<Weak<Hidden>>> = const { RefCell::new(Vec::new()) };
}

/// The `close()` of a database, which tells before it closes. Dropped, it makes way for the one before.
pub(super) struct HeardClose {
    database: Database,
    own: JsValue,
    hidden: Rc<Hidden>,
}

impl HeardClose {
    /// Hides the browser's `close()`, and calls it: what is told before it may still write, since a connection closes after
    /// the transactions that run.
    pub(super) fn hear(database: &Database, ending: &Rc<Ending>) -> Option<Self> {
        let hidden = Rc::new(Hidden::of(database, CLOSE));
        // Not dropped with this: somebody else may have kept it, to call it in turn.
        let own = Closure::<dyn Fn() -> Result<JsValue, JsValue>>::new({
            let (database, ending, hidden) = (database.clone(), Rc::clone(ending), Rc::clone(&hidden));
            move || {
                ending.come();
                hidden.call(&database)
            }
        })
        .into_js_value();
        Reflect::set(database, &CLOSE.into(), &own).ok()?;
        LINKS.with_borrow_mut(|links| keep(links, Rc::downgrade(&hidden)));
        Some(Self { database: database.clone(), own, hidden })
    }

    /// A manager that was attached later may outlive this one. Its replacement of `close()` then calls directly what ours called.
    /// Otherwise the chain of calls would grow each time a database passes from manager to manager. More than one link may call ours: the
    /// links of managers that have gone stay until the browser collects their function.
    fn unlink(&self) {
        LINKS.with_borrow(|links| {
            links.iter().filter_map(Weak::upgrade).for_each(|later| later.bypass(&self.own, &self.hidden));
        });
    }
}

impl Drop for HeardClose {
    fn drop(&mut self) {
        if !self.hidden.uncover(&self.database, CLOSE, &self.own) {
            self.unlink();
        }
    }
}

/// Adds a weak reference, in the place of one whose target is gone if there is any.
pub(super) fn keep<T: ?Sized>(all: &mut Vec<Weak<T>>, new: Weak<T>) {
    match all.iter().position(|known| known.strong_count() == 0) {
        Some(free) => all[free] = new,
        None => all.push(new),
    }
}
