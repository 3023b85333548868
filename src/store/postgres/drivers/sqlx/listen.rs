//! Connections for signals, beside the application's pool: the pool may be small, and cannot lend a connection that listens.

use core::{pin::pin, time::Duration};
use std::boxed::Box;

use async_trait::async_trait;
use futures::future::{Either, select};
use sqlx::{
    Error, PgPool,
    postgres::{PgConnectOptions, PgListener, PgNotification, PgPoolOptions},
};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

use super::{
    super::super::carrier::{Answers, Exchange, Failure, Gathering, Hear, Line, Round},
    refused,
};
use crate::executor::Shared;
use crate::machine::StoreError;

/// After this long without traffic, the connection checks that the server is there: sqlx has no keep-alive. The connection is over if the
/// answer to any question takes as long.
const QUIET: Duration = Duration::from_secs(5);

pub(super) struct Listening {
    pub(super) pool: PgPool,
    pub(super) runtime: Handle,
}

/// What the task of a connection is asked to carry.
type Request = (Round, oneshot::Sender<Result<Answers, Failure>>);

/// A connection that a task of its own reads from.
struct Connected {
    requests: mpsc::UnboundedSender<Request>,
    task: JoinHandle<()>,
}

#[async_trait]
impl Exchange for Listening {
    async fn open(&self, hear: Hear) -> Result<Shared<dyn Line>, StoreError> {
        // A listener takes its connection from a pool. This one is its own, and ends with it.
        let options = PgConnectOptions::clone(&self.pool.connect_options());
        let alone = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let alone = alone.connect_lazy_with(options);
        let mut listener = PgListener::connect_with(&alone).await.map_err(|error| refused(&error, &alone))?;
        // Advisory locks end with the connection, so its end must be noticed.
        listener.eager_reconnect(false);
        let (requests, asked) = mpsc::unbounded_channel();
        let task = self.runtime.spawn(serve(listener, asked, hear));
        Ok(Shared::new(Connected { requests, task }))
    }
}

#[async_trait]
impl Line for Connected {
    async fn carry(&self, round: Round) -> Result<Answers, Failure> {
        let over = || Gathering::default().failed(None, "the connection for signals has ended".into());
        let (answer, answered) = oneshot::channel();
        self.requests.send((round, answer)).map_err(|_| over())?;
        answered.await.unwrap_or_else(|_| Err(over()))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.task.abort();
    }
}

enum Event {
    Heard(Result<Option<PgNotification>, Error>),
    Asked(Option<Request>),
}

/// Runs until the connection ends, or nobody can use it any more.
async fn serve(mut listener: PgListener, mut asked: mpsc::UnboundedReceiver<Request>, mut hear: Hear) {
    loop {
        // A notification that is half read is read on later.
        let event = match timeout(QUIET, select(pin!(listener.try_recv()), pin!(asked.recv()))).await {
            Ok(Either::Left((heard, _))) => Some(Event::Heard(heard)),
            Ok(Either::Right((request, _))) => Some(Event::Asked(request)),
            Err(_) => None,
        };
        match event {
            Some(Event::Heard(Ok(Some(heard)))) => hear(Some(heard.payload().into())),
            Some(Event::Asked(Some((round, answer)))) => {
                let Ok(answers) = timeout(QUIET, super::carry(&mut listener, &round)).await else { break };
                // Whoever asked may have gone.
                let _ = answer.send(answers);
            }
            None if answers(&mut listener).await => {}
            _ => break,
        }
    }
    hear(None);
}

async fn answers(listener: &mut PgListener) -> bool {
    matches!(timeout(QUIET, super::carry(listener, &Round::one("SELECT"))).await, Ok(Ok(_)))
}
