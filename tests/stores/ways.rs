//! The connections of several processes to one server. Each process has its own proxy, so that a test can disturb it alone.

use std::{thread, time::Duration};

use crate::{
    histories::Dice,
    proxy::{Commit, Proxy, Way},
};

pub(crate) struct Ways(Vec<Proxy>);

const CUT: &str = "connections were cut";
const MUTE: &str = "answers were lost";
const COMMIT: &str = "a commit met its fate";
const SLOW: &str = "a connection was slow";
const DEATH: &str = "the server was killed";

/// The faults of the connections in a history.
pub(crate) const SPOILS: &[&str] = &[CUT, MUTE, SLOW, DEATH, COMMIT];

impl Ways {
    pub(crate) fn new(proxy: impl Fn() -> Proxy) -> Self {
        Self((0..3).map(|_| proxy()).collect())
    }

    pub(crate) fn of(&self, slot: usize) -> &Proxy {
        &self.0[slot]
    }

    /// Disturbs one connection for up to two and a half leases, or has somebody kill and restart the server.
    pub(crate) fn spoil(&self, slot: usize, what: &str, dice: &mut Dice, restart: impl FnOnce()) {
        let (proxy, span) = (&self.0[slot], Duration::from_millis(500 + dice.below(2_000)));
        match what {
            CUT => proxy.cut(),
            MUTE => {
                // The server does what it is asked, and nobody learns of it.
                proxy.mute();
                thread::sleep(span);
                proxy.cut();
            }
            COMMIT => proxy.let_next_commit(if dice.one_in(2) { Commit::LosesAnswer } else { Commit::IsLost }),
            SLOW => {
                let way = if dice.one_in(2) { Way::ToServer } else { Way::ToClient };
                proxy.delay(way, Duration::from_millis(dice.below(700)));
                thread::sleep(span);
                proxy.delay(way, Duration::ZERO);
            }
            DEATH => restart(),
            other => panic!("nothing is called {other:?}"),
        }
    }

    pub(crate) fn heal(&self) {
        self.0.iter().for_each(|proxy| proxy.let_next_commit(Commit::Passes));
    }
}
