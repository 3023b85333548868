//! Histories of processes that share a file.

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use leasehold::LeaseGuard;
use rusqlite::TransactionBehavior;

use crate::{
    Other, Scratch, connect,
    histories::{Desk, Dice, Site, Written, histories, play},
    manager,
};

struct Rows(PathBuf);

impl Desk for Rows {
    async fn write(&self, guard: &LeaseGuard, key: usize) -> Written {
        let mut database = connect(&self.0);
        let Ok(transaction) = database.transaction_with_behavior(TransactionBehavior::Immediate) else {
            return Written::No;
        };
        let token = i64::try_from(guard.token().as_u64()).unwrap();
        if guard.fence(&transaction).await.is_err() {
            return Written::No;
        }
        let key = i64::try_from(key).unwrap();
        transaction.execute("INSERT INTO writes VALUES (?1, ?2)", [key, token]).unwrap();
        if transaction.commit().is_ok() { Written::Yes } else { Written::No }
    }
}

/// Runs this process's part in a history, if it has one.
pub(crate) fn take_part(role: &str, directory: &Path) -> bool {
    play(role, async || (manager(directory), Rows(directory.into())))
}

struct File(Scratch);

impl Site for File {
    const SPOILS: &'static [&'static str] = &["the file was locked"];

    fn start(&self, _slot: usize, role: &str) -> Other {
        Other::start(role, &self.0)
    }

    /// Another program locks the file, sometimes for longer than a lease. Meanwhile nobody can renew or take over.
    fn spoil(&mut self, _slot: usize, _what: &'static str, dice: &mut Dice) {
        let mut database = connect(&self.0.0);
        let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        thread::sleep(Duration::from_millis(300 + dice.below(1_500)));
        transaction.rollback().unwrap();
    }

    fn heal(&mut self) {}

    fn writes(&mut self) -> Vec<(usize, u64)> {
        let database = connect(&self.0.0);
        let mut rows = database.prepare("SELECT key, token FROM writes ORDER BY rowid").unwrap();
        let number = |row: &rusqlite::Row<'_>, column| row.get::<_, i64>(column);
        let rows = rows.query_map([], |row| Ok((number(row, 0)?, number(row, 1)?))).unwrap();
        rows.map(Result::unwrap).map(|(key, token)| (key.try_into().unwrap(), token.try_into().unwrap())).collect()
    }
}

#[test]
fn histories_of_processes_that_are_killed_break_no_promise() {
    let site = File(Scratch::new());
    drop(manager(&site.0.0).build().unwrap());
    connect(&site.0.0).execute_batch("CREATE TABLE writes (key INTEGER, token INTEGER)").unwrap();
    histories(site);
}
