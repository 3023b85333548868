//! The times of a lease, and the other options, which are checked once.

use alloc::string::String;
use core::{fmt, time::Duration};

use super::{key::Quoted, time::whole_ms};

/// The shortest lease, in ms. The margin would use up a shorter one.
pub const LEAST_LEASE_MS: u64 = 1_000;
/// The longest lease, in ms. With a longer one, a dead holder could block a key for days.
pub const LONGEST_LEASE_MS: u64 = 24 * 60 * 60 * 1_000;

/// The longest time for which a context may be silent, in ms: what a holder needs that wants to be sure of its lease for
/// [`LONGEST_LEASE_MS`].
pub const LONGEST_SILENCE_MS: u64 = lease_for_belief_ms(LONGEST_LEASE_MS);
/// The shortest time between heartbeats, in ms. Shorter ones would flood the store with writes.
pub const LEAST_HEARTBEAT_MS: u64 = 100;

/// The largest number of keys in one request.
pub const MOST_KEYS: usize = 1_000;

/// The longest linger, in ms. With a longer one, a lease that nobody uses would be renewed for days.
const LONGEST_LINGER_MS: u64 = LONGEST_LEASE_MS;
/// The longest texts, in bytes. They are written again with each change of a record.
const LONGEST_INSTANCE: usize = 1_024;
const LONGEST_INFO: usize = 4_096;

/// The least margin, in ms: twice the resolution of the coarsest timer that we know.
const LEAST_MARGIN_MS: u64 = 100;
/// How many store operations of a renewal may time out before the lease expires.
const RETRIES: u64 = 2;

/// What a user may choose. A time that is `None` follows from the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a lease lasts without renewal.
    pub lease: Duration,
    /// How often the lease is renewed. The default is a quarter of the lease.
    pub heartbeat: Option<Duration>,
    /// The time limit of one store operation. The default is a quarter of the lease or 5 s, whichever is shorter.
    pub store_timeout: Option<Duration>,
    /// How often a context may pass a lease from one of its requests to the next while another context waits.
    pub max_local_handoffs: u32,
    /// How long after the grant it may do so.
    pub max_tenure: Duration,
    /// How long a context keeps a lease that it no longer uses and nobody else wants.
    pub linger: Duration,
    /// The name of the context, which is stable over restarts.
    pub instance: Option<String>,
    /// Whether to use a beacon, a sign of life, where the platform has one.
    pub beacon: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(20),
            heartbeat: None,
            store_timeout: None,
            max_local_handoffs: 32,
            max_tenure: Duration::from_millis(50),
            linger: Duration::from_millis(100),
            instance: None,
            beacon: true,
        }
    }
}

/// Options that were checked, with all times in ms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    pub(super) lease_ms: u64,
    pub(super) heartbeat_ms: u64,
    pub(super) store_timeout_ms: u64,
    pub(super) max_local_handoffs: u32,
    pub(super) max_tenure_ms: u64,
    pub(super) linger_ms: u64,
    pub(super) instance: String,
    pub(super) beacon: bool,
    /// Whether the latest releases are remembered, to be repeated after a failover.
    pub(super) repeats_releases: bool,
    /// Whether the signals may report late that a beacon is gone. Then the lack of a report does not show that the beacon stands.
    pub(super) late_deaths: bool,
}

/// Why options are invalid, or do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// The lease is out of range.
    Lease {
        /// The lease in ms.
        lease_ms: u64,
    },
    /// The heartbeat is too fast.
    Heartbeat {
        /// The heartbeat in ms.
        heartbeat_ms: u64,
    },
    /// The time limit of a store operation is zero.
    StoreTimeout,
    /// The name of the instance is empty.
    Instance,
    /// The name of the instance is too long.
    InstanceTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The `info` of a request is too long.
    InfoTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The linger is too long.
    Linger {
        /// The linger in ms.
        linger_ms: u64,
    },
    /// `max_local_handoffs` is 0.
    LocalHandoffs,
    /// A request that steals is shared, but a stolen lease is exclusive.
    SharedTheft,
    /// A request for several leases names no key, or more than [`MOST_KEYS`].
    KeyCount {
        /// How many it names.
        count: usize,
    },
    /// A request for several leases names a key twice.
    SameKeyTwice {
        /// The key.
        key: String,
    },
    /// The call does not have an option that was chosen.
    UnknownOption {
        /// The option.
        option: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A time that a lease is to last is out of range.
    Span {
        /// The option or the call that names it.
        option: &'static str,
        /// The span in ms.
        span_ms: u64,
    },
    /// A renewal would come too late when the store is slow: heartbeat + 2 × store time-out + margin ≥ lease.
    Sum {
        /// The lease in ms.
        lease_ms: u64,
        /// The heartbeat in ms.
        heartbeat_ms: u64,
        /// The time limit of a store operation in ms.
        store_timeout_ms: u64,
        /// The margin in ms.
        margin_ms: u64,
    },
}

impl Config {
    /// Checks options.
    ///
    /// # Errors
    /// [`InvalidOptions`] names the value and the remedy.
    pub fn parse(options: &Options) -> Result<Self, InvalidOptions> {
        let lease_ms = whole_ms(options.lease);
        if !(LEAST_LEASE_MS..=LONGEST_LEASE_MS).contains(&lease_ms) {
            return Err(InvalidOptions::Lease { lease_ms });
        }
        let heartbeat_ms = options.heartbeat.map_or(lease_ms / 4, whole_ms);
        if heartbeat_ms < LEAST_HEARTBEAT_MS {
            return Err(InvalidOptions::Heartbeat { heartbeat_ms });
        }
        let store_timeout_ms = options.store_timeout.map_or_else(|| (lease_ms / 4).min(5_000), whole_ms);
        if store_timeout_ms == 0 {
            return Err(InvalidOptions::StoreTimeout);
        }
        let linger_ms = whole_ms(options.linger);
        if linger_ms > LONGEST_LINGER_MS {
            return Err(InvalidOptions::Linger { linger_ms });
        }
        if options.max_local_handoffs == 0 {
            return Err(InvalidOptions::LocalHandoffs);
        }
        check_instance(options.instance.as_deref())?;
        let margin_ms = margin_ms(lease_ms);
        let retries_ms = store_timeout_ms.saturating_mul(RETRIES);
        if heartbeat_ms.saturating_add(retries_ms).saturating_add(margin_ms) >= lease_ms {
            return Err(InvalidOptions::Sum { lease_ms, heartbeat_ms, store_timeout_ms, margin_ms });
        }
        Ok(Self {
            lease_ms,
            heartbeat_ms,
            store_timeout_ms,
            max_local_handoffs: options.max_local_handoffs,
            max_tenure_ms: whole_ms(options.max_tenure),
            linger_ms,
            instance: options.instance.clone().unwrap_or_default(),
            beacon: options.beacon,
            repeats_releases: false,
            late_deaths: false,
        })
    }

    /// The same, but without a linger.
    pub(crate) fn without_linger(self) -> Self {
        Self { linger_ms: 0, ..self }
    }

    /// The same, for a store that may [lose its latest writes](super::input::Input::Recheck) while the context goes on.
    pub(crate) fn for_failovers(self) -> Self {
        Self { repeats_releases: true, ..self }
    }

    /// The same, for signals that do not show [deaths at once](crate::signal::Signals::shows_deaths_at_once).
    pub(crate) fn with_late_deaths(self) -> Self {
        Self { late_deaths: true, ..self }
    }

    /// The time limit of one store operation.
    pub(crate) fn store_timeout(&self) -> Duration {
        Duration::from_millis(self.store_timeout_ms)
    }

    /// How long work may go on while its lease is in doubt. The doubt begins at least one margin before the lease ends, so such work
    /// ends before another context is granted the lease.
    pub(crate) fn longest_doubt(&self) -> Duration {
        Duration::from_millis(margin_ms(self.lease_ms) / 2)
    }
}

fn check_instance(name: Option<&str>) -> Result<(), InvalidOptions> {
    match name.map(str::len) {
        Some(0) => Err(InvalidOptions::Instance),
        Some(bytes) if bytes > LONGEST_INSTANCE => Err(InvalidOptions::InstanceTooLong { bytes }),
        _ => Ok(()),
    }
}

/// Checks the `info` of a request, which everybody reads who looks at the key.
pub(crate) fn check_info(info: &str) -> Result<(), InvalidOptions> {
    if info.len() > LONGEST_INFO { Err(InvalidOptions::InfoTooLong { bytes: info.len() }) } else { Ok(()) }
}

/// The margin: how far clocks may drift apart during a lease. It is a tenth of the lease, at least 100 ms.
pub(super) fn margin_ms(lease_ms: u64) -> u64 {
    (lease_ms / 10).max(LEAST_MARGIN_MS)
}

/// How long a holder may consider a lease valid, from the moment before it sent the request.
pub(super) fn belief_ms(lease_ms: u64) -> u64 {
    lease_ms.saturating_sub(margin_ms(lease_ms))
}

/// How long a lease must be for its holder to consider it valid for this long.
pub(super) const fn lease_for_belief_ms(span_ms: u64) -> u64 {
    let margin_ms = span_ms / 9 + 1;
    span_ms.saturating_add(if margin_ms < LEAST_MARGIN_MS { LEAST_MARGIN_MS } else { margin_ms })
}

/// How long another context must see an entry unchanged, from the moment after it first read it.
pub(super) fn silence_ms(lease_ms: u64) -> u64 {
    lease_ms.saturating_add(margin_ms(lease_ms))
}

/// Milliseconds, as a message shows them. The largest number stands for all times that are too long to be counted, such as
/// [`Duration::MAX`].
struct Length(u64);

impl fmt::Display for Length {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => out.write_str("over 10^19 ms"),
            ms => write!(out, "{ms} ms"),
        }
    }
}

impl fmt::Display for InvalidOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Lease { lease_ms } => write!(
                out,
                "a lease of {} is out of range; choose {LEAST_LEASE_MS} to {LONGEST_LEASE_MS} ms",
                Length(lease_ms)
            ),
            Self::Heartbeat { heartbeat_ms } => write!(
                out,
                "a heartbeat of {heartbeat_ms} ms is too fast; choose at least {LEAST_HEARTBEAT_MS} ms, or leave it out"
            ),
            Self::StoreTimeout => {
                out.write_str("a store time-out of 0 ms lets no operation end; choose more, or leave it out")
            }
            Self::Instance => {
                out.write_str("the instance name is empty; choose one that is this context's own, or leave it out")
            }
            Self::InstanceTooLong { bytes } => {
                write!(out, "an instance name of {bytes} bytes is too long; choose at most {LONGEST_INSTANCE} bytes")
            }
            Self::InfoTooLong { bytes } => {
                write!(out, "an info of {bytes} bytes is too long; choose at most {LONGEST_INFO} bytes")
            }
            Self::Linger { linger_ms } => {
                write!(out, "a linger of {} is too long; choose at most {LONGEST_LINGER_MS} ms", Length(linger_ms))
            }
            Self::LocalHandoffs => out.write_str(
                "0 local hand-offs would send each request of this context to the end of the queue; choose at least 1",
            ),
            Self::SharedTheft => {
                out.write_str("a stolen lease cannot be shared; steal it exclusively, then downgrade it")
            }
            Self::KeyCount { count } => write!(out, "{count} keys cannot be leased together; name 1 to {MOST_KEYS}"),
            Self::SameKeyTwice { ref key } => {
                write!(out, "the key {} is named twice; name it once, in the stronger mode", Quoted(key))
            }
            Self::UnknownOption { option, remedy } => {
                write!(out, "this call has no option `{option}`; {remedy}")
            }
            Self::Span { option, span_ms } => {
                let span = Length(span_ms);
                write!(out, "a span of {span} is out of range for `{option}`; choose 1 to {LONGEST_LEASE_MS} ms")
            }
            Self::Sum { lease_ms, heartbeat_ms, store_timeout_ms, margin_ms } => write!(
                out,
                "heartbeat {heartbeat_ms} ms + {RETRIES} store time-outs of {store_timeout_ms} ms + margin {margin_ms} ms \
                 must be less than the lease of {lease_ms} ms; lengthen the lease, or shorten the heartbeat or the store time-out"
            ),
        }
    }
}

impl core::error::Error for InvalidOptions {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lease_ms: u64, heartbeat_ms: Option<u64>) -> Result<Config, InvalidOptions> {
        let heartbeat = heartbeat_ms.map(Duration::from_millis);
        Config::parse(&Options { lease: Duration::from_millis(lease_ms), heartbeat, ..Options::default() })
    }

    #[test]
    fn defaults_are_a_quarter() {
        let config = parse(20_000, None).unwrap();
        assert_eq!((config.heartbeat_ms, config.store_timeout_ms), (5_000, 5_000));
        assert_eq!(parse(1_000, None).unwrap().heartbeat_ms, 250);
    }

    #[test]
    fn absurd_times_are_refused_with_their_value() {
        for lease_ms in [0, 1, 999, LONGEST_LEASE_MS + 1, u64::MAX] {
            assert_eq!(parse(lease_ms, None), Err(InvalidOptions::Lease { lease_ms }));
        }
        assert_eq!(parse(20_000, Some(0)), Err(InvalidOptions::Heartbeat { heartbeat_ms: 0 }));
        let sum = parse(20_000, Some(10_000)).unwrap_err();
        assert!(sum.to_string().contains("heartbeat 10000 ms") && sum.to_string().contains("20000 ms"), "{sum}");
        let store_timeout = Some(Duration::MAX);
        let huge = Config::parse(&Options { store_timeout, ..Options::default() });
        assert!(matches!(huge, Err(InvalidOptions::Sum { .. })), "{huge:?}");
    }

    #[test]
    fn a_holder_stops_believing_before_an_onlooker_may_act() {
        for lease_ms in [200, 1_000, 20_000, LONGEST_LEASE_MS] {
            assert!(belief_ms(lease_ms) + 200 <= silence_ms(lease_ms));
            assert!(belief_ms(lease_for_belief_ms(lease_ms)) >= lease_ms);
        }
    }
}
