//! One of the two contexts of the suite: it does what lines of text say, so that it may run in another process.

use alloc::{format, string::String, vec::Vec};
use core::fmt;
use std::sync::MutexGuard;

use crate::executor::{Mutex, Shared};
use crate::machine::{Message, SessionId};
use crate::signal::{Beacons, Inbox, Notice, Signals};

/// Between the notices of one answer. JSON text has none.
pub(super) const SEPARATOR: char = '\t';

/// One of the two contexts that the suite tells what to do. It rests when it is dropped, as a manager does.
///
/// ```
/// use leasehold::{signal::{LocalSignals, contract::Half}, store::Reach};
///
/// let half = Half::new(LocalSignals::new(&Reach::Process(1)));
/// assert_eq!(half.obey("beacons"), "some");
/// ```
pub struct Half<S: Signals> {
    signals: S,
    told: Shared<Told>,
}

/// All that the signals brought.
#[derive(Default)]
struct Told(Mutex<Vec<Notice>>);

impl Told {
    fn notices(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.0.lock()
    }
}

impl Inbox for Told {
    fn notice(&self, notice: Notice) {
        self.notices().push(notice);
    }
}

/// What a half is told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Beacons,
    Wake(SessionId),
    Rest,
    Send(Message),
    Watch(u64, SessionId),
    Unwatch(u64),
    Tell,
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beacons => write!(out, "beacons"),
            Self::Wake(session) => write!(out, "wake {session}"),
            Self::Rest => write!(out, "rest"),
            Self::Send(message) => write!(out, "send {}", message.encode()),
            Self::Watch(watch, session) => write!(out, "watch {watch} {session}"),
            Self::Unwatch(watch) => write!(out, "unwatch {watch}"),
            Self::Tell => write!(out, "tell"),
        }
    }
}

impl Step {
    fn parse(line: &str) -> Option<Self> {
        let (verb, rest) = line.trim_end().split_once(' ').unwrap_or_else(|| (line.trim_end(), ""));
        Some(match verb {
            "beacons" => Self::Beacons,
            "wake" => Self::Wake(session(rest)?),
            "rest" => Self::Rest,
            "send" => Self::Send(Message::decode(rest)?),
            "watch" => {
                let (watch, watched) = rest.split_once(' ')?;
                Self::Watch(watch.parse().ok()?, session(watched)?)
            }
            "unwatch" => Self::Unwatch(rest.parse().ok()?),
            "tell" => Self::Tell,
            _ => return None,
        })
    }
}

fn session(text: &str) -> Option<SessionId> {
    u128::from_str_radix(text, 16).ok().map(SessionId)
}

/// A notice as a half tells it.
pub(super) fn text(notice: &Notice) -> String {
    match notice {
        Notice::Message(message) => format!("message {}", message.encode()),
        Notice::BeaconStands(session) => format!("stands {session}"),
        Notice::BeaconLost(session) => format!("lost {session}"),
        Notice::Reconnected => "reconnected".into(),
        Notice::BeaconGone { watch } => format!("gone {watch}"),
    }
}

impl<S: Signals> Half<S> {
    /// A context with these signals, at rest.
    pub fn new(signals: S) -> Self {
        Self { signals, told: Shared::default() }
    }

    /// Does what a line says, and answers with a line.
    ///
    /// # Panics
    /// If the line is none of the suite's.
    pub fn obey(&self, line: &str) -> String {
        let step = Step::parse(line).unwrap_or_else(|| panic!("no step of the suite reads {line:?}"));
        match step {
            Step::Beacons => {
                return String::from(if self.signals.beacons() == Beacons::None { "none" } else { "some" });
            }
            Step::Wake(session) => return format!("{}", self.wake(session)),
            Step::Tell => return self.tell(),
            Step::Rest => self.signals.rest(),
            Step::Send(message) => self.signals.send(&message),
            Step::Watch(watch, session) => self.signals.watch(watch, session),
            Step::Unwatch(watch) => self.signals.unwatch(watch),
        }
        String::from("done")
    }

    fn wake(&self, session: SessionId) -> bool {
        let inbox: Shared<dyn Inbox> = self.told.clone();
        self.signals.wake(session, true, Shared::downgrade(&inbox))
    }

    fn tell(&self) -> String {
        let mut told = String::new();
        for notice in self.told.notices().iter() {
            told.push_str(&text(notice));
            told.push(SEPARATOR);
        }
        told
    }
}

impl<S: Signals> Drop for Half<S> {
    fn drop(&mut self) {
        self.signals.rest();
    }
}

impl<S: Signals> fmt::Debug for Half<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Half({:?})", self.signals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Body, Key, StoreId};

    #[test]
    fn every_step_survives_its_line() {
        let holder = SessionId(u128::MAX - 7);
        let key = Key::new("a\tkey\nof two lines").unwrap();
        let message = Message { store: StoreId(9), key, body: Body::Gone { holder } };
        for step in [
            Step::Beacons,
            Step::Wake(holder),
            Step::Rest,
            Step::Send(message),
            Step::Watch(4, holder),
            Step::Unwatch(5),
            Step::Tell,
        ] {
            let line = format!("{step}");
            assert!(!line.contains([SEPARATOR, '\n']), "{line:?}");
            assert_eq!(Step::parse(&line), Some(step));
        }
        assert_eq!(Step::parse("jump"), None);
    }
}
