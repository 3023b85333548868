//! The signals of browsers: messages by BroadcastChannel, beacons by Web Locks.

mod bindings;
mod channel;
mod lock;

use core::{
    cell::{Cell, RefCell},
    fmt,
};
use std::rc::{Rc, Weak};

use wasm_bindgen::prelude::*;

use super::{Beacons, Inbox, Notice, Signals};
use crate::executor::{Part, WeakShared};
use crate::machine::{Message, SessionId};

pub(crate) use bindings::forsake_locks;
use bindings::{LockManager, are_forsaken, locks};
use channel::{Channel, LastPosted};
use lock::{HeldLock, LockRequest, Looks};

/// Signals between the windows and workers of one origin that open the same name.
///
/// Messages go over a [`BroadcastChannel`](https://developer.mozilla.org/en-US/docs/Web/API/BroadcastChannel) that all contexts share. A
/// message for a single session goes over a separate channel of that session, so that it wakes no other context. A beacon is an exclusive
/// [Web Lock](https://developer.mozilla.org/en-US/docs/Web/API/Web_Locks_API) named after its session, and a watch queues behind it with a
/// shared request: the browser grants that request when the holder dies. All of these exist only from [`wake`](Signals::wake) to
/// [`rest`](Signals::rest). Insecure contexts have no Web Locks: there are no beacons then, and a dead context is recognised only by its
/// silence.
///
/// ```no_run
/// use leasehold::signal::{BroadcastSignals, Signals};
///
/// let signals = BroadcastSignals::new("leasehold:my-app");
/// signals.rest();
/// ```
pub struct BroadcastSignals {
    name: String,
    awake: RefCell<Option<Rc<Awake>>>,
}

/// What stands between `wake` and `rest`. Callbacks find it by a weak reference: with it gone, they do nothing.
struct Awake {
    /// The channel that all contexts listen to.
    common: Option<Channel>,
    /// The channel that only this session listens to.
    _own: Option<Channel>,
    /// The channel of another session.
    last_posted: RefCell<LastPosted>,
    locks: Option<LockManager>,
    inbox: WeakShared<dyn Inbox>,
    beacon: RefCell<Option<HeldLock>>,
    watches: RefCell<Vec<Watch>>,
    /// `Some` while there are watches.
    looks: RefCell<Option<Looks>>,
}

impl BroadcastSignals {
    /// The signals of all contexts that use this name. Nothing is opened yet.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), awake: RefCell::new(None) }
    }

    fn awake(&self) -> Option<Rc<Awake>> {
        self.awake.borrow().clone()
    }

    /// The name of a session's beacon and of its channel.
    fn name_of(&self, session: SessionId) -> String {
        format!("{}:{session}", self.name)
    }
}

impl Signals for BroadcastSignals {
    /// All contexts that reach a store by its name are of one origin, and so are those that see a Web Lock.
    fn beacons(&self) -> Beacons {
        Beacons::All
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        self.rest();
        let name = self.name_of(session);
        let awake = Rc::new(Awake {
            common: Channel::open(&self.name, inbox.clone()),
            _own: Channel::open(&name, inbox.clone()),
            last_posted: RefCell::default(),
            locks: locks(),
            inbox,
            beacon: RefCell::new(None),
            watches: RefCell::default(),
            looks: RefCell::default(),
        });
        let raised = beacon && awake.raise(session, &name);
        self.awake.replace(Some(awake));
        raised
    }

    fn rest(&self) {
        drop(self.awake.take());
    }

    fn send(&self, message: &Message) {
        let Some(awake) = self.awake() else { return };
        let encoding = Part::Encode.begin();
        let text = message.encode();
        drop(encoding);
        match (message.body.recipient(), &awake.common) {
            (Some(session), _) => awake.last_posted.borrow_mut().post(self.name_of(session), &text),
            (None, Some(common)) => common.post(&text),
            (None, None) => {}
        }
    }

    fn watch(&self, watch: u64, session: SessionId) {
        if let Some(awake) = self.awake() {
            awake.watch(watch, self.name_of(session));
        }
    }

    fn unwatch(&self, watch: u64) {
        if let Some(awake) = self.awake() {
            awake.end_watch(watch);
        }
    }
}

impl Awake {
    fn raise(self: &Rc<Self>, session: SessionId, name: &str) -> bool {
        let Some(locks) = &self.locks else { return false };
        let (stands, over) = (Rc::downgrade(self), Rc::downgrade(self));
        let held = HeldLock::take(
            locks,
            name,
            move || tell(&stands, Notice::BeaconStands(session)),
            // If this context lowered it, nobody is left to be notified.
            move || tell(&over, Notice::BeaconLost(session)),
        );
        self.beacon.replace(Some(held));
        true
    }

    fn watch(self: &Rc<Self>, watch: u64, name: String) {
        let Some(locks) = self.locks.as_ref().filter(|_| !are_forsaken()) else { return };
        self.end_watch(watch);
        self.looks.borrow_mut().get_or_insert_with(Looks::begin);
        let mut watches = self.watches.borrow_mut();
        if let Some(same) = watches.iter().find(|same| same.name == name && same.is_idle()) {
            return same.number.set(Some(watch));
        }
        drop_idle(&mut watches);
        let number = Rc::new(Cell::new(Some(watch)));
        let (awake, told) = (Rc::downgrade(self), Rc::clone(&number));
        let gone = move || {
            if let Some(awake) = awake.upgrade() {
                awake.forget(&told);
                awake.rest_looks();
            }
            // A watch that was ended meanwhile has nothing to say.
            if let Some(watch) = told.take() {
                tell(&awake, Notice::BeaconGone { watch });
            }
            // The lock is released at once, because its grant is all that matters.
            Ok(JsValue::UNDEFINED)
        };
        let request = LockRequest::new(locks, &name, "shared", Box::new(gone), Box::new(|| {}));
        watches.push(Watch { number, name, _request: request });
    }

    /// Drops a watch whose lock was granted.
    fn forget(&self, number: &Rc<Cell<Option<u64>>>) {
        let mut watches = self.watches.borrow_mut();
        if let Some(at) = watches.iter().position(|watch| Rc::ptr_eq(&watch.number, number)) {
            watches.remove(at);
        }
    }

    /// Ends a watch, but keeps its request for the next watch. Only one request is kept so: contexts that take turns usually wait for the
    /// same session again, and a new request takes longer than a message.
    fn end_watch(&self, watch: u64) {
        let mut watches = self.watches.borrow_mut();
        if watches.iter().any(|placed| placed.number.get() == Some(watch)) {
            drop_idle(&mut watches);
            watches.iter().filter(|placed| placed.number.get() == Some(watch)).for_each(|ended| ended.number.set(None));
        }
        drop(watches);
        self.rest_looks();
    }

    fn rest_looks(&self) {
        if self.watches.borrow().iter().all(Watch::is_idle) {
            self.looks.take();
        }
    }
}

/// A request that the browser grants when the beacon of this name is gone.
struct Watch {
    /// Which watch it serves now.
    number: Rc<Cell<Option<u64>>>,
    name: String,
    _request: LockRequest,
}

impl Watch {
    fn is_idle(&self) -> bool {
        self.number.get().is_none()
    }
}

fn drop_idle(watches: &mut Vec<Watch>) {
    while let Some(at) = watches.iter().position(Watch::is_idle) {
        watches.swap_remove(at);
    }
}

/// Notifies the inbox while nothing is borrowed, because it may call back into the signals, and end them.
fn tell(awake: &Weak<Awake>, notice: Notice) {
    let inbox = awake.upgrade().and_then(|awake| awake.inbox.upgrade());
    if let Some(inbox) = inbox {
        inbox.notice(notice);
    }
}

impl fmt::Debug for BroadcastSignals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Quoted as `Debug` does, the name would make the wasm 4 kB larger.
        write!(out, "BroadcastSignals({})", self.name)
    }
}
