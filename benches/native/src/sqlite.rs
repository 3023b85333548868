//! Leases in an SQLite file, beside the raw engine and flock(2).

use std::{
    fs::{self, File},
    mem::ManuallyDrop,
    os::unix::{fs::FileExt, net::UnixDatagram},
    path::{Path, PathBuf},
};

use leasehold::machine::SessionId;
use rusqlite::Connection;

use crate::{
    figures::{Target, number},
    trial::{Engine, Place},
};

/// The raw engine with the same settings: a row is read and written in a synced transaction.
pub(crate) struct Sqlite {
    directory: PathBuf,
    raw: Connection,
    leases: Connection,
    log: Option<Log>,
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
        Self { directory: directory.into(), raw, leases, log: None, socket, flock }
    }

    async fn version(&mut self) -> String {
        rusqlite::version().into()
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

    /// SQLite counts the transactions of all processes that write.
    async fn transactions(&mut self) -> usize {
        let [_, _, transactions, ..] = self.log().header();
        number_of(transactions)
    }

    async fn logged(&mut self) -> f64 {
        let log = self.log();
        let [.., frames] = log.header();
        number(number_of(frames) * log.frame)
    }

    async fn row(&mut self, session: SessionId) -> String {
        let sql = "SELECT state FROM leasehold_session WHERE id = ?1";
        self.leases.query_row(sql, [session.to_string()], |row| row.get(0)).expect("there is a session")
    }

    async fn records(&mut self) -> usize {
        let sql = "SELECT count(*) FROM leasehold_record";
        let count: i64 = self.leases.query_row(sql, [], |row| row.get(0)).expect("the store works");
        usize::try_from(count).expect("it is a count")
    }
}

impl Sqlite {
    fn log(&mut self) -> &Log {
        self.log.get_or_insert_with(|| Log::of(&self.leases, &self.directory.join("leases.db-shm")))
    }
}

/// The log of a database, described by the index that its processes share: see <https://sqlite.org/walformat.html>.
struct Log {
    /// It is never closed: if it were, the system would drop the locks that SQLite has on the same file in this process.
    index: ManuallyDrop<File>,
    /// How many bytes each page takes in the log.
    frame: usize,
}

/// Before each page, the log has a header of this many bytes.
const FRAME_HEADER: usize = 24;

impl Log {
    /// The index stays the same file as long as the connection has read something.
    fn of(connection: &Connection, index: &Path) -> Self {
        let page: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0)).expect("it is SQLite");
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).expect("it can be read");
        let index = ManuallyDrop::new(File::open(index).expect("the database has a log"));
        Self { index, frame: number_of(page) + FRAME_HEADER }
    }

    /// The third number counts transactions, and the fifth the pages in the log.
    fn header(&self) -> [u32; 5] {
        let mut bytes = [0; 20];
        self.index.read_exact_at(&mut bytes, 0).expect("it has a header");
        std::array::from_fn(|at| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[4 * at + byte])))
    }
}

fn number_of(count: u32) -> usize {
    usize::try_from(count).expect("it is a small number")
}
