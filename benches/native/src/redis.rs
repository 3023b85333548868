//! Leases in Redis, beside two scripts that compare and set, and the lock of the crate `rslock`.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use futures::StreamExt;
use leasehold::machine::SessionId;
use redis::{
    AsyncCommands, Client,
    aio::{MultiplexedConnection, PubSubStream},
};
use rslock::{Lock, LockManager};

use crate::{
    figures::{Target, number},
    port::free_port,
    servers,
    trial::{Engine, LONG, Place},
};

const COMPARE_AND_SET: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    redis.call('SET', KEYS[1], ARGV[2])
    return 1";

pub(crate) struct Redis {
    client: Client,
    connection: MultiplexedConnection,
    /// The name that the server gave to the script.
    compare_and_set: String,
    /// What the row says.
    state: String,
    heard: Option<PubSubStream>,
    locks: LockManager,
    locked: Option<Lock>,
    written: Log,
}

impl Engine for Redis {
    const NAME: &'static str = "redis";
    const USUAL: &'static str = "redis_rslock_lock_unlock";
    /// It asks again after a random pause of up to 200 ms.
    const USUAL_HANDS_OFF: bool = true;
    const NEWS: &'static str = "publish";
    const MORTAL: Duration = Duration::from_secs(1);
    const DEATHS: usize = 5;
    /// The silence that the death of a holder is known by is 1.1 s here.
    const TAKE_OVER: Target = Target::None;

    async fn start() -> Option<Place> {
        if !servers::is_installed("redis-server") {
            return None;
        }
        let (folder, port) = (servers::folder::<Self>(), free_port().to_string());
        // With these settings a lease outlives the server, as in the other stores.
        let command = [
            "redis-server",
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            // The benchmark counts the transactions in this file, so the server must not rewrite it.
            "--auto-aof-rewrite-percentage",
            "0",
        ];
        Some(servers::run(&folder, "TERM", &command, format!("redis://127.0.0.1:{port}")).await)
    }

    async fn connect(url: &str) -> Self {
        let client = Client::open(url).expect("it is an address");
        let mut connection = client.get_multiplexed_async_connection().await.expect("the server runs");
        let _: bool = connection.set_nx("raw", "").await.expect("the server runs");
        let state = connection.get("raw").await.expect("the server runs");
        let mut load = redis::cmd("SCRIPT");
        let load = load.arg("LOAD").arg(COMPARE_AND_SET);
        let compare_and_set = load.query_async(&mut connection).await.expect("the server runs");
        let locks = LockManager::from_clients(vec![client.clone()]);
        let written = Log::of(&mut connection).await;
        Self { client, connection, compare_and_set, state, heard: None, locks, locked: None, written }
    }

    async fn version(&mut self) -> String {
        let mut info = redis::cmd("INFO");
        let server: String = info.arg("server").query_async(&mut self.connection).await.expect("the server runs");
        let version = server.lines().find_map(|line| line.strip_prefix("redis_version:"));
        version.expect("it tells its version").trim().into()
    }

    async fn transact(&mut self, turn: usize) {
        let next = format!("{turn:300}");
        let mut script = redis::cmd("EVALSHA");
        let script = script.arg(&self.compare_and_set).arg(1).arg("raw").arg(&self.state).arg(&next);
        let is_set: bool = script.query_async(&mut self.connection).await.expect("the server runs");
        assert!(is_set, "nobody else writes");
        self.state = next;
    }

    async fn notify(&mut self) {
        let _: usize = self.connection.publish("raw", "released").await.expect("the server runs");
    }

    async fn listen(&mut self) {
        let mut heard = self.client.get_async_pubsub().await.expect("the server runs");
        heard.subscribe("raw").await.expect("the server runs");
        self.heard = Some(heard.into_on_message());
    }

    async fn hear(&mut self) {
        self.heard.as_mut().expect("it listens").next().await.expect("the server runs");
    }

    async fn lock(&mut self) {
        self.locked = Some(self.locks.acquire_no_guard("usual", LONG).await.expect("the server runs"));
    }

    async fn unlock(&mut self) {
        self.locks.unlock(&self.locked.take().expect("it is locked")).await;
    }

    /// The server appends the writes of each script to its log as one transaction.
    async fn transactions(&mut self) -> usize {
        self.written.read_on();
        self.written.transactions
    }

    async fn logged(&mut self) -> f64 {
        self.written.read_on();
        number(self.written.read)
    }

    /// Each attempt of a transaction of the store is one script.
    async fn round_trips(&mut self) -> Option<usize> {
        let mut info = redis::cmd("INFO");
        let stats: String = info.arg("commandstats").query_async(&mut self.connection).await.expect("the server runs");
        let calls = |line: &str| {
            let (_, calls) = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?;
            calls.split_once(',')?.0.parse::<usize>().ok()
        };
        Some(stats.lines().filter_map(calls).sum())
    }

    async fn row(&mut self, session: SessionId) -> String {
        let row = format!("session:{session}");
        self.connection.hget("{leasehold}:rows", row).await.expect("there is a session")
    }

    async fn records(&mut self) -> usize {
        let rows: Vec<String> = self.connection.hkeys("{leasehold}:rows").await.expect("the store works");
        rows.iter().filter(|row| row.starts_with("lease:")).count()
    }
}

/// The file to which the server appends its writes before it answers.
struct Log {
    path: PathBuf,
    /// How many bytes of it were read.
    read: usize,
    /// The last bytes that were read: not a whole command yet.
    rest: Vec<u8>,
    /// Whether the last command that was read stands between `MULTI` and `EXEC`.
    is_inside: bool,
    transactions: usize,
}

impl Log {
    async fn of(connection: &mut MultiplexedConnection) -> Self {
        let mut setting = async |name: &str| -> String {
            let mut ask = redis::cmd("CONFIG");
            let told: Vec<String> = ask.arg("GET").arg(name).query_async(connection).await.expect("the server runs");
            told.into_iter().next_back().expect("it has the setting")
        };
        let (folder, part, file) =
            (setting("dir").await, setting("appenddirname").await, setting("appendfilename").await);
        let path = Path::new(&folder).join(part).join(format!("{file}.1.incr.aof"));
        Self { path, read: 0, rest: Vec::new(), is_inside: false, transactions: 0 }
    }

    /// Reads what the server has appended since.
    fn read_on(&mut self) {
        let mut file = File::open(&self.path).expect("the server appends to it");
        file.seek(SeekFrom::Start(self.read as u64)).expect("it only grows");
        self.read += file.read_to_end(&mut self.rest).expect("it can be read");
        let mut whole = 0;
        while let Some((name, length)) = command_in(&self.rest[whole..]) {
            match &*name {
                "MULTI" => self.is_inside = true,
                "EXEC" => self.is_inside = false,
                _ => {}
            }
            let is_transaction = !self.is_inside && name != "SELECT";
            self.transactions += usize::from(is_transaction);
            whole += length;
        }
        self.rest.drain(..whole);
    }
}

/// The name of the first command in these bytes, and its length in bytes; `None` if the command is not whole.
fn command_in(bytes: &[u8]) -> Option<(String, usize)> {
    let number_at = |at: usize| {
        let length = bytes.get(at..)?.windows(2).position(|end| end == b"\r\n")?;
        let number: usize = std::str::from_utf8(&bytes[at + 1..at + length]).ok()?.parse().ok()?;
        Some((number, at + length + 2))
    };
    let (words, mut at) = number_at(0)?;
    let mut name = None;
    for _ in 0..words {
        let (length, from) = number_at(at)?;
        let word = bytes.get(from..from + length)?;
        name.get_or_insert_with(|| String::from_utf8_lossy(word).to_uppercase());
        at = from + length + 2;
    }
    (at <= bytes.len()).then_some((name?, at))
}
