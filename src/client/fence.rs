//! Fenced writes: a guard's lease is checked in the user's own transaction.

use std::{
    borrow::ToOwned,
    boxed::Box,
    string::String,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::client::error::AcquireError;
use crate::client::fate::Fate;
use crate::client::guard::LeaseGuard;
use crate::driver::Driver;
use crate::executor::{DROPS_TASKS, Mutex, Shared, WeakShared};
use crate::machine::{FenceRefusal, Input, LostReason, Records, Reply, StoreError, StoreId, StoreNow, Ticket};
use crate::store::{Fence, FenceError, FencedTransaction, OpenTransaction, Reach};

impl LeaseGuard {
    /// Lets a transaction commit only if the lease is still current *in that transaction*. A holder that was replaced writes
    /// nothing, however long it was paused and whatever messages it missed.
    ///
    /// The lease is checked before any later operation of the transaction. Await the answer before the first write, and continue the
    /// transaction only if it is `Ok`: a refused transaction cannot be committed, or is already rolled back. A refused IndexedDB
    /// transaction is aborted, and none of its writes takes effect. If you use it before the answer comes, you see only that
    /// `object_store()` fails, not why. Keep the transaction shorter than a third of the lease: in IndexedDB and SQLite, and with
    /// [`fence_and_renew`](Self::fence_and_renew) in PostgreSQL, renewals wait until it ends. An IndexedDB
    /// transaction is aborted if the context is [suspended](crate::LeaseManager::suspend) meanwhile.
    ///
    /// The lease must be kept in the database of the transaction; in a browser, open the store with `IndexedDbStore::attach`. See
    /// [`FencedTransaction`] for what can be fenced, and for the rules of each database.
    ///
    /// # Errors
    /// [`FenceError::Lost`] if the lease is lost,
    /// [`FenceError::Released`] if this guard was released,
    /// [`FenceError::Misuse`] if the transaction cannot be fenced, or if, natively, the lease was downgraded after this call, and
    /// [`FenceError::Store`] if, before the check was complete, the store failed, the transaction ended, or the lease was upgraded.
    ///
    /// # Cancel safety
    /// If you drop the answer, still nothing is committed without the lease. In IndexedDB and SQLite the transaction stays fenced; in
    /// PostgreSQL it then fails, but for an exception that the rules of `sqlx`'s transaction name; in Redis the script may or may not run.
    ///
    /// If a task is dropped during its commit, and its guard with it, the manager does not pass the lease to its own next request directly.
    /// The store grants the next lease after the transaction, or else the transaction is refused. See [`Fenced`](crate::store::Fenced).
    ///
    /// ```no_run
    /// # #[cfg(all(target_family = "wasm", feature = "web"))]
    /// # async fn example(
    /// #     guard: leasehold::LeaseGuard,
    /// #     database: web_sys::IdbDatabase,
    /// #     names: wasm_bindgen::JsValue,
    /// # ) -> Result<(), wasm_bindgen::JsValue> {
    /// use web_sys::IdbTransactionMode::Readwrite;
    ///
    /// // The names are ["notes", "leasehold"].
    /// let transaction = database.transaction_with_str_sequence_and_mode(&names, Readwrite)?;
    /// guard.fence(&transaction).await.map_err(|refused| refused.to_string())?;
    /// transaction.object_store("notes")?.put_with_key(&"milk".into(), &1.into())?;
    /// # Ok(()) }
    /// ```
    pub fn fence<T: FencedTransaction>(&self, transaction: T) -> T::Answer {
        self.check(transaction, false)
    }

    /// [Fences](Self::fence) the transaction, and renews the lease in it: a holder that writes often needs no other renewal. Once the
    /// transaction is committed, the renewed lease runs from the time of this call. If the answer is a [`Fenced`](crate::store::Fenced),
    /// the renewal counts only when you call [`committed`](crate::store::Fenced::committed) on it. An etcd fence cannot renew.
    ///
    /// # Errors
    /// As for [`fence`](Self::fence).
    ///
    /// # Cancel safety
    /// As for [`fence`](Self::fence).
    pub fn fence_and_renew<T: FencedTransaction>(&self, transaction: T) -> T::Answer {
        self.check(transaction, true)
    }

    fn check<T: FencedTransaction>(&self, transaction: T, renew: bool) -> T::Answer {
        if let Err(error) = self.driver().check_process() {
            return transaction.refuse(FenceError::Store(error));
        }
        match self.begin_fence(renew) {
            Some(fence) => {
                if !T::IN_ORDER {
                    fence.begin();
                }
                transaction.check(Shared::new(fence))
            }
            None => transaction.refuse(match self.loss() {
                AcquireError::Lost { key, reason } => FenceError::Lost { key, reason },
                _ => FenceError::Released { key: self.key().into() },
            }),
        }
    }
}

/// Empty in the npm package, where a fence is always checked before a later downgrade.
const DOWNGRADED: &str = if DROPS_TASKS {
    "the lease was downgraded after this fence began, so others may share it by now; fence again if sharing is fine, else upgrade the lease first"
} else {
    ""
};

const UPGRADED: &str =
    "the lease was upgraded, or may have been, after this fence began; begin another transaction and fence it";

/// A guard's lease, to be checked by a transaction.
pub(crate) struct GuardFence {
    /// Weak, so that a handle that the user forgets keeps neither the context nor its store.
    driver: WeakShared<Driver>,
    reach: Reach,
    fate: Shared<Fate>,
    ticket: Ticket,
    /// The user's name for the key, if the store knows it by another.
    name: Option<String>,
    now: StoreNow,
    /// The outcome of the check, if it is to be reported when the transaction is committed.
    found: Mutex<Option<Reply>>,
    /// Its place among the transactions that are open, 0 for none.
    place: AtomicU64,
    /// Whether the context assumes that the transaction may be open.
    is_open: AtomicBool,
}

impl GuardFence {
    pub(crate) fn new(driver: &Shared<Driver>, fate: Shared<Fate>, name: Option<String>, renew: bool) -> Option<Self> {
        let now = driver.executor.now();
        let ticket = driver.ticket(fate.turn, &fate.slot, renew, now)?;
        let now = StoreNow::new(driver.store.clock(), now);
        let (found, place, reach) = (Mutex::default(), AtomicU64::new(0), driver.store.reach());
        let (driver, is_open) = (Shared::downgrade(driver), AtomicBool::new(false));
        Some(Self { driver, reach, fate, ticket, name, now, found, place, is_open })
    }

    /// From now on the transaction may be open.
    fn begin(&self) {
        if let Some(driver) = self.driver.upgrade() {
            self.is_open.store(true, Ordering::Relaxed);
            driver.begin_fence(&self.fate.slot, &self.ticket);
        }
    }

    /// The transaction is over.
    fn end(&self) {
        // The constant keeps this out of the npm package, where every fenced transaction is in order.
        if DROPS_TASKS
            && self.is_open.swap(false, Ordering::Relaxed)
            && let Some(driver) = self.driver.upgrade()
        {
            driver.end_fence(&self.fate.slot, &self.ticket);
        }
    }

    /// The key by the user's name for it.
    fn key(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.fate.slot.key.as_str().to_owned())
    }

    fn lost(&self, reason: LostReason) -> FenceError {
        FenceError::Lost { key: self.key(), reason }
    }

    /// Whether the guard was released but its lease not lost, and the database runs the release after this transaction.
    fn comes_before_the_release(&self) -> bool {
        let state = self.fate.state();
        self.place.load(Ordering::Relaxed) != 0 && state.releasing && state.lost.is_none()
    }

    /// Tells the context, if it is still there.
    fn tell(&self, reply: Reply) {
        if let Some(driver) = self.driver.upgrade() {
            let (slot, ticket) = (self.fate.slot.clone(), Box::new(self.ticket.clone()));
            driver.handle(Input::Fenced { slot, ticket, reply });
        }
    }
}

impl Fence for GuardFence {
    fn reach(&self) -> Reach {
        self.reach.clone()
    }

    fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    // Protocol: docs/protocol.md#s.
    fn judge(&self, store: Option<StoreId>, records: &mut Records) -> Result<(), FenceError> {
        let reply = self.ticket.batch.apply(records, self.now);
        let (driver, turn, slot) = (self.driver.upgrade(), self.fate.turn, &self.fate.slot);
        // If the context is gone, so is its guard.
        let verdict = driver.as_ref().map_or(Err(FenceRefusal::Lost(LostReason::Closed)), |driver| {
            driver.judge(turn, slot, &self.ticket, (store, &reply))
        });
        match verdict {
            Ok(()) => *self.found.lock() = Some(reply),
            Err(_) if self.comes_before_the_release() && self.ticket.is_current_in(store, &reply) => {}
            // Not a retryable error: a blind second try would pass, since its fence would begin under a shared lease.
            Err(FenceRefusal::Downgraded) => return Err(FenceError::Misuse(DOWNGRADED.to_owned())),
            Err(FenceRefusal::Upgraded) => return Err(FenceError::Store(StoreError::transient(UPGRADED))),
            Err(FenceRefusal::Lost(reason)) => {
                // Nothing of it is written: neither is the heartbeat.
                self.tell(Reply { robbed: None, ..reply });
                return Err(self.loss().unwrap_or_else(|| self.lost(reason)));
            }
        }
        Ok(())
    }

    fn loss(&self) -> Option<FenceError> {
        let state = self.fate.state();
        state
            .lost
            .map(|reason| self.lost(reason))
            .or_else(|| state.releasing.then(|| FenceError::Released { key: self.key() }))
    }

    fn open(&self, transaction: Shared<dyn OpenTransaction>) {
        if let Some(driver) = self.driver.upgrade() {
            self.place.store(driver.opened(transaction), Ordering::Relaxed);
        }
    }

    fn committed(&self) {
        let found = self.found.lock().take();
        if let Some(reply) = found.filter(|_| self.ticket.renews()) {
            self.tell(reply);
        }
        self.end();
    }

    fn over(&self) {
        self.end();
        if let Some(driver) = self.driver.upgrade() {
            driver.over(self.place.load(Ordering::Relaxed));
        }
    }
}
