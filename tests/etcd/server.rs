//! Real servers of etcd, each a process with a folder of its own. A shell beside each of them kills it as soon as this process
//! is gone, whatever it died of.

use std::{
    env, fs,
    io::{BufRead, BufReader, Lines, Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio, id},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leasehold::store::EtcdStore;

use crate::{port::free_port, skipped::skip, wall_clock::WallClock};

/// Starts the server, does what it is told, and ends with its input, even if a signal ends the whole group of processes. Its
/// arguments are the folder, and the command.
const KEEPER: &str = r#"
    trap '' HUP INT TERM
    folder=$1; shift
    start() { "$@" </dev/null >>"$folder/log" 2>&1 & server=$!; echo "$server"; }
    start "$@"
    while read -r told; do
        case $told in
            kill) kill -9 "$server"; wait "$server" 2>/dev/null; echo killed ;;
            start) start "$@" ;;
            stop) kill -STOP "$server"; echo stopped ;;
            save) kill -9 "$server"; wait "$server" 2>/dev/null; cp -r "$folder/data" "$folder/saved"; echo saved ;;
            restore) kill -9 "$server"; wait "$server" 2>/dev/null; rm -rf "$folder/data"; mv "$folder/saved" "$folder/data"; echo ok ;;
            wipe) kill -9 "$server"; wait "$server" 2>/dev/null; rm -rf "$folder/data"; echo wiped ;;
        esac
    done
    kill -9 "$server" 2>/dev/null; wait
    rm -rf "$folder"
"#;

/// Longer than a server takes to start, however busy the machine is.
const STARTING: Duration = Duration::from_secs(60);

/// A server, which ends with this value or with this process.
pub(crate) struct Server {
    keeper: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
    pub(crate) port: u16,
}

/// Where a server stands, by its ports.
pub(crate) struct Member {
    pub(crate) client: u16,
    pub(crate) peer: u16,
    /// The port by which the other members reach it.
    pub(crate) advertised: u16,
}

impl Member {
    pub(crate) fn new() -> Self {
        let peer = free_port();
        Self { client: free_port(), peer, advertised: peer }
    }

    fn name(&self) -> String {
        format!("m{}", self.peer)
    }
}

/// Whether there is an etcd to test with. In CI there must be one.
pub(crate) fn is_installed() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let found = Command::new("etcd").arg("--version").output().is_ok_and(|told| told.status.success());
        if !found {
            skip("etcd is missing; .ci/setup etcd installs it");
        }
        found
    })
}

impl Server {
    /// A server of its own, with these options besides.
    pub(crate) fn start(options: &[&str]) -> Self {
        let member = Member::new();
        let server = Self::start_member(&member, &[&member], options);
        server.wait();
        server
    }

    /// Starts a server that runs by this wall clock.
    pub(crate) fn start_by(clock: &WallClock) -> Self {
        let member = Member::new();
        let server = Self::start_in(&clock.environment(), &member, &[&member], &[]);
        server.wait();
        server
    }

    /// One of the members of a cluster. It answers when most of them are there.
    pub(crate) fn start_member(member: &Member, all: &[&Member], options: &[&str]) -> Self {
        Self::start_in(&[], member, all, options)
    }

    fn start_in(environment: &[(&str, PathBuf)], member: &Member, all: &[&Member], options: &[&str]) -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        // Where there is memory for files, a server need not wait for a disk.
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { env::temp_dir() };
        let folder = parent.join(format!("leasehold-etcd-{}-{number}", id()));
        fs::create_dir(&folder).expect("the folder is new");
        let (client, peer) = (url(member.client), url(member.peer));
        let cluster: Vec<_> = all.iter().map(|one| format!("{}={}", one.name(), url(one.advertised))).collect();
        let log = folder.join("log");
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(&folder).arg("env");
        command.args(environment.iter().map(|(name, path)| format!("{name}={}", path.display())));
        command.arg("etcd").arg("--data-dir").arg(folder.join("data"));
        command.args(["--name", &member.name(), "--initial-cluster", &cluster.join(",")]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &url(member.advertised)]);
        command.args(["--logger", "zap", "--log-level", "error"]).args(no_fsync()).args(options);
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is a shell");
        let (input, output) = (keeper.stdin.take(), keeper.stdout.take().expect("it is piped"));
        let mut server = Self { keeper, input, output: BufReader::new(output).lines(), log, port: member.client };
        server.hear();
        server
    }

    /// The address of a store on it.
    pub(crate) fn address(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }

    /// Waits until it answers.
    pub(crate) fn wait(&self) {
        let runtime = tokio::runtime::Runtime::new().expect("there is a runtime");
        let began = Instant::now();
        while let Err(error) = runtime.block_on(EtcdStore::connect(&self.address())) {
            if began.elapsed() > STARTING {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                panic!("etcd does not start: {error}; it wrote: {log}");
            }
        }
    }

    /// How many transactions it was asked for so far, by its own count.
    pub(crate) fn transactions(&self) -> u64 {
        self.calls("Txn")
    }

    /// How many calls of this method the server has answered, by its own count.
    pub(crate) fn calls(&self, method: &str) -> u64 {
        self.counted(&format!("grpc_server_handled_total{{grpc_code=\"OK\",grpc_method=\"{method}\""))
    }

    /// How many calls of this method have begun, by the server's own count.
    pub(crate) fn begun(&self, method: &str) -> u64 {
        self.counted(&format!("grpc_server_started_total{{grpc_method=\"{method}\""))
    }

    /// The seconds of its wall clock. It dates each answer.
    pub(crate) fn now(&self) -> i64 {
        let told = self.told("/health");
        let date = told.lines().find_map(|line| line.strip_prefix("Date: ")).expect("it dates its answer");
        let seconds = Command::new("date").args(["-u", "+%s", "-d", date]).output().expect("there is a date").stdout;
        String::from_utf8(seconds).ok().and_then(|seconds| seconds.trim().parse().ok()).expect("it is a date")
    }

    /// What its HTTP server answers.
    fn told(&self, path: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it answers");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("it listens");
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("it answers");
        told
    }

    fn counted(&self, name: &str) -> u64 {
        let told = self.told("/metrics");
        let count = told.lines().find(|line| line.starts_with(name));
        count.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("it counts")
    }

    fn hear(&mut self) -> String {
        self.output.next().expect("the keeper lives").expect("it is text")
    }

    fn tell(&mut self, told: &str) {
        writeln!(self.input.as_mut().expect("it lives"), "{told}").expect("the keeper lives");
        self.hear();
    }

    pub(crate) fn kill(&mut self) {
        self.tell("kill");
    }

    /// It stays as it is, and answers nobody.
    pub(crate) fn stop(&mut self) {
        self.tell("stop");
    }

    /// It dies, and loses all that it had.
    pub(crate) fn wipe(&mut self) {
        self.tell("wipe");
    }

    /// It dies, and what it has is kept for [`restore`](Self::restore).
    pub(crate) fn back_up(&mut self) {
        self.tell("save");
    }

    /// It dies, and has what it had when it was backed up.
    pub(crate) fn restore(&mut self) {
        self.tell("restore");
    }

    /// Once more, with what it has on its disk.
    pub(crate) fn restart(&mut self) {
        self.start_again();
        self.wait();
    }

    /// As [`restart`](Self::restart), for a caller that waits for the server in another way.
    pub(crate) fn start_again(&mut self) {
        self.tell("start");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.keeper.wait());
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Not every version knows it. It makes no difference to a process that is killed.
fn no_fsync() -> Option<&'static str> {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let told = Command::new("etcd").arg("--help").output().expect("it was found");
        [told.stdout, told.stderr].iter().any(|text| String::from_utf8_lossy(text).contains("--unsafe-no-fsync"))
    });
    known.then_some("--unsafe-no-fsync")
}

/// The address of the server that most tests share, or that the first process named.
pub(crate) fn shared() -> Option<String> {
    static SHARED: OnceLock<Mutex<Server>> = OnceLock::new();
    is_installed().then(|| {
        let server = SHARED.get_or_init(|| Mutex::new(Server::start(&[])));
        server.lock().expect("nothing panics in between").address()
    })
}
