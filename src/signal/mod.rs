//! Signals: messages, and beacons as signs of life.
//!
//! A message is a hint: if it is lost, this costs time and nothing else. A beacon is more than that. A waiter takes the absence of a beacon
//! as proof that the holder is dead, and evicts it at once. So if some contexts of a store cannot see a beacon, they evict living holders.
//! [`Beacons`] says who can see them, and a manager uses them only if all contexts that share its store can. Without beacons, a dead holder
//! is replaced after a *lease of silence*: when others have seen no heartbeat of it for as long as its lease, and a tenth more.

#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
mod broadcast;
#[cfg(feature = "test-util")]
pub mod contract;
#[cfg(all(feature = "store-sqlite-unbundled", not(all(target_family = "wasm", target_os = "unknown"))))]
mod delivery;
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
mod directory;
mod local;
mod pointers;

#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
pub use broadcast::BroadcastSignals;
#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
pub(crate) use broadcast::forsake_locks;
#[cfg(all(feature = "store-sqlite-unbundled", not(all(target_family = "wasm", target_os = "unknown"))))]
pub(crate) use delivery::{deliver, has_fallen, make_directory};
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub use directory::DirectorySignals;
pub use local::LocalSignals;

use core::fmt::Debug;

use crate::executor::{MaybeSendSync, Shared, WeakShared};
use crate::machine::{Message, SessionId};
use crate::store::Reach;

/// How contexts notify each other, and detect each other's deaths.
///
/// # Behavior
/// * A message MAY arrive late, twice, out of order or never. It goes to the session that it
///   [concerns](crate::machine::Body::recipient), or to every awake context but its sender.
/// * Every watcher MUST see the beacon of a session that [`wake`](Self::wake) raised until [`rest`](Self::rest), or until the context dies;
///   after that every watcher MUST see it gone, for ever.
/// * A watch MUST report [`Notice::BeaconGone`] only if the beacon was absent at a moment after the watch was placed, and
///   if that absence proves the context dead or at rest. It MUST report that once.
/// * No method waits for another context or for a server, and none fails: if the platform lacks something, the method does nothing. A
///   method may read and write a few files of the machine.
///
/// The module `contract` (feature `test-util`) tests these rules for any signals, also over two processes.
///
/// A `Box<dyn Signals>` is signals, too; and so is an `Arc` of signals, or in a browser an `Rc`.
pub trait Signals: MaybeSendSync + Debug + 'static {
    /// Who can see the beacons that these signals raise. It MUST NOT change. A manager raises and watches beacons only if all contexts that
    /// share its store can see them. If signals promise more than is true, living holders are evicted.
    fn beacons(&self) -> Beacons;

    /// Opens the channel of a session, and raises its beacon if `beacon` is true. Returns whether a beacon is to be expected: then
    /// [`Notice::BeaconStands`] follows. An earlier session of this context rests from then on.
    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool;

    /// Closes the channel, lowers the beacon, and ends all watches.
    fn rest(&self);

    /// The same, for a session that may still be in the store, because its end could not be written, or the outcome is unknown. Any later
    /// watcher of the beacon SHOULD see at once that it is gone. The default is [`rest`](Self::rest).
    fn fall(&self) {
        self.rest();
    }

    /// Sends a message to the session that it concerns, or to all other awake contexts.
    fn send(&self, message: &Message);

    /// Watches whether the beacon of a session is gone. `watch` is the id of the watch.
    fn watch(&self, watch: u64, session: SessionId);

    /// Ends a watch.
    fn unwatch(&self, watch: u64);

    /// Whether a beacon that was gone when its watch began is reported within 250 ms. If not, a context does not conclude from the lack of
    /// a report that a beacon exists. The default is true.
    fn shows_deaths_at_once(&self) -> bool {
        true
    }
}

/// Who can see the beacons that signals raise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Beacons {
    /// Nobody: these signals carry messages only.
    None,
    /// The contexts of this process that share the store of [`Reach::Process`] with this number.
    Process(u64),
    /// The contexts of this machine that share the store of [`Reach::Machine`] with this directory, which is an absolute path. For any
    /// other store it is not certain that all who share it use this directory, or that they run on this machine.
    #[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
    Machine(String),
    /// All contexts that share the store, in whatever process or on whatever machine they run.
    All,
}

impl Beacons {
    /// Whether the absence of such a beacon is proof of death for all who share a store of this reach.
    pub(crate) fn cover(self, reach: &Reach) -> bool {
        match self {
            Self::None => false,
            Self::Process(number) => *reach == Reach::Process(number),
            #[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
            Self::Machine(directory) => directory::is_named_by(reach, &directory),
            Self::All => true,
        }
    }
}

/// Receives the notices that signals deliver.
pub trait Inbox: MaybeSendSync {
    /// Handles a notice. It may call back into the [`Signals`] that delivered it.
    fn notice(&self, notice: Notice);
}

/// What signals deliver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A message of another context.
    Message(Message),
    /// This context's own beacon is raised.
    BeaconStands(SessionId),
    /// This context's own beacon is gone, or will never be raised, although nobody lowered it: the platform removed it.
    BeaconLost(SessionId),
    /// A connection to the store was replaced by another one, or the first one was slow to open. Messages may have been lost meanwhile, and
    /// the server may have lost its latest writes, for example because a replica took over. The context then verifies each grant that it
    /// holds, reads the state of its requests, and repeats its latest releases.
    Reconnected,
    /// The beacon of this watch is gone.
    BeaconGone {
        /// The watch that saw it.
        watch: u64,
    },
}

/// The signals of this platform for contexts that share a store.
pub(crate) fn for_reach(reach: &Reach) -> Shared<dyn Signals> {
    match reach {
        #[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
        Reach::Named(name) => Shared::new(BroadcastSignals::new(name)),
        #[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
        Reach::Machine(directory) => Shared::new(DirectorySignals::new(directory)),
        _ => Shared::new(LocalSignals::new(reach)),
    }
}
