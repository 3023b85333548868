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

/// Names are drawn in order, so that a new one stands last. Most are answered in order, too: however many wait, the first
/// is at hand.
#[derive(Default)]
pub(crate) struct Questions(VecDeque<(TurnId, Question)>);

impl Questions {
    fn find(&self, turn: TurnId) -> Option<usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(&turn)).ok()
    }

    /// Puts in a question under a name that is larger than all before it.
    pub(crate) fn push(&mut self, turn: TurnId, question: Question) {
        debug_assert!(self.0.back().is_none_or(|(last, _)| *last < turn), "a name is drawn once, under the lock");
        // Usually there is only one; a queue would reserve room for four at once.
        if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(self.0.len() / 4 + 1);
        }
        self.0.push_back((turn, question));
    }

    pub(crate) fn get_mut(&mut self, turn: TurnId) -> Option<&mut Question> {
        let at = self.find(turn)?;
        Some(&mut self.0[at].1)
    }

    pub(crate) fn each(&mut self, change: impl Fn(&mut Question)) {
        self.0.iter_mut().for_each(|(_, question)| change(question));
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (TurnId, Question)> + use<> {
        core::mem::take(&mut self.0).into_iter()
    }

    pub(crate) fn remove(&mut self, turn: TurnId) -> Option<Question> {
        let at = self.find(turn)?;
        self.0.remove(at).map(|(_, question)| question)
    }
}
