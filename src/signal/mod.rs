//! Signals: messages, and beacons as signs of life. Both only make things fast; no promise rests on them.

#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
mod broadcast;
mod local;

#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
pub use broadcast::BroadcastSignals;
pub use local::LocalSignals;

use core::fmt::Debug;

use crate::executor::{MaybeSendSync, Shared, WeakShared};
use crate::machine::{Beacon, Message};
use crate::store::Reach;

/// How contexts tell each other what happened, and see each other die.
///
/// # Behavior
/// * A message MAY arrive late, twice, out of order or never, and goes to every awake context but its sender.
/// * A beacon that [`wake`](Self::wake) raised MUST be seen standing by every watcher until
///   [`rest`](Self::rest), or until the context dies; after that it MUST be seen gone, for ever.
/// * A watch MUST report [`Notice::BeaconGone`] only for what it saw itself, after it was placed.
/// * No method blocks, and none fails: what the platform lacks does not happen.
pub trait Signals: MaybeSendSync + Debug + 'static {
    /// Opens the channel and raises a beacon. Whether one is to be expected: then
    /// [`Notice::BeaconStands`] follows.
    fn wake(&self, beacon: Option<Beacon>, inbox: WeakShared<dyn Inbox>) -> bool;

    /// Closes the channel, lowers the beacon, ends all watches.
    fn rest(&self);

    /// Tells all other awake contexts.
    fn send(&self, message: &Message);

    /// Watches for a beacon to be gone; `watch` names the watch.
    fn watch(&self, watch: u64, beacon: Beacon);

    /// Ends a watch.
    fn unwatch(&self, watch: u64);
}

/// Who is told what signals bring.
pub trait Inbox: MaybeSendSync {
    /// Takes a notice. It may call back into the [`Signals`] that brought it.
    fn notice(&self, notice: Notice);
}

/// What a signal brings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// Another context says something.
    Message(Message),
    /// The own beacon stands.
    BeaconStands(Beacon),
    /// The own beacon stands no more, or never will, although nobody lowered it: the platform took it away.
    BeaconLost(Beacon),
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
        _ => Shared::new(LocalSignals::new(reach)),
    }
}
