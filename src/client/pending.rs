//! A request that has no answer yet.

use alloc::{borrow::ToOwned, string::String};
use core::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use crate::client::error::AcquireError;
use crate::client::guard::LeaseGuard;
use crate::driver::{Answer, Driver, Response};
use crate::executor::Shared;
use crate::machine::{Input, Turn, TurnId};

/// A request under way. If this is dropped before it is settled, the request is abandoned.
pub(crate) struct Pending {
    pub(super) driver: Shared<Driver>,
    pub(crate) turn: TurnId,
    answer: Answer,
    /// How often it was polled: an answer that is there at the first poll cannot be out of date.
    pub(super) polls: u32,
    pub(super) settled: bool,
}

impl Pending {
    pub(crate) fn start(driver: Shared<Driver>, turn: Turn, input: impl FnOnce(Turn) -> Input) -> Self {
        let asked = driver.request(turn, input);
        Self::new(driver, asked)
    }

    pub(crate) fn new(driver: Shared<Driver>, (turn, answer): (TurnId, Answer)) -> Self {
        Self { driver, turn, answer, polls: 0, settled: false }
    }

    /// Turns the answer into a guard, or into an error that names the key as the user knows it. Until this is called, a drop abandons the
    /// request.
    pub(crate) fn guard(
        &mut self,
        response: Option<Response>,
        key: &str,
        name: Option<String>,
    ) -> Result<Option<LeaseGuard>, AcquireError> {
        self.settled = true;
        match response {
            Some(Response::Granted(fate)) => Ok(Some(LeaseGuard::new(self.driver.clone(), fate, name))),
            Some(Response::Busy) => Ok(None),
            Some(Response::Failed(refusal)) => Err(AcquireError::refused(refusal, name.as_deref().unwrap_or(key))),
            Some(Response::TimedOut { waited, held_here, held_elsewhere }) => {
                let key = name.unwrap_or_else(|| key.to_owned());
                Err(AcquireError::timeout(key, waited, held_here, held_elsewhere))
            }
            // The machine answers every request; a dropped sender means that the manager is gone.
            _ => Err(AcquireError::Closed),
        }
    }
}

impl Future for Pending {
    type Output = Option<Response>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls = self.polls.saturating_add(1);
        // A poll that finds no answer does not count as work. Otherwise a task with many requests would never look at the last ones.
        ready!(self.answer.poll_there(context));
        // The request has its place in the queue by now, so a pause changes no order.
        ready!(self.driver.poll_proceed(context));
        Pin::new(&mut self.answer).poll(context)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.settled {
            self.driver.abandon(self.turn);
        }
    }
}
