//! Brings requests and questions to the machine, and gives up those that nobody waits for any more.

use alloc::{borrow::ToOwned, string::String, vec::Vec};
use core::mem;
use std::sync::MutexGuard;

use super::unheard::Unheard;
use super::{Answer, Core, Driver, Origin, Response, is_panicking};
use crate::client::error::AcquireError;
use crate::client::fate::Fate;
use crate::machine::{Input, InvalidKey, Key, Turn, TurnId, whole_ms};
use crate::oneshot::Receiver;

impl Driver {
    /// Checks the name of a key. If the last request named the same key, that one is cloned and the text is not copied.
    pub(crate) fn key(&self, name: &str) -> Result<Key, InvalidKey> {
        let mut last = self.last_key.lock();
        match &*last {
            Some(key) if key.as_str() == name => Ok(key.clone()),
            _ => Ok(last.insert(Key::new(name)?).clone()),
        }
    }

    /// The error for a key that is taken, if the request does not wait.
    pub(crate) fn taken(&self, key: &Key, name: Option<String>) -> AcquireError {
        let key_shown = name.unwrap_or_else(|| key.as_str().to_owned());
        AcquireError::taken(key_shown, self.holds(key))
    }

    /// Whether a guard of this context holds the key.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.core().machine.is_used(key)
    }

    /// Requests a lease. Dropping the receiver does not withdraw the request: see [`abandon`](Self::abandon).
    pub(crate) fn request(&self, mut turn: Turn, input: impl FnOnce(Turn) -> Input) -> (TurnId, Answer) {
        let origin = Origin::here();
        let mut core = self.core();
        // Read only once: in some browsers, reading the clock costs more than everything else here.
        let now = self.executor.now();
        turn.id = core.registry.next_turn();
        turn.warn_at = turn.wait.then(|| now.monotonic.plus(whole_ms(self.long_wait)));
        let (id, slot) = (turn.id, turn.slot());
        let joins_queue = turn.deadline.is_some() && core.machine.is_queued(&slot);
        core.registry.expect(id, Some(slot), now.monotonic, origin);
        if joins_queue {
            core.registry.joins_queue(id);
        }
        let unheard = Unheard::new(self, id, 1);
        // Declared last: a panic must unlock the core before the destructor of `unheard` locks it.
        let mut core = core;
        self.digest(&mut core, input(turn), now);
        let answer = core.registry.heard(id);
        self.pump(core);
        mem::forget(unheard);
        (id, answer)
    }

    /// Requests several leases at once.
    pub(crate) fn request_all(&self, mut turns: Vec<Turn>) -> Vec<(TurnId, Answer)> {
        let (now, origin) = (self.executor.now().monotonic, Origin::here());
        let mut core = self.core();
        let mut answers = Vec::with_capacity(turns.len());
        for turn in &mut turns {
            turn.id = core.registry.next_turn();
            core.registry.expect(turn.id, Some(turn.slot()), now, origin.clone());
            answers.push((turn.id, Answer::Coming(core.registry.receiver(turn.id))));
        }
        let first = turns.first().map_or(TurnId(0), |turn| turn.id);
        let unheard = Unheard::new(self, first, turns.len());
        self.step(core, Input::AcquireAll(turns));
        mem::forget(unheard);
        answers
    }

    /// Asks the machine a question under a new id.
    pub(crate) fn ask(&self, input: impl FnOnce(TurnId) -> Input) -> (TurnId, Receiver<Response>) {
        let mut core = self.core();
        let (turn, answer) = core.registry.open();
        self.step(core, input(turn));
        (turn, answer)
    }

    /// Reads the states of several keys at one moment.
    pub(crate) fn look_at(&self, keys: Vec<Key>) -> Vec<Receiver<Response>> {
        let mut core = self.core();
        let mut answers = Vec::with_capacity(keys.len());
        let mut looks = Vec::with_capacity(keys.len());
        for key in keys {
            let (query, answer) = core.registry.open();
            answers.push(answer);
            looks.push((query, key));
        }
        self.step(core, Input::InspectAll(looks));
        answers
    }

    /// Abandons a request whose caller has gone: cancels it, or releases its lease if it was granted meanwhile.
    pub(crate) fn abandon(&self, turn: TurnId) {
        let now = self.executor.now().monotonic;
        let mut core = self.core();
        let slot = core.registry.slot_of(turn);
        let question = core.registry.forget(turn, now);
        match slot {
            Some(slot) => self.give_up(core, Input::Cancel { turn, slot }),
            // The request was refused.
            None => drop(core),
        }
        drop(question);
    }

    /// Begins the release of a guard that is dropped, possibly because its thread panics.
    pub(crate) fn begin_release(&self, release: Input) {
        self.give_up(self.core(), release);
    }

    /// Handles an input. A panicking thread leaves the outputs to others, because a second panic would end the process.
    fn give_up<'a>(&'a self, mut core: MutexGuard<'a, Core>, input: Input) {
        self.digest(&mut core, input, self.executor.now());
        if is_panicking() { self.leave(core) } else { self.pump(core) }
    }

    /// Abandons an upgrade whose caller has gone: cancels it, or downgrades the lease if it was granted meanwhile.
    pub(crate) fn abandon_upgrade(&self, query: TurnId, fate: &Fate) {
        let now = self.executor.now().monotonic;
        let mut core = self.core();
        let question = core.registry.forget(query, now);
        let (turn, slot) = (fate.turn, fate.slot.clone());
        let was_granted_unheard = fate.forget_upgrade(query);
        if question.is_some() {
            self.give_up(core, Input::CancelUpgrade { query, slot });
        } else if was_granted_unheard {
            let (query, unheard) = core.registry.open();
            self.give_up(core, Input::Downgrade { query, turn, slot });
            drop(unheard);
        }
        drop(question);
    }
}
