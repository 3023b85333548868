//! Signals behind a pointer are signals: those that a [store brings](crate::store::Store::signals), or that are chosen when the program
//! starts.

use alloc::boxed::Box;

use super::{Beacons, Inbox, Signals};
use crate::executor::{Shared, WeakShared};
use crate::machine::{Message, SessionId};

macro_rules! behind {
    ($pointer:ty) => {
        impl<S: Signals + ?Sized> Signals for $pointer {
            fn beacons(&self) -> Beacons {
                (**self).beacons()
            }

            fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
                (**self).wake(session, beacon, inbox)
            }

            fn rest(&self) {
                (**self).rest();
            }

            fn fall(&self) {
                (**self).fall();
            }

            fn send(&self, message: &Message) {
                (**self).send(message);
            }

            fn watch(&self, watch: u64, session: SessionId) {
                (**self).watch(watch, session);
            }

            fn unwatch(&self, watch: u64) {
                (**self).unwatch(watch);
            }

            fn shows_deaths_at_once(&self) -> bool {
                (**self).shows_deaths_at_once()
            }
        }
    };
}

behind!(Box<S>);
behind!(Shared<S>);
