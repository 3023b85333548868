//! A few connections that the transactions of one store take turns on.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    vec::Vec,
};

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_postgres::Client;

use super::{
    super::super::{
        carrier::{Answers, Carrier, Failure, Lender, Loan, Round},
        often::Prepared,
    },
    carry,
    dial::Dial,
};
use crate::executor::Mutex;
use crate::machine::StoreError;

pub(super) struct Pool {
    dial: Dial,
    idle: Mutex<Vec<Connection>>,
    /// Handles that were not closed.
    handles: AtomicUsize,
}

struct Connection {
    client: Client,
    prepared: Prepared,
}

/// One of its connections.
struct Taken<'a> {
    pool: &'a Pool,
    connection: Connection,
}

impl Pool {
    pub(super) fn new(dial: Dial, first: Client) -> Self {
        let idle = Mutex::new(Vec::from([Connection { client: first, prepared: Prepared::default() }]));
        Self { dial, idle, handles: AtomicUsize::new(1) }
    }
}

#[async_trait]
impl Lender for Pool {
    async fn lend(&self) -> Result<(Box<dyn Loan + '_>, bool), StoreError> {
        let standing = {
            let mut idle = self.idle.lock();
            idle.retain(|connection| !connection.client.is_closed());
            idle.pop()
        };
        let used = standing.is_some();
        let connection = match standing {
            Some(connection) => connection,
            None => Connection { client: self.dial.dial(|_| ()).await?, prepared: Prepared::default() },
        };
        Ok((Box::new(Taken { pool: self, connection }), used))
    }

    fn name(&self) -> &'static str {
        "the PostgresStore"
    }

    fn opens_what_it_is_asked_for(&self) -> bool {
        true
    }

    fn most(&self) -> usize {
        usize::MAX
    }

    fn remedy(&self) -> &'static str {
        "either the server does not answer, or transactions that wait for fenced ones occupy all connections: check that the server \
         answers and accepts new connections, and keep fenced transactions short"
    }

    fn forget_idle(&self) {
        self.idle.lock().clear();
    }

    fn forget_server(&self, began: Instant) {
        if self.dial.pass_over(began) {
            self.forget_idle();
        }
    }

    fn share(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self) {
        if self.handles.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.idle.lock().clear();
        }
    }
}

#[async_trait]
impl Carrier for Taken<'_> {
    async fn carry(&mut self, round: &Round) -> Result<Answers, Failure> {
        carry(&self.connection.client, round).await
    }
}

impl Loan for Taken<'_> {
    fn prepared(&mut self) -> Option<&mut Prepared> {
        Some(&mut self.connection.prepared)
    }

    fn give_back(self: Box<Self>) {
        // Read under the lock, because the last handle decrements the count before it closes the idle connections.
        let mut idle = self.pool.idle.lock();
        if !self.connection.client.is_closed() && self.pool.handles.load(Ordering::Relaxed) > 0 {
            idle.push(self.connection);
        }
    }
}
