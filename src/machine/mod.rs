//! The rules of leases, as pure code: which request is granted, queued or refused, and when a context renews, doubts or gives up.
//!
//! A program that takes leases needs only the few types of this module that the rest of the API names, such as [`Key`], [`Mode`] and
//! [`SessionId`]. Authors of stores and signals need more of it, such as [`Batch`], [`Records`] and [`Message`]; so do model checkers and
//! simulators. It decides everything and does nothing: it calls no store, sets no timer and sends no message.
//!
//! The code has two halves. `record` is *what a store does*: [`Batch::apply`] is the only code that grants, queues, promotes, ends or
//! refuses. `context` is *what a context does*: the [`Machine`] never waits, never reads a clock and does not know the platform. Both
//! halves are plain data, so a model checker and a simulator run the shipped code, not a copy.

mod config;
mod context;
mod failure;
mod id;
mod input;
mod key;
mod message;
mod mode;
mod output;
mod record;
mod sorted;
mod time;
mod token;

pub(crate) use config::check_info;
pub use config::{
    Config, InvalidOptions, LEAST_HEARTBEAT_MS, LEAST_LEASE_MS, LONGEST_LEASE_MS, LONGEST_SILENCE_MS, MOST_KEYS,
    Options,
};
pub use context::{FenceRefusal, Machine, Ticket};
pub use failure::{Applied, StoreError, StoreErrorKind};
pub use id::{RequestId, SessionId, StoreId};
pub use input::{Input, Parcel, Slot, Turn, TurnId};
pub(crate) use key::Quoted;
pub use key::{InvalidKey, KEY_LIMIT, Key, LOCK_PREFIX};
pub use message::{Body, Message};
pub use mode::Mode;
pub use output::{Command, Event, LostReason, Output, Refusal, ReleaseOutcome};
pub use record::{
    Acquire, Action, Answer, Batch, Beat, Ending, Entry, FORMAT, Grant, Granted, Operation, Outcome, Peer, Promotion,
    Record, Records, Reply, Row, Session, SessionStep, Sighting, Stolen, StoreClock, StoreNow, Unreadable, Waiter, Way,
};
pub(crate) use sorted::SortedMap;
pub(crate) use time::whole_ms;
pub use time::{Monotonic, Now, Wall};
pub use token::{BLOCK, Token, TokenBlock};
