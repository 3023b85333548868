//! The local requests that wait at one slot.

use alloc::{collections::VecDeque, vec::Vec};

use super::{
    port::{Turn, TurnId},
    time::Monotonic,
};

/// Thieves first, then by priority, then in the order in which they came. However many wait, the first is at hand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Turns {
    queue: VecDeque<Turn>,
    /// How many do not want to wait.
    tries: usize,
    /// Nothing is due before.
    alarm: Option<Monotonic>,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn first(&self) -> Option<&Turn> {
        self.queue.front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Turn> {
        self.queue.iter()
    }

    /// Whether somebody wants to wait.
    pub(super) fn any_waits(&self) -> bool {
        self.queue.len() > self.tries
    }

    /// When something may be due for one of them.
    pub(super) fn alarm(&self) -> Option<Monotonic> {
        self.alarm.filter(|_| !self.queue.is_empty())
    }

    pub(super) fn push(&mut self, turn: Turn) {
        self.tries += usize::from(!turn.wait);
        self.alarm = [self.alarm(), turn.deadline, turn.warn_at].into_iter().flatten().min();
        let before = |queued: &Turn| (queued.steal, queued.priority) >= (turn.steal, turn.priority);
        let at = self.queue.partition_point(before);
        self.queue.insert(at, turn);
    }

    pub(super) fn pop(&mut self) -> Option<Turn> {
        let turn = self.queue.pop_front()?;
        self.tries -= usize::from(!turn.wait);
        Some(turn)
    }

    pub(super) fn remove(&mut self, turn: TurnId) {
        let at = self.queue.iter().position(|queued| queued.id == turn);
        // Its alarm may ring for nobody.
        let removed = at.and_then(|at| self.queue.remove(at));
        self.tries -= usize::from(removed.is_some_and(|turn| !turn.wait));
    }

    pub(super) fn take_all(&mut self) -> Vec<Turn> {
        core::mem::take(self).queue.into()
    }

    /// Takes those who do not want to wait.
    pub(super) fn take_tries(&mut self) -> Vec<Turn> {
        if self.tries == 0 { Vec::new() } else { self.take_if(|turn| !turn.wait) }
    }

    /// Takes those whose deadline has come.
    pub(super) fn take_late(&mut self, now: Monotonic) -> Vec<Turn> {
        self.take_if(|turn| turn.deadline.is_some_and(|deadline| deadline <= now))
    }

    /// Those who have waited for long by now; each is named once.
    pub(super) fn take_warnings(&mut self, now: Monotonic) -> Vec<TurnId> {
        let long = self.queue.iter_mut().filter(|turn| turn.warn_at.is_some_and(|at| at <= now));
        let warned = long.map(|turn| {
            turn.warn_at = None;
            turn.id
        });
        let warned = warned.collect();
        self.set_alarm();
        warned
    }

    fn take_if(&mut self, is_it: impl Fn(&Turn) -> bool) -> Vec<Turn> {
        let mut taken = Vec::new();
        for turn in core::mem::take(&mut self.queue) {
            if is_it(&turn) {
                taken.push(turn);
            } else {
                self.queue.push_back(turn);
            }
        }
        self.tries = self.queue.iter().filter(|turn| !turn.wait).count();
        self.set_alarm();
        taken
    }

    fn set_alarm(&mut self) {
        self.alarm = self.queue.iter().flat_map(|turn| [turn.deadline, turn.warn_at]).flatten().min();
    }
}
