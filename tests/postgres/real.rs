//! Histories of processes that share a server.

use std::{thread, time::Duration};

use leasehold::{LeaseGuard, LeaseManager, executor::TokioExecutor};
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

use crate::{
    histories::{Desk, Dice, Site, Written, histories, play},
    other::Other,
    server::{Place, Server},
    ways::{SPOILS, Ways},
};

struct Rows(Place);

impl Rows {
    async fn try_write(&self, guard: &LeaseGuard, key: usize) -> Option<()> {
        let (mut user, connection) = tokio_postgres::connect(&self.0.url, NoTls).await.ok()?;
        tokio::spawn(connection);
        let mut transaction = user.transaction().await.ok()?;
        drop(guard.fence(&mut transaction).await.ok()?);
        let write = format!("INSERT INTO writes (key, token) VALUES ({key}, {})", guard.token().as_u64());
        transaction.batch_execute(&write).await.ok()?;
        transaction.commit().await.ok()
    }
}

impl Desk for Rows {
    async fn write(&self, guard: &LeaseGuard, key: usize) -> Written {
        if self.try_write(guard, key).await.is_some() { Written::Yes } else { Written::No }
    }
}

/// Runs this process's part in a history, if it has one.
pub(crate) fn take_part(role: &str, url: &str, prefix: &str) -> bool {
    let place = Place { url: url.into(), prefix: prefix.into() };
    play(role, async || {
        loop {
            // The server may be down.
            if let Ok(store) = place.builder().connect().await {
                return (LeaseManager::builder(store, TokioExecutor::new()), Rows(place.clone()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

struct Postgres {
    server: Server,
    place: Place,
    ways: Ways,
}

impl Site for Postgres {
    const SPOILS: &'static [&'static str] = SPOILS;

    fn start(&self, slot: usize, role: &str) -> Other {
        Other::start(role, &self.place.behind(self.ways.of(slot).port))
    }

    fn spoil(&mut self, slot: usize, what: &'static str, dice: &mut Dice) {
        let Self { server, ways, .. } = self;
        let away = Duration::from_millis(dice.below(1_000));
        ways.spoil(slot, what, dice, || {
            server.crash();
            thread::sleep(away);
            server.restart();
        });
    }

    fn heal(&mut self) {
        self.ways.heal();
    }

    /// A fence keeps a lock on the record until its commit, so that writes by two grants of a key never overlap.
    fn writes(&mut self) -> Vec<(usize, u64)> {
        Runtime::new().unwrap().block_on(async {
            let rows = self.place.client().await.query("SELECT key, token FROM writes ORDER BY at", &[]).await.unwrap();
            let number = |row: &tokio_postgres::Row, column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap();
            rows.iter().map(|row| (usize::try_from(number(row, 0)).unwrap(), number(row, 1))).collect()
        })
    }
}

#[test]
fn histories_of_processes_and_servers_that_are_killed_break_no_promise() {
    let Some(server) = Server::start() else { return };
    let place = Place { url: server.url(), prefix: "leasehold".into() };
    Runtime::new().unwrap().block_on(async {
        drop(place.store().await);
        let table = "CREATE TABLE writes (at bigserial, key bigint, token bigint)";
        place.client().await.batch_execute(table).await.unwrap();
    });
    let ways = Ways::new(|| place.proxy());
    histories(Postgres { server, place, ways });
}
