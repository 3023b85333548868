//! The runtimes that an executor was used in.

use alloc::sync::{Arc, Weak};
use core::{
    future::pending,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::sync::OnceLock;

use tokio::{
    runtime::{Handle, Id},
    task::AbortHandle,
};

use crate::executor::Mutex;

/// The runtime beside the home that used the executor last.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// Whether there has ever been one. Each input of a manager asks, and in a program with one runtime it takes no lock.
    pub(super) is_known: AtomicBool,
    pub(super) place: Mutex<Arc<Place>>,
}

impl Away {
    pub(super) fn place(&self) -> Option<Arc<Place>> {
        let is_known = self.is_known.load(Ordering::Acquire);
        is_known.then(|| self.place.lock().clone())
    }
}

/// A runtime, and whether it lives.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Whether there is a runtime that has not ended. Each request checks this.
    lives: AtomicBool,
    /// The runtime that it adopted first, and whether it has adopted another one since. With these, `is_in` usually needs no lock.
    first: OnceLock<Id>,
    has_moved: AtomicBool,
    /// The runtime, and the task of the tenant there.
    runtime: Mutex<Option<(Handle, AbortHandle)>>,
    /// How many tasks that were spawned there from elsewhere have not begun. A runtime that stands still collects them.
    pub(super) unbegun: AtomicUsize,
}

/// A runtime with this many tasks that have not begun counts as stalled. Unless it is the home, no more are spawned there until it
/// continues.
pub(super) const STANDS_STILL: usize = 64;

/// Counts a task that has not begun.
pub(super) struct Unbegun(Arc<Place>);

impl Unbegun {
    pub(super) fn new(place: Arc<Place>) -> Self {
        place.unbegun.fetch_add(1, Ordering::Relaxed);
        Self(place)
    }
}

impl Drop for Unbegun {
    fn drop(&mut self) {
        self.0.unbegun.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Place {
    pub(super) fn runtime(&self) -> Option<Handle> {
        self.runtime.lock().as_ref().map(|(runtime, _)| runtime.clone())
    }

    pub(super) fn is_in(&self, runtime: &Handle) -> bool {
        if !self.has_moved.load(Ordering::Acquire) {
            return self.first.get() == Some(&runtime.id());
        }
        let is_there = |(known, _): &(Handle, AbortHandle)| known.id() == runtime.id();
        self.runtime.lock().as_ref().is_some_and(is_there)
    }

    pub(super) fn lives(&self) -> bool {
        self.lives.load(Ordering::Acquire)
    }

    /// Adopts a runtime. False if it has ended.
    pub(super) fn settle(self: &Arc<Self>, runtime: Handle) -> bool {
        let mut place = self.runtime.lock();
        if self.lives.load(Ordering::Acquire) {
            // Another thread did. With two tenants, the end of one would pass for the end of the other.
            return true;
        }
        if *self.first.get_or_init(|| runtime.id()) != runtime.id() {
            self.has_moved.store(true, Ordering::Release);
        }
        // After it is known whether the runtime is another one: who sees that it lives asks no more.
        self.lives.store(true, Ordering::Release);
        // A runtime that ends drops its tasks. One that has ended drops them at once.
        let tenant = Tenant(Arc::downgrade(self));
        let task = runtime.spawn(async move {
            let _tenant = tenant;
            pending::<()>().await;
        });
        *place = Some((runtime, task.abort_handle()));
        self.lives()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let place = self.runtime.get_mut();
        // Else each manager would leave a task behind for as long as its runtime lives.
        place.take().into_iter().for_each(|(_, tenant)| tenant.abort());
    }
}

/// Is dropped when its runtime ends, because a task there owns it.
struct Tenant(Weak<Place>);

impl Drop for Tenant {
    fn drop(&mut self) {
        if let Some(place) = self.0.upgrade() {
            place.lives.store(false, Ordering::Release);
        }
    }
}
