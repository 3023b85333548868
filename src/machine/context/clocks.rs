//! Watches both clocks, since each can be wrong: one may stop while the machine sleeps, the other may jump.

use super::{
    config::{Config, margin_ms},
    id::SessionId,
    time::{Monotonic, Now},
};

/// The latest reading of the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Clocks {
    wall_offset: Option<i64>,
    announced: Option<Monotonic>,
}

impl Clocks {
    /// Notes the latest time at which the machine must be woken.
    pub(super) fn announce(&mut self, wake: Option<Monotonic>) {
        self.announced = wake;
    }

    /// Takes a reading. Returns whether the context slept or was blocked for long, or a clock was set.
    pub(super) fn take_reading(&mut self, now: Now, config: &Config) -> bool {
        let jumped = self.in_doubt(now, config);
        // Kept until the next jump, so that several small ones add up.
        if jumped || self.wall_offset.is_none() {
            self.wall_offset = Some(now.wall_offset());
        }
        self.announced = None;
        jumped
    }

    /// Whether a reading shows that the clocks disagree, or that the context woke too late.
    pub(super) fn in_doubt(&self, now: Now, config: &Config) -> bool {
        let late_ms = self.announced.map_or(0, |wake| now.monotonic.since(wake));
        let drift_ms = self.wall_offset.map_or(0, |offset| offset.abs_diff(now.wall_offset()));
        late_ms > config.heartbeat_ms.max(1_000) || drift_ms > margin_ms(config.lease_ms)
    }
}

/// Jitter that can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: SessionId) -> Self {
        // The low half of 128 random bits is as random as the whole.
        Self(seed.0 as u64)
    }

    /// A number below `end` (SplitMix64); 0 if `end` is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).checked_rem(end).unwrap_or(0)
    }
}
