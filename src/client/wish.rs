//! The options of a request.

use alloc::string::String;
use core::time::Duration;

use crate::driver::Driver;
use crate::machine::{InvalidOptions, Key, LONGEST_LEASE_MS, Mode, Monotonic, Turn, TurnId, check_info, whole_ms};

/// The options of a request.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) mode: Mode,
    pub(crate) timeout: Option<Duration>,
    pub(crate) priority: i32,
    pub(crate) share: bool,
    pub(crate) steal: bool,
    pub(crate) auto_renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) info: String,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            mode: Mode::Exclusive,
            timeout: None,
            priority: 0,
            share: false,
            steal: false,
            auto_renew: true,
            max_hold: None,
            info: String::new(),
        }
    }
}

impl Wish {
    /// Whether the options fit each other and the call, which may fail because the key is taken.
    pub(super) fn check(&self, insists: bool) -> Result<(), InvalidOptions> {
        if !insists {
            self.check_try()?;
        } else if self.steal {
            self.check_theft()?;
        }
        check_info(&self.info)?;
        match self.max_hold.map(rounded_up_ms) {
            Some(span_ms) if !(1..=LONGEST_LEASE_MS).contains(&span_ms) => {
                Err(InvalidOptions::Span { option: "max_hold", span_ms })
            }
            _ => Ok(()),
        }
    }

    /// A try does not wait.
    pub(crate) fn check_try(&self) -> Result<(), InvalidOptions> {
        match self.waiting_option() {
            Some(option) => Err(unknown(option, "a try does not wait: use `acquire` or `run`")),
            None => Ok(()),
        }
    }

    fn check_theft(&self) -> Result<(), InvalidOptions> {
        match self.waiting_option() {
            _ if self.mode == Mode::Shared => Err(InvalidOptions::SharedTheft),
            Some(option) => Err(unknown(option, "leave it out: `steal` waits for no holder")),
            None => Ok(()),
        }
    }

    /// The name of an option that is of use only to a request that waits.
    fn waiting_option(&self) -> Option<&'static str> {
        match self.timeout {
            Some(_) => Some("timeout"),
            None => (self.priority != 0).then_some("priority"),
        }
    }

    pub(crate) fn deadline(&self, driver: &Driver) -> Option<Monotonic> {
        let timeout_ms = rounded_up_ms(self.timeout?);
        Some(driver.executor.now().monotonic.plus(timeout_ms))
    }

    /// The request for the machine. The driver sets its id, and the time at which the wait counts as long.
    pub(crate) fn turn(&self, key: Key, wait: bool, deadline: Option<Monotonic>) -> Turn {
        Turn {
            mode: self.mode,
            wait,
            priority: self.priority,
            deadline,
            share: self.share,
            steal: self.steal,
            renews: self.auto_renew,
            max_hold_ms: self.max_hold.map(rounded_up_ms),
            info: self.info.clone(),
            ..Turn::new(TurnId::default(), key)
        }
    }
}

/// A wait of less than a millisecond is still a wait.
pub(super) fn rounded_up_ms(span: Duration) -> u64 {
    whole_ms(span.saturating_add(Duration::from_nanos(999_999)))
}

/// The error for an option that the call does not have.
pub(crate) const fn unknown(option: &'static str, remedy: &'static str) -> InvalidOptions {
    InvalidOptions::UnknownOption { option, remedy }
}
