//! Servers that end with the test process, however it ends.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, id},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use redis::Client;

use crate::{port::free_port, skipped::skip, wall_clock::WallClock};

/// Longer than a server takes to start or to stop on a busy machine.
const BUSY: Duration = Duration::from_secs(30);

/// The environment variable that names the server program, for a machine that has several. Without it, Redis is used if present, else
/// Valkey.
const PROGRAM: &str = "LEASEHOLD_REDIS_SERVER";

/// It ends when it is told so, or when the pipe to this process breaks; then it takes its folder with it.
const KEEPER: &str = "\"$@\" >\"$FOLDER/log\" 2>&1 & server=$!
read -r word; kill -9 $server; wait $server 2>/dev/null
[ -n \"$word\" ] || rm -rf \"$FOLDER\"";

/// A server on a socket and a port of its own, with a folder of its own.
pub(crate) struct Server {
    keeper: Option<Child>,
    program: &'static str,
    settings: Vec<String>,
    /// A Sentinel keeps what it knows in a file.
    is_sentinel: bool,
    environment: Vec<(&'static str, PathBuf)>,
    folder: PathBuf,
    port: u16,
}

/// The program of the servers; `None` if there is none on this machine.
fn program() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let runs = |name: &String| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    let find = || match env::var(PROGRAM) {
        Ok(name) => Some(name),
        Err(_) => ["redis-server", "valkey-server"].map(String::from).into_iter().find(runs),
    };
    let found = FOUND.get_or_init(find).as_deref();
    if found.is_none() {
        skip("redis-server is missing; .ci/setup redis installs it");
    }
    found
}

impl Server {
    /// Starts one with these settings; `None` if there is none on this machine.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        Self::start_as(settings, None, &[])
    }

    /// Starts a server that runs by this wall clock.
    pub(crate) fn start_by(clock: &WallClock) -> Option<Self> {
        Self::start_as(&[], None, &clock.environment())
    }

    /// Starts a Sentinel with this text in its file; `None` if there is none on this machine.
    pub(crate) fn start_sentinel(text: &str) -> Option<Self> {
        Self::start_as(&[], Some(text), &[])
    }

    fn start_as(settings: &[&str], sentinel: Option<&str>, environment: &[(&'static str, PathBuf)]) -> Option<Self> {
        let program = program()?;
        let (folder, is_sentinel) = (folder(), sentinel.is_some());
        if let Some(text) = sentinel {
            fs::write(folder.join("sentinel.conf"), text).unwrap();
        }
        // The second port of this node may be taken.
        for _ in 0..20 {
            let port = free_port();
            let settings = settings.iter().map(|word| word.to_string()).collect();
            let (environment, folder) = (environment.to_vec(), folder.clone());
            let mut server = Self { keeper: None, program, settings, is_sentinel, environment, folder, port };
            if server.run() {
                return Some(server);
            }
            server.kill();
        }
        panic!("redis-server does not start: {:?}", fs::read_to_string(folder.join("log")));
    }

    /// Starts it, or starts it again with what it left behind. Whether it answers.
    pub(crate) fn run(&mut self) -> bool {
        self.run_without_waiting();
        let started = Instant::now();
        while started.elapsed() < BUSY {
            if let Ok(mut connection) = self.client().get_connection() {
                let answer: Result<String, _> = redis::cmd("PING").query(&mut connection);
                // One that wants a password runs, too.
                if !answer.is_err_and(|error| error.code() == Some("LOADING")) {
                    return true;
                }
            }
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            // A cluster node also opens a second port, 10,000 above the first.
            if log.contains("Address already in use") || log.contains("too high for cluster mode") {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("redis-server does not answer: {:?}", fs::read_to_string(self.folder.join("log")));
    }

    /// Adds to the settings of its next start.
    pub(crate) fn set(&mut self, settings: &[&str]) {
        self.settings.extend(settings.iter().map(|word| word.to_string()));
    }

    pub(crate) fn run_without_waiting(&mut self) {
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper", self.program]);
        if self.is_sentinel {
            command.arg(self.folder.join("sentinel.conf")).arg("--sentinel");
        } else {
            command.args(["--save", ""]);
        }
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(&self.folder);
        command.arg("--unixsocket").arg(self.folder.join("socket")).args(&self.settings);
        let command = command.env("FOLDER", &self.folder).envs(self.environment.clone()).stdin(Stdio::piped());
        self.keeper = Some(command.spawn().expect("there is a shell"));
    }

    /// It dies by `kill -9`, and its folder stays.
    pub(crate) fn kill(&mut self) {
        let Some(mut keeper) = self.keeper.take() else { return };
        let mut input = keeper.stdin.take().expect("it is piped");
        writeln!(input, "kill").expect("the keeper listens");
        keeper.wait().expect("it ends");
    }

    /// Sends a signal to its process.
    pub(crate) fn signal(&self, name: &str) {
        // A stopped server does not answer, so its process id is noted before.
        let id = fs::read_to_string(self.folder.join("process")).unwrap_or_else(|_| {
            let info: String = self.ask(&["INFO", "server"]);
            info.lines().find_map(|line| line.strip_prefix("process_id:")).expect("it tells its process").to_owned()
        });
        fs::write(self.folder.join("process"), &id).unwrap();
        assert!(Command::new("kill").args([&format!("-{name}"), id.trim()]).status().unwrap().success());
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A client that connects by the server's port, as other machines do.
    pub(crate) fn remote_client(&self) -> Client {
        Client::open(format!("redis://{}/", self.address())).expect("it is an address")
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(self.url()).expect("it is an address")
    }

    /// Runs one command, by other means than the store's.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn try_ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(word);
        });
        command.query(&mut self.client().get_connection()?)
    }

    /// Waits until this command has the expected answer. A server that becomes a replica cuts its connections.
    pub(crate) fn wait_for<T: redis::FromRedisValue>(&self, words: &[&str], is_as_wanted: impl Fn(&T) -> bool) {
        let started = Instant::now();
        while !self.try_ask(words).is_ok_and(|answer| is_as_wanted(&answer)) {
            assert!(
                started.elapsed() < BUSY,
                "{words:?} is not as it should be: {:?}",
                self.try_ask::<redis::Value>(words)
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// How many scripts it ran.
    pub(crate) fn scripts(&self) -> u64 {
        self.calls("eval")
    }

    /// How many commands with this prefix in their names it has run.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let calls = |line: &str| {
            let (_, rest) = line.split_once("cmdstat_")?;
            let rest = rest.strip_prefix(command)?;
            let (_, calls) = rest.split_once("calls=")?;
            calls.split_once(',')?.0.parse::<u64>().ok()
        };
        stats.lines().filter_map(calls).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn folder() -> PathBuf {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let name = format!("leasehold-redis-{}-{}", id(), MADE.fetch_add(1, Ordering::Relaxed));
    let path = Path::new(&env::temp_dir()).join(name);
    fs::create_dir(&path).expect("the folder is new");
    path
}
