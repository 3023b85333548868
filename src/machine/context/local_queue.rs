//! The local requests that wait at one slot.

use alloc::{collections::VecDeque, vec::Vec};

use super::{
    input::{Turn, TurnId},
    time::{Monotonic, earliest},
};

/// The turns: thieves first, then by priority, then in the order in which they came. Finding the first takes no search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Turns {
    queue: VecDeque<Turn>,
    /// How many turns do not wait.
    tries: usize,
    /// How many turns share within their context.
    sharers: usize,
    /// The time before which nothing is due for any turn.
    alarm: Option<Monotonic>,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn first(&self) -> Option<&Turn> {
        self.queue.front()
    }

    pub(super) fn ids(&self) -> Vec<TurnId> {
        let mut ids = Vec::with_capacity(self.queue.len());
        for turn in &self.queue {
            ids.push(turn.id);
        }
        ids
    }

    /// Whether any turn waits.
    pub(super) fn any_waits(&self) -> bool {
        self.queue.len() > self.tries
    }

    /// When something may be due for one of the turns.
    pub(super) fn alarm(&self) -> Option<Monotonic> {
        self.alarm.filter(|_| !self.queue.is_empty())
    }

    pub(super) fn push(&mut self, turn: Turn) {
        self.tries += usize::from(!turn.wait);
        self.sharers += usize::from(turn.share);
        self.alarm = earliest(&[self.alarm(), turn.deadline, turn.warn_at]);
        let mut at = self.queue.len();
        while at > 0 && turn.goes_before(&self.queue[at - 1]) {
            at -= 1;
        }
        // Usually there is only one turn; a queue would reserve room for four at once.
        if self.queue.len() == self.queue.capacity() {
            self.queue.reserve_exact(self.queue.len() / 4 + 1);
        }
        if at < self.queue.len() / 2 {
            self.queue.push_front(turn);
            self.carry(0, at);
        } else {
            self.queue.push_back(turn);
            self.carry(self.queue.len() - 1, at);
        }
    }

    /// Moves a turn to another position in the queue. The others keep their order.
    fn carry(&mut self, mut from: usize, to: usize) {
        while from != to {
            let next = if from < to { from + 1 } else { from - 1 };
            self.queue.swap(from, next);
            from = next;
        }
    }

    pub(super) fn pop(&mut self) -> Option<Turn> {
        self.take(0)
    }

    /// The position of the first turn that shares within its context. If there is only one, it is usually the latest, so the search begins
    /// there.
    pub(super) fn first_sharer(&self) -> Option<usize> {
        match self.sharers {
            0 => None,
            1 => self.queue.iter().rposition(|turn| turn.share),
            _ => self.queue.iter().position(|turn| turn.share),
        }
    }

    pub(super) fn at(&self, at: usize) -> Option<&Turn> {
        self.queue.get(at)
    }

    /// Takes the turn at this position, through the nearer end of the queue. The alarm does not change, so it may ring for no turn.
    pub(super) fn take(&mut self, at: usize) -> Option<Turn> {
        let last = self.queue.len().checked_sub(1)?;
        let taken = if at < last / 2 {
            self.carry(at, 0);
            self.queue.pop_front()
        } else {
            self.carry(at, last);
            self.queue.pop_back()
        };
        self.forget(taken.as_ref()?);
        taken
    }

    /// Stops counting a turn that has left the queue.
    fn forget(&mut self, turn: &Turn) {
        self.tries -= usize::from(!turn.wait);
        self.sharers -= usize::from(turn.share);
    }

    /// Takes the first turn if it steals.
    pub(super) fn pop_thief(&mut self) -> Option<TurnId> {
        self.first().filter(|turn| turn.steal)?;
        self.pop().map(|turn| turn.id)
    }

    /// Removes a turn. Returns whether it waited here.
    pub(super) fn remove(&mut self, turn: TurnId) -> bool {
        let Some(at) = (0..self.queue.len()).find(|at| self.queue[*at].id == turn) else { return false };
        self.take(at).is_some()
    }

    pub(super) fn take_all(&mut self) -> Vec<Turn> {
        self.take_if(&|_| true)
    }

    /// Takes the turns that do not wait.
    pub(super) fn take_tries(&mut self) -> Vec<Turn> {
        if self.tries == 0 { Vec::new() } else { self.take_if(&|turn| !turn.wait) }
    }

    /// Takes the turns without a time limit.
    pub(super) fn take_unlimited(&mut self) -> Vec<Turn> {
        self.take_if(&|turn| turn.deadline.is_none())
    }

    /// Takes the turns whose deadline has come.
    pub(super) fn take_late(&mut self, now: Monotonic) -> Vec<Turn> {
        self.take_if(&|turn| turn.deadline.is_some_and(|deadline| deadline <= now))
    }

    /// The turns that have waited for a long time by now. Each is returned only once.
    pub(super) fn take_warnings(&mut self, now: Monotonic) -> Vec<TurnId> {
        let mut warned = Vec::new();
        for turn in &mut self.queue {
            if turn.warn_at.take_if(|at| *at <= now).is_some() {
                warned.push(turn.id);
            }
        }
        self.set_alarm();
        warned
    }

    fn take_if(&mut self, is_it: &dyn Fn(&Turn) -> bool) -> Vec<Turn> {
        let mut taken = Vec::new();
        for _ in 0..self.queue.len() {
            let Some(turn) = self.queue.pop_front() else { break };
            if is_it(&turn) {
                self.forget(&turn);
                taken.push(turn);
            } else {
                self.queue.push_back(turn);
            }
        }
        self.set_alarm();
        taken
    }

    fn set_alarm(&mut self) {
        self.alarm = None;
        for turn in &self.queue {
            self.alarm = earliest(&[self.alarm, turn.deadline, turn.warn_at]);
        }
    }
}

impl Turn {
    fn goes_before(&self, queued: &Self) -> bool {
        (self.steal, self.priority) > (queued.steal, queued.priority)
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::Key;
    use super::{Turn, TurnId, Turns};

    /// Thousands of requests may wait, so room for as many again would be a waste.
    #[test]
    fn a_queue_has_little_more_room_than_it_needs() {
        let key = Key::new("k").unwrap();
        let mut turns = Turns::default();
        for id in 1..=2_000 {
            turns.push(Turn::new(TurnId(id), key.clone()));
            let (len, room) = (turns.queue.len(), turns.queue.capacity());
            assert!(room <= len + len / 4 + 1, "room for {room}, and {len} wait");
        }
    }
}
