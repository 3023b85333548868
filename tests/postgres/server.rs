//! A PostgreSQL server of the tests' own: its data in a folder of its own, gone with whoever started it.

use std::{
    env, fs,
    future::Future,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, id},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold::store::{PostgresStore, PostgresStoreBuilder};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

pub(crate) use crate::programs::as_server;
use crate::{
    port::free_port,
    programs::{is_root, programs},
    proxy::{Proxy, Wire},
    skipped::skip,
    until::wait_until,
    wall_clock::WallClock,
};

/// More than anything takes here, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that the server's user owns.
pub(crate) fn folder() -> PathBuf {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let path = env::temp_dir().join(format!("leasehold-pg-{}-{}", id(), MADE.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir(&path).expect("the folder is new");
    if is_root() {
        assert!(Command::new("chown").arg("postgres:postgres").arg(&path).status().expect("it runs").success());
    }
    path
}

/// Runs a program until this process ends, however it does, or the guard is dropped: then it kills the program, and removes the
/// folder. What it says goes to a file in the folder.
pub(crate) fn keep(folder: &Path, command: &str, signal: &str) -> Child {
    let script = format!(
        "cd '{0}'; {command} >'{0}/log' 2>&1 </dev/null & echo $! >'{0}/pid'; cat >/dev/null; \
         kill -{signal} $(cat '{0}/pid'); wait; rm -rf '{0}'",
        folder.display()
    );
    let mut keeper = as_server("sh");
    keeper.args(["-c", &script]).stdin(Stdio::piped()).spawn().expect("a shell starts")
}

pub(crate) struct Server {
    keeper: Child,
    folder: PathBuf,
    programs: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
    options: String,
    pub(crate) port: u16,
}

impl Server {
    /// A server of its own, or `None` if there is none to be had.
    pub(crate) fn start() -> Option<Self> {
        Self::start_in(Vec::new(), "")
    }

    /// Starts a server with these options, too.
    pub(crate) fn start_with(options: &'static str) -> Option<Self> {
        Self::start_in(Vec::new(), options)
    }

    /// Starts a server that runs by this wall clock.
    pub(crate) fn start_by(clock: &WallClock) -> Option<Self> {
        Self::start_in(clock.environment().into(), "")
    }

    fn start_in(environment: Vec<(&'static str, PathBuf)>, more: &'static str) -> Option<Self> {
        let Some(programs) = programs() else {
            skip("PostgreSQL is missing; .ci/setup postgres installs it");
            return None;
        };
        let (folder, port) = (folder(), free_port());
        let data = folder.join("data");
        let mut init = as_server(programs.join("initdb"));
        init.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]).arg(&data);
        let made = init.current_dir(&folder).output().expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let variables = environment.iter().map(|(name, path)| format!("{name}='{}' ", path.display()));
        let variables: String = variables.collect();
        let options = format!("{} {more}", options(&folder, port));
        let command = format!("{variables}'{}' {options}", programs.join("postgres").display());
        let server = Self { keeper: keep(&folder, &command, "QUIT"), folder, programs, environment, options, port };
        server.await_start();
        Some(server)
    }

    /// On a thread of its own: the test that comes first may run on a runtime already.
    fn await_start(&self) {
        let answers = || Runtime::new().unwrap().block_on(tokio_postgres::connect(&self.url(), NoTls)).is_ok();
        thread::scope(|scope| scope.spawn(|| wait_until("the server starts", answers)).join().unwrap());
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }

    /// All of its processes are killed at once.
    pub(crate) fn crash(&self) {
        // When the first one has stopped, it starts no others.
        let kill = "kill -STOP $1; until ps -o stat= -p $1 | grep -q '^T'; do sleep 0.01; done; \
                    all=\"$1 $(pgrep -P $1)\"; kill -9 $all; \
                    for one in $all; do while ps -o stat= -p $one | grep -qv '^Z'; do sleep 0.01; done; done";
        let killed = Command::new("sh").args(["-c", kill, "sh", &self.number()]).status().expect("there is a shell");
        assert!(killed.success());
        // Another process may get its number, or nobody has asked yet how it ended: then it counts as running.
        fs::write(self.folder.join("pid"), "").expect("the keeper reads it");
        for lock in ["data/postmaster.pid".into(), format!(".s.PGSQL.{}.lock", self.port)] {
            fs::remove_file(self.folder.join(lock)).expect("it wrote it");
        }
    }

    /// The number of the process that started all others of the server.
    fn number(&self) -> String {
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid")).expect("it wrote its number");
        file.lines().next().unwrap_or_default().to_owned()
    }

    /// From its next start on, the server lets in only those whom this line of `pg_hba.conf` lets in.
    pub(crate) fn let_in(&self, whom: &str) {
        let rules = self.folder.join("data/pg_hba.conf");
        let write = "echo \"$1\" > \"$2\"";
        let mut shell = as_server("sh");
        let written = shell.args(["-c", write, "sh", whom]).arg(&rules).current_dir(&self.folder).status();
        assert!(written.expect("there is a shell").success());
    }

    /// Stops all of its processes until the value is dropped.
    pub(crate) fn freeze(&self) -> Frozen {
        let frozen = Frozen { number: self.number() };
        assert!(frozen.signal("-STOP"), "its processes get the signal");
        frozen
    }

    /// Makes its data a copy of another server's. This server must not run; the other must be frozen or stopped.
    pub(crate) fn copy(&self, other: &Self) {
        let [from, to] = [other, self].map(|server| server.folder.join("data"));
        let mut shell = as_server("sh");
        shell
            .args(["-c", "rm -rf \"$2\" && cp -a \"$1\" \"$2\" && rm -f \"$2/postmaster.pid\"", "sh"])
            .arg(&from)
            .arg(&to);
        assert!(shell.current_dir(&self.folder).status().expect("there is a shell").success());
    }

    /// From its next start on it only follows another server, and cannot be written to.
    pub(crate) fn make_standby(&self) {
        let signal = self.folder.join("data/standby.signal");
        assert!(as_server("touch").arg(&signal).current_dir(&self.folder).status().expect("it runs").success());
    }

    /// After a crash. It ends with the guard, as the first did: by the file with its number.
    pub(crate) fn restart(&self) {
        let mut start = as_server(self.programs.join("pg_ctl"));
        start.args(["start", "-w", "-l"]).arg(self.folder.join("log")).arg("-D").arg(self.folder.join("data"));
        start.arg("-o").arg(&self.options).current_dir(&self.folder).envs(self.environment.clone());
        // Its children keep what this process would otherwise wait for.
        let started = start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it runs");
        assert!(started.success(), "the server starts again");
        fs::write(self.folder.join("pid"), self.number()).expect("the keeper reads it");
    }
}

fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

fn options(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "-D '{folder}/data' -p {port} -k '{folder}' -h 127.0.0.1 -c fsync=off -c max_connections=300 \
         -c log_min_duration_statement=-1 -c shared_buffers=32MB"
    )
}

/// A server that stands still.
pub(crate) struct Frozen {
    number: String,
}

impl Frozen {
    fn signal(&self, signal: &str) -> bool {
        let kill = "kill $1 $2; kill $1 $(pgrep -P $2)";
        Command::new("sh").args(["-c", kill, "sh", signal, &self.number]).status().is_ok_and(|ended| ended.success())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Otherwise its keeper could not end it.
        self.signal("-CONT");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        drop(self.keeper.wait());
    }
}

/// The server that most tests share. Nothing drops it: it ends with this process.
fn shared() -> Option<&'static Server> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    SHARED.get_or_init(Server::start).as_ref()
}

/// What a test has: a server, and tables of its own in it.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) prefix: String,
}

impl crate::other::Shared for Place {
    fn words(&self) -> Vec<String> {
        vec![self.url.clone(), self.prefix.clone()]
    }
}

impl Place {
    /// `None` where no server is to be had.
    pub(crate) fn new(prefix: &str) -> Option<Self> {
        shared().map(|server| Self { url: server.url(), prefix: prefix.into() })
    }

    pub(crate) fn port(&self) -> u16 {
        let address = self.url.rsplit(':').next().and_then(|rest| rest.split('/').next());
        address.and_then(|port| port.parse().ok()).expect("it has a port")
    }

    /// A proxy in front of the server. It can tell a commit from the name of the isolation level.
    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::start(self.port(), Wire { commit: b"COMMIT\0", committed: b"COMMIT\0" })
    }

    /// The same by way of another port.
    pub(crate) fn behind(&self, port: u16) -> Self {
        Self { url: self.url.replace(&format!(":{}/", self.port()), &format!(":{port}/")), ..self.clone() }
    }

    /// The URL of another database of this server.
    pub(crate) fn url_of(&self, database: &str) -> String {
        let (server, _) = self.url.rsplit_once('/').expect("it has a path");
        format!("{server}/{database}")
    }

    pub(crate) fn builder(&self) -> PostgresStoreBuilder {
        PostgresStore::builder(&self.url).prefix(&self.prefix)
    }

    /// A store whose tables stand.
    pub(crate) async fn store(&self) -> PostgresStore {
        let store = self.builder().connect().await.unwrap();
        store.migrate().await.unwrap();
        store
    }

    /// A connection of the user's.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.url).await
    }
}

/// A connection that is none of a store's.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Runs a test that needs a server, if there is one, with tables of its own.
pub(crate) fn on_server<F: Future<Output = ()>>(prefix: &str, test: impl FnOnce(Place) -> F) {
    if let Some(place) = Place::new(prefix) {
        Runtime::new().unwrap().block_on(test(place));
    }
}
