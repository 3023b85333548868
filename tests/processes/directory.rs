//! A store in a directory: a file for each row, and a lock file for as long as a transaction.

use std::time::Duration;
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use leasehold::{
    machine::{Batch, Now, Records, Reply, Row, StoreError, StoreId, StoreNow},
    store::{Reach, Store},
};

#[derive(Clone, Debug)]
pub(crate) struct DirectoryStore(PathBuf, Reach);

impl DirectoryStore {
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.to_owned(), Reach::Named(path.to_string_lossy().into_owned()))
    }

    /// Only processes of this machine share it, and their signals go by way of this directory.
    pub(crate) fn with_signals_in(path: &Path, signals: &Path) -> Self {
        Self(path.to_owned(), Reach::Machine(signals.to_string_lossy().into_owned()))
    }

    fn path(&self, row: &Row) -> PathBuf {
        self.0.join(format!("{row}.json"))
    }

    fn read(&self, row: &Row) -> io::Result<Option<String>> {
        match fs::read_to_string(self.path(row)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    fn write(&self, row: &Row, text: Option<String>) -> io::Result<()> {
        let Some(text) = text else { return fs::remove_file(self.path(row)) };
        // A rename is done or not done, whenever the process dies. One row at a time is enough for these tests.
        let draft = self.0.join("draft");
        fs::write(&draft, text)?;
        fs::rename(&draft, self.path(row))
    }

    fn run(&self, batch: &Batch, now: Now) -> io::Result<Reply> {
        // The platform lets go of it when the file is closed, also when the process dies.
        let lock = File::create(self.0.join("lock"))?;
        lock.lock()?;
        let mut records = Records::new();
        let fresh = StoreId(u128::from(std::process::id()));
        records.load_store(self.read(&Row::Store)?.as_deref(), fresh).map_err(io::Error::other)?;
        for key in batch.keys() {
            let text = self.read(&Row::Record(key.clone()))?;
            records.load(key, text.as_deref());
        }
        for session in records.sessions_of(batch) {
            records.load_session(session, self.read(&Row::Session(session))?.as_deref());
        }
        let reply = batch.apply(&mut records, StoreNow::new(self.clock(), now));
        for row in records.take_changed() {
            self.write(&row, records.text(&row))?;
        }
        Ok(reply)
    }
}

#[async_trait::async_trait]
impl Store for DirectoryStore {
    async fn transact(&self, batch: Batch, now: Now, _limit: Duration) -> Result<Reply, StoreError> {
        self.run(&batch, now).map_err(|error| StoreError::unknown(error.to_string()))
    }

    async fn close(&self) {}

    fn reach(&self) -> Reach {
        self.1.clone()
    }
}
