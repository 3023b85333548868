//! Leases in an SQLite file, beside the raw engine and flock(2).

use std::{
    fs::{self, File},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold::machine::SessionId;
use rusqlite::Connection;

use crate::{
    crowd::{Crowd, USUAL_LEASE},
    figures::{Figures, Target},
    trial::{Engine, Place},
};

/// The raw engine with the same settings: a row is read and written in a synced transaction.
pub(crate) struct Sqlite {
    directory: PathBuf,
    raw: Connection,
    leases: Connection,
    version: i64,
    transactions: usize,
    socket: UnixDatagram,
    flock: File,
}

/// It goes with the place.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("it is ours");
    }
}

impl Engine for Sqlite {
    const NAME: &'static str = "sqlite";
    const USUAL: &'static str = "flock_lock_unlock";
    const NEWS: &'static str = "datagram";
    /// Commits are counted by looking often enough.
    const COUNTS_ALL: bool = false;
    const KEYS: &'static [usize] = &[1_000, 10_000];
    const HAND_OFF: Target = Target::AtMost(2_000.0);

    /// On a disk: `target` is.
    async fn start() -> Option<Place> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench/sqlite");
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory).expect("target/bench can be written");
        let directory = fs::canonicalize(directory).expect("it is there");
        let url = format!("sqlite:{}/leases.db", directory.display());
        Some(Place { url, keeper: Box::new(Scratch(directory)) })
    }

    async fn connect(url: &str) -> Self {
        let path = Path::new(url.strip_prefix("sqlite:").expect("it is the URL of a store"));
        let directory = path.parent().expect("it is in a directory");
        let open = |name| Connection::open(directory.join(name)).expect("the file can be opened");
        let (raw, leases) = (open("raw.db"), open("leases.db"));
        raw.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").expect("it is SQLite");
        raw.execute_batch("CREATE TABLE IF NOT EXISTS lock (key TEXT PRIMARY KEY, state TEXT NOT NULL)")
            .expect("it can be written");
        let socket = UnixDatagram::unbound().expect("it can be made");
        let flock = File::create(directory.join("flock")).expect("it can be made");
        Self { directory: directory.into(), raw, leases, version: 0, transactions: 0, socket, flock }
    }

    async fn transact(&mut self, turn: usize) {
        let state = format!("{turn:300}");
        self.raw.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
        let mut read = self.raw.prepare("SELECT state FROM lock WHERE key = 'k'").expect("it is SQL");
        assert!(read.exists([]).is_ok(), "it is read");
        let sql = "INSERT INTO lock VALUES ('k', ?1) ON CONFLICT (key) DO UPDATE SET state = excluded.state";
        self.raw.execute(sql, [state]).expect("it is written");
        self.raw.execute_batch("COMMIT").expect("the disk works");
    }

    async fn notify(&mut self) {
        self.socket.send_to(b"released", self.directory.join("raw.socket")).expect("somebody listens");
    }

    async fn listen(&mut self) {
        self.socket = UnixDatagram::bind(self.directory.join("raw.socket")).expect("it can be made");
    }

    async fn hear(&mut self) {
        self.socket.recv(&mut [0; 512]).expect("it is bound");
    }

    async fn lock(&mut self) {
        self.flock.lock().expect("nobody else has it");
    }

    async fn unlock(&mut self) {
        self.flock.unlock().expect("it is locked");
    }

    /// Each commit is seen as a new version, if this is asked often enough.
    async fn transactions(&mut self) -> usize {
        let version = self.leases.query_row("PRAGMA data_version", [], |row| row.get(0)).expect("it is SQLite");
        self.transactions += usize::from(self.version != version);
        self.version = version;
        self.transactions
    }

    async fn row(&mut self, session: SessionId) -> String {
        let sql = "SELECT state FROM leasehold_session WHERE id = ?1";
        self.leases.query_row(sql, [session.to_string()], |row| row.get(0)).expect("there is a session")
    }

    /// Each context is a process of its own, of which the system tells the processor time.
    async fn crowd(figures: &mut Figures, url: &str) {
        // Leases that nobody renews meanwhile leave the load of polling alone. In a file of its own, where the killed ones are nobody's
        // concern.
        let patient = format!("{url}-patient");
        let patient = Crowd::<Self>::queue(&patient, 100, 1, Duration::from_secs(3_600)).await;
        let percent = patient.cpu_percent().await;
        figures.add("sqlite_100_waiting_processes_polling_percent", percent, Target::AtMost(1.0));
        drop(patient);
        let crowd = Crowd::<Self>::queue(url, 100, 1, USUAL_LEASE).await;
        let percent = crowd.cpu_percent().await;
        figures.add("sqlite_100_waiting_processes_cpu_percent", percent, Target::None);
        crowd.serve(figures, "100_processes").await;
    }
}
