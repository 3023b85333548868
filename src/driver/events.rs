//! The listeners for events. Each has a mailbox, which is filled under the manager's lock and read outside of it.

use alloc::{collections::VecDeque, vec::Vec};
use core::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use std::sync::MutexGuard;

use futures::Stream;

use super::event::LeaseEvent;
use crate::executor::{DROPS_TASKS, Mutex, Shared, WeakShared};

/// How many unread events are kept for each listener.
const UNREAD_LIMIT: usize = 4096;

/// A stream of what happens to the leases of a manager, in order: made by [`LeaseManager::events`](crate::LeaseManager::events).
///
/// It ends when the manager has closed, or was dropped together with its guards; it keeps neither alive. A slow reader delays nobody:
/// beyond 4096 unread events, the oldest are dropped and [counted](Self::missed).
#[derive(Debug)]
#[must_use = "events are lost unless they are read"]
pub struct LeaseEvents {
    mailbox: Shared<Mailbox>,
}

impl LeaseEvents {
    /// Waits for the next event; `None` after the end. As a `Stream` it yields the same events.
    ///
    /// # Cancel safety
    /// Cancel safe: an event that was not returned yet is returned by the next call.
    pub async fn next(&mut self) -> Option<LeaseEvent> {
        poll_fn(|context| self.mailbox.poll(context.waker())).await
    }

    /// How many events were dropped because they were not read.
    pub fn missed(&self) -> u64 {
        self.mailbox.letters().missed
    }
}

impl Stream for LeaseEvents {
    type Item = LeaseEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<LeaseEvent>> {
        self.mailbox.poll(context.waker())
    }
}

impl Drop for LeaseEvents {
    fn drop(&mut self) {
        // Dropped here and not with the mailbox, which may be dropped under the manager's lock: a waker may own something that takes that
        // lock.
        let waker = self.mailbox.letters().waker.take();
        drop(waker);
    }
}

#[derive(Debug, Default)]
struct Mailbox(Mutex<Letters>);

#[derive(Debug, Default)]
struct Letters {
    unread: VecDeque<LeaseEvent>,
    missed: u64,
    ended: bool,
    waker: Option<Waker>,
}

impl Mailbox {
    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.0.lock()
    }

    fn poll(&self, waker: &Waker) -> Poll<Option<LeaseEvent>> {
        let waker = waker.clone();
        let mut letters = self.letters();
        if let Some(event) = letters.unread.pop_front() {
            return Poll::Ready(Some(event));
        }
        if letters.ended {
            return Poll::Ready(None);
        }
        let before = letters.waker.replace(waker);
        drop(letters);
        drop(before);
        Poll::Pending
    }
}

impl Letters {
    fn put(&mut self, event: LeaseEvent) {
        if self.unread.len() == UNREAD_LIMIT {
            self.unread.pop_front();
            self.missed += 1;
        }
        self.unread.push_back(event);
    }
}

/// All listeners. It keeps none of them alive: those that were dropped are forgotten at the next event, or when others join.
#[derive(Default)]
pub(crate) struct Audience(Vec<WeakShared<Mailbox>>);

impl Audience {
    pub(crate) fn join(&mut self, ended: bool) -> LeaseEvents {
        let mailbox = Shared::new(Mailbox::default());
        mailbox.letters().ended = ended;
        if !ended {
            self.make_room();
            self.0.push(Shared::downgrade(&mailbox));
        }
        LeaseEvents { mailbox }
    }

    /// Forgets dropped listeners before the list would grow. Then there is room for as many again, so on average a join looks at few of
    /// them. The constant keeps this out of the npm package, whose listeners live as long as their manager.
    fn make_room(&mut self) {
        if DROPS_TASKS && self.0.len() == self.0.capacity() && self.is_there() {
            self.0.reserve(self.0.len() + 1);
        }
    }

    pub(crate) fn is_there(&mut self) -> bool {
        self.0.retain(|mailbox| mailbox.strong_count() > 0);
        !self.0.is_empty()
    }

    /// Puts the event in all mailboxes, and returns the wakers: the caller wakes them after it has released the lock.
    pub(crate) fn tell(&self, event: &LeaseEvent) -> Vec<Waker> {
        self.wake(&|letters| letters.put(event.clone()))
    }

    /// Ends all streams, and returns the wakers of those who wait for an event.
    pub(crate) fn end(&mut self) -> Vec<Waker> {
        let wakers = self.wake(&|letters| letters.ended = true);
        self.0.clear();
        wakers
    }

    /// Changes every mailbox, and takes the wakers of those who wait.
    fn wake(&self, change: &dyn Fn(&mut Letters)) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for mailbox in &self.0 {
            let Some(mailbox) = mailbox.upgrade() else { continue };
            let mut letters = mailbox.letters();
            change(&mut letters);
            if let Some(waker) = letters.waker.take() {
                wakers.push(waker);
            }
        }
        wakers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_there_before_the_first_listener_and_after_the_last() {
        let mut audience = Audience::default();
        assert!(!audience.is_there());
        let (one, two) = (audience.join(false), audience.join(false));
        drop(one);
        assert!(audience.is_there());
        drop(two);
        assert!(!audience.is_there());
        let ended = audience.join(true);
        assert!(!audience.is_there(), "{ended:?}");
    }

    /// As when each request of a server listens for a moment, while no event comes.
    #[test]
    fn listeners_that_went_are_forgotten_when_others_join() {
        let mut audience = Audience::default();
        let stays: Vec<_> = (0..10).map(|_| audience.join(false)).collect();
        for _ in 0..10_000 {
            drop(audience.join(false));
        }
        assert!(audience.0.len() <= 4 * stays.len(), "{} are kept", audience.0.len());
        audience.is_there();
        assert_eq!(audience.0.len(), stays.len());
    }
}
