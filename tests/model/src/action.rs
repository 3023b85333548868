//! What can happen.

use std::fmt;

use crate::port::Want;

/// One step of the world. Contexts, transactions and signals go by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A user of a context asks for a lease.
    Ask(usize, Want),
    /// A user of a context does something with its turn.
    Do(usize, u64, Deed),
    /// A user of a context takes over a lease that was left.
    TakeOver(usize, usize),
    /// The store applies a transaction.
    Apply(usize),
    /// Its answer arrives.
    Answer(usize),
    /// The store refuses a transaction.
    Refuse(usize),
    /// A transaction fails, and may be applied all the same, or was.
    Doubt(usize),
    /// A transaction vanishes, or its answer does.
    Lose(usize),
    /// A fenced write commits, or is refused.
    Commit(usize),
    /// A signal arrives.
    Signal(usize),
    /// A signal arrives, and will do so again.
    SignalTwice(usize),
    /// A context's beacon stands.
    BeaconStands(usize),
    /// A context sees that a watched beacon is gone.
    BeaconGone(usize, u64),
    /// A context is woken, as it wished.
    Wake(usize),
    /// Time passes to the next timer.
    Tick,
    /// Much time passes, and nobody runs.
    Leap,
    /// A context is told that it may be stopped.
    Suspend(usize),
    /// A context is told that it ends.
    End(usize),
    /// It goes on.
    GoOn(usize),
    /// A context's user closes it.
    Close(usize),
    /// A context vanishes.
    Crash(usize),
    /// The platform drops a context's beacon, and says so.
    BeaconFalls(usize),
    /// Everything in the store is deleted.
    Wipe,
    /// A context's monotonic clock stops.
    Sleep(usize),
    /// It goes on.
    Resume(usize),
    /// A context's wall clock is set ahead.
    JumpAhead(usize),
    /// A context's wall clock is set back.
    JumpBack(usize),
}

/// What a user does with a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deed {
    /// It gives up waiting.
    Cancel,
    /// It gives the guard back.
    Release,
    /// It asks whether the guard still holds.
    Verify,
    /// It wants to be sure of the guard for longer than a lease.
    Extend,
    /// It sends a fenced write.
    Write,
    /// It wants to hold exclusively what it shares.
    Upgrade,
    /// It no longer does.
    StayShared,
    /// It lets others share what it holds exclusively.
    Downgrade,
    /// It leaves its lease for another guard.
    Detach,
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ask(who, want) => write!(out, "{} asks: {want:?}", Name(who)),
            Self::Do(who, turn, deed) => write!(out, "{} {deed:?} of turn {turn}", Name(who)),
            Self::TakeOver(who, _) => write!(out, "{} takes over what was left", Name(who)),
            Self::BeaconStands(who) => write!(out, "{}'s beacon stands", Name(who)),
            Self::BeaconGone(who, watch) => write!(out, "{} sees a beacon gone (watch {watch})", Name(who)),
            Self::Suspend(who) => write!(out, "{} is suspended", Name(who)),
            Self::End(who) => write!(out, "{} is told that it ends", Name(who)),
            Self::GoOn(who) => write!(out, "{} goes on in a new session", Name(who)),
            Self::Close(who) => write!(out, "{} is closed", Name(who)),
            Self::Wake(who) => write!(out, "{} is woken", Name(who)),
            Self::Crash(who) => write!(out, "{} vanishes", Name(who)),
            Self::BeaconFalls(who) => write!(out, "{}'s beacon falls", Name(who)),
            Self::Sleep(who) => write!(out, "{} falls asleep", Name(who)),
            Self::Resume(who) => write!(out, "{} goes on", Name(who)),
            Self::JumpAhead(who) => write!(out, "{}'s wall clock jumps ahead", Name(who)),
            Self::JumpBack(who) => write!(out, "{}'s wall clock jumps back", Name(who)),
            _ => write!(out, "{self:?}"),
        }
    }
}

/// A context's name: A, B, C.
pub(crate) struct Name(pub(crate) usize);

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = u8::try_from(self.0).map_or('?', |who| char::from(b'A' + who));
        write!(out, "{letter}")
    }
}
