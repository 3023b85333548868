//! How the suite speaks with one of its contexts.

use alloc::{boxed::Box, format, string::String, vec::Vec};
use core::cell::Cell;

use futures::future::LocalBoxFuture;

use super::half::{SEPARATOR, Step, text};
use crate::machine::{Body, Key, Message, SessionId, StoreId};
use crate::signal::Notice;

/// How often the suite lets things settle before it says that something does not come.
const PATIENCE: usize = 200;
/// How many sessions may lose their beacons before they stand.
const WAKINGS: usize = 5;

pub(super) struct Side<'a> {
    obey: Box<dyn Fn(String) -> LocalBoxFuture<'a, String> + 'a>,
    settle: Box<dyn Fn() -> LocalBoxFuture<'a, ()> + 'a>,
    number: u128,
    wakings: Cell<u128>,
}

/// A session of a context that never was.
pub(super) const fn never() -> SessionId {
    SessionId(u128::MAX)
}

/// A message that this name makes known from others, for all or for one.
fn letter(name: &str, from: SessionId, to: Option<SessionId>) -> Message {
    let key = Key::new(name).unwrap_or_else(|invalid| panic!("{invalid}"));
    let body = to.map_or(Body::Gone { holder: from }, |holder| Body::Ended { holder });
    Message { store: StoreId(1), key, body }
}

impl<'a> Side<'a> {
    pub(super) fn new(number: u128, obey: &'a impl AsyncFn(String) -> String, settle: &'a impl AsyncFn()) -> Self {
        Self {
            obey: Box::new(move |line| Box::pin(obey(line))),
            settle: Box::new(move || Box::pin(settle())),
            number,
            wakings: Cell::new(0),
        }
    }

    async fn tell(&self, step: Step) -> String {
        (self.obey)(format!("{step}")).await
    }

    pub(super) async fn settle(&self) {
        (self.settle)().await;
    }

    pub(super) async fn raises_beacons(&self) -> bool {
        self.tell(Step::Beacons).await != "none"
    }

    /// The session of the last `wake`.
    pub(super) fn session(&self) -> SessionId {
        SessionId(self.number + (self.wakings.get() << 8))
    }

    /// Wakes as the next session. It is told if its beacon stands, `None` if there is none to be expected. A beacon may be lost before it
    /// stands, as with a connection that fails; then the next session raises its own.
    pub(super) async fn wake(&self) -> Option<SessionId> {
        for _ in 0..WAKINGS {
            self.wakings.set(self.wakings.get() + 1);
            let session = self.session();
            let expected = self.tell(Step::Wake(session)).await == "true";
            let (stands, lost) = (Notice::BeaconStands(session), Notice::BeaconLost(session));
            if !expected {
                self.settle().await;
                assert_eq!(self.count(&stands).await, 0, "`wake` said that no beacon is to be expected");
                return None;
            }
            if self.sees_either(&stands, &lost).await {
                return Some(session);
            }
            self.rest().await;
        }
        panic!("of {WAKINGS} sessions each lost its beacon before it stood");
    }

    /// Whether the beacon stands; it may also be lost.
    async fn sees_either(&self, stands: &Notice, lost: &Notice) -> bool {
        for _ in 0..PATIENCE {
            if self.count(stands).await > 0 {
                return true;
            }
            if self.count(lost).await > 0 {
                return false;
            }
            self.settle().await;
        }
        panic!("`wake` said that a beacon is to be expected: then `BeaconStands` follows, or `BeaconLost`");
    }

    /// Wakes with a beacon that must stand.
    pub(super) async fn raise(&self) -> SessionId {
        let raised = self.wake().await;
        raised.unwrap_or_else(|| panic!("signals that say more than `Beacons::None` raise a beacon"))
    }

    pub(super) async fn rest(&self) {
        self.tell(Step::Rest).await;
    }

    pub(super) async fn watch(&self, watch: u64, session: SessionId) {
        self.tell(Step::Watch(watch, session)).await;
    }

    pub(super) async fn unwatch(&self, watch: u64) {
        self.tell(Step::Unwatch(watch)).await;
    }

    pub(super) async fn send(&self, name: &str, to: Option<SessionId>) {
        self.tell(Step::Send(letter(name, self.session(), to))).await;
    }

    /// Whether a message from here is heard there. A message may be lost: it is sent again and again.
    pub(super) async fn reaches(&self, receiver: &Side<'_>, name: &str, to: Option<SessionId>) -> bool {
        let arrival = Notice::Message(letter(name, self.session(), to));
        for _ in 0..PATIENCE {
            self.send(name, to).await;
            self.settle().await;
            if receiver.count(&arrival).await > 0 {
                return true;
            }
        }
        false
    }

    /// Whether a message of this name came here.
    pub(super) async fn heard(&self, name: &str) -> bool {
        let name = format!("{name:?}");
        self.told().await.iter().any(|notice| notice.starts_with("message ") && notice.contains(&name))
    }

    /// How often this watch reported its beacon gone.
    pub(super) async fn goings(&self, watch: u64) -> usize {
        self.count(&Notice::BeaconGone { watch }).await
    }

    pub(super) async fn sees_gone(&self, watch: u64) -> bool {
        self.sees(&Notice::BeaconGone { watch }).await
    }

    async fn sees(&self, notice: &Notice) -> bool {
        for _ in 0..PATIENCE {
            if self.count(notice).await > 0 {
                return true;
            }
            self.settle().await;
        }
        false
    }

    async fn count(&self, notice: &Notice) -> usize {
        let notice = text(notice);
        self.told().await.iter().filter(|told| **told == notice).count()
    }

    async fn told(&self) -> Vec<String> {
        self.tell(Step::Tell).await.split(SEPARATOR).map(String::from).collect()
    }
}
