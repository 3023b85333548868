//! The requests and questions that are still open, by id, and the future of a request's answer.

use alloc::collections::VecDeque;
use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::registry::{Question, Response};
use crate::client::fate::Fate;
use crate::executor::Shared;
use crate::machine::TurnId;
use crate::oneshot::Receiver;

/// The answer to a request. If the lease was granted at once, no channel is made for it.
pub(crate) enum Answer {
    /// `None` once it has been taken.
    Granted(Option<Shared<Fate>>),
    Coming(Receiver<Response>),
}

impl Answer {
    /// Whether it is there, to be taken by the next poll.
    pub(crate) fn poll_there(&self, context: &Context<'_>) -> Poll<()> {
        match self {
            Self::Granted(_) => Poll::Ready(()),
            Self::Coming(receiver) => receiver.poll_there(context),
        }
    }
}

impl Future for Answer {
    type Output = Option<Response>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Response>> {
        match self.get_mut() {
            Self::Granted(fate) => Poll::Ready(fate.take().map(Response::Granted)),
            Self::Coming(receiver) => Pin::new(receiver).poll(context),
        }
    }
}

/// Ids are drawn in order, so a new question comes last. Most are answered in order, too, so the answered one is usually the first. A
/// question that ends before older ones leaves its place empty, because closing the gap would move all those behind it.
#[derive(Default)]
pub(crate) struct Questions {
    places: VecDeque<(TurnId, Option<Question>)>,
    open: usize,
}

impl Questions {
    fn find(&self, turn: TurnId) -> Option<usize> {
        self.places.binary_search_by(|(known, _)| known.cmp(&turn)).ok()
    }

    /// Adds a question under an id that is larger than all before it.
    pub(crate) fn push(&mut self, turn: TurnId, question: Question) {
        debug_assert!(self.places.back().is_none_or(|(last, _)| *last < turn), "a name is drawn once, under the lock");
        // Usually there is only one; a queue would reserve room for four at once.
        if self.places.len() == self.places.capacity() {
            self.places.reserve_exact(self.places.len() / 4 + 1);
        }
        self.places.push_back((turn, Some(question)));
        self.open += 1;
    }

    pub(crate) fn get_mut(&mut self, turn: TurnId) -> Option<&mut Question> {
        let at = self.find(turn)?;
        self.places[at].1.as_mut()
    }

    pub(crate) fn each(&mut self, change: impl Fn(&mut Question)) {
        self.places.iter_mut().filter_map(|(_, question)| question.as_mut()).for_each(change);
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (TurnId, Question)> + use<> {
        core::mem::take(self).places.into_iter().filter_map(|(turn, question)| Some((turn, question?)))
    }

    pub(crate) fn remove(&mut self, turn: TurnId) -> Option<Question> {
        let at = self.find(turn)?;
        let question = self.places[at].1.take()?;
        self.open -= 1;
        while self.places.front().is_some_and(|(_, question)| question.is_none()) {
            self.places.pop_front();
        }
        // This is rare enough: on average, fewer than two places are visited for each removal.
        if self.places.len() > 2 * self.open + 16 {
            self.places.retain(|(_, question)| question.is_some());
        }
        Some(question)
    }
}
