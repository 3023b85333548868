//! Servers that end with the test process, however it ends.

use std::{
    env, fs,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, id},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use redis::Client;

/// Longer than a server takes to start or to stop on a busy machine.
const BUSY: Duration = Duration::from_secs(30);

/// It ends when it is told so, or when the pipe to this process breaks; then it takes its folder with it.
const KEEPER: &str = "\"$@\" >\"$FOLDER/log\" 2>&1 & server=$!
read -r word; kill -9 $server; wait $server 2>/dev/null
[ -n \"$word\" ] || rm -rf \"$FOLDER\"";

/// A server on a socket and a port of its own, with a folder of its own.
pub(crate) struct Server {
    keeper: Option<Child>,
    settings: Vec<String>,
    folder: PathBuf,
    port: u16,
}

impl Server {
    /// Starts one with these settings; `None` if there is none on this machine.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            assert!(env::var_os("CI").is_none(), "redis-server is missing; .ci/setup redis installs it");
            println!("SKIPPED: redis-server is missing; .ci/setup redis installs it");
            return None;
        }
        let folder = folder();
        // Another process may take a port that is free now.
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let settings = settings.iter().map(|word| word.to_string()).collect();
            let mut server = Self { keeper: None, settings, folder: folder.clone(), port };
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
            if log.contains("Address already in use") {
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
        command.args(["-c", KEEPER, "keeper", "redis-server", "--port", &self.port.to_string()]);
        command.args(["--bind", "127.0.0.1", "--save", "", "--dir"]).arg(&self.folder);
        command.arg("--unixsocket").arg(self.folder.join("socket")).args(&self.settings);
        let command = command.env("FOLDER", &self.folder).stdin(Stdio::piped());
        self.keeper = Some(command.spawn().expect("there is a shell"));
    }

    /// It dies by `kill -9`, and its folder stays.
    pub(crate) fn kill(&mut self) {
        let Some(mut keeper) = self.keeper.take() else { return };
        let mut input = keeper.stdin.take().expect("it is piped");
        writeln!(input, "kill").expect("the keeper listens");
        keeper.wait().expect("it ends");
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

    pub(crate) fn client(&self) -> Client {
        Client::open(self.url()).expect("it is an address")
    }

    /// Runs one command, by other means than the store's.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(word);
        });
        let mut connection = self.client().get_connection().unwrap();
        command.query(&mut connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// How many scripts it ran.
    pub(crate) fn scripts(&self) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let calls = |line: &str| {
            let (_, rest) = line.split_once("cmdstat_eval")?;
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
