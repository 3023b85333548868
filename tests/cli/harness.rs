//! A folder of its own for each test, and processes that end with it.

use std::{
    ffi::OsStr,
    fmt::Debug,
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rusqlite::{Connection, TransactionBehavior};

use crate::skipped::skip;
use crate::until::wait_until;

/// Longer than anything takes, however busy the machine is.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

pub(crate) struct Scratch(pub(crate) PathBuf);

/// What a process left that ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("leasehold-cli-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("the directory is new");
        Self(path)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("leases.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    /// The program, with the store of this folder.
    pub(crate) fn leasehold(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(PROGRAM, arguments);
        command.env("LEASEHOLD_STORE", self.url());
        command
    }

    /// Some program, in this folder. Shells find `leasehold` by its name.
    pub(crate) fn command(&self, program: &str, arguments: &[impl AsRef<OsStr>]) -> Command {
        let folder = PathBuf::from(PROGRAM).parent().expect("it is in a folder").display().to_string();
        let path = format!("{folder}:{}", std::env::var("PATH").expect("there is a PATH"));
        let mut command = heeding(program);
        command.args(arguments).current_dir(&self.0).env("PATH", path).env("LEASEHOLD_STORE", self.url());
        command.stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn done(&self, arguments: &[&str]) -> Done {
        done(&mut self.leasehold(arguments))
    }

    /// Runs the program to its end. If a busy machine kept its store from opening within the limit of `-w`, the program is run again.
    pub(crate) fn opened(&self, arguments: &[&str]) -> Done {
        let mut runs = std::iter::repeat_with(|| self.done(arguments)).take(20);
        runs.find(|done| !done.err.contains("did not open within")).expect("the store opens in time once")
    }

    /// Stops a leasehold between two of its writes. Stopped within one, it would keep all others from the file.
    pub(crate) fn stop(&self, running: &Running) {
        let mut other = Connection::open(self.file()).unwrap();
        other.busy_timeout(Duration::ZERO).unwrap();
        wait_until("a stop between two writes", || {
            running.signal(Signal::SIGSTOP);
            wait_until("the stop", || running.is_stopped());
            let is_free = other.transaction_with_behavior(TransactionBehavior::Immediate).is_ok();
            if !is_free {
                running.signal(Signal::SIGCONT);
            }
            is_free
        });
    }

    /// Runs the program, which ends with this code and these words on stdout and stderr. On a machine so busy that this takes half a
    /// second, the program may say more, or give up too soon. Then it is run again.
    pub(crate) fn ends(&self, arguments: &[&str], expected: (i32, &str, &str)) {
        for _ in 0..20 {
            let start = Instant::now();
            let done = self.done(arguments);
            if (done.code, &*done.out, &*done.err) == expected {
                return;
            }
            let took = start.elapsed();
            assert!(took > Duration::from_millis(500), "{arguments:?} after {took:?}: {done:?}");
        }
        panic!("{arguments:?} never ends with {expected:?}");
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::start(&mut self.leasehold(arguments))
    }

    /// Starts a shell script under the lease of `k`, and waits until the script has said `ready`.
    pub(crate) fn ready(&self, options: &[&str], script: &str) -> Running {
        let script = format!("{script}\n");
        let mut arguments = vec!["run"];
        arguments.extend(options);
        arguments.extend(["k", "--", "sh", "-c", &script]);
        let running = self.start(&arguments);
        assert_eq!(running.line().as_deref(), Some("ready"), "{}", running.err());
        running
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn done(command: &mut Command) -> Done {
    let running = Running::start(command);
    let mut out = String::new();
    while let Some(line) = running.line() {
        out.push_str(&line);
        out.push('\n');
    }
    let (code, err) = running.end();
    Done { code, out, err }
}

/// A process that runs. It is killed with the test.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    err: Arc<Mutex<String>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let (said, lines) = mpsc::channel();
        let out = child.stdout.take().expect("it is piped");
        thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        let err = Arc::new(Mutex::new(String::new()));
        let (mut piped, heard) = (child.stderr.take().expect("it is piped"), err.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = piped.read(&mut bytes) {
                heard.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, lines, err }
    }

    /// The next line on stdout; `None` once nobody has stdout open any more.
    pub(crate) fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing came; on stderr: {}", self.err()),
        }
    }

    pub(crate) fn input(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("it is piped")
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("a process id"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    /// Whether none of its threads runs, or there is no `/proc` that would say so.
    fn is_stopped(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        threads.into_iter().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|state| state.trim_start().starts_with('T'))
        })
    }

    pub(crate) fn err(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    pub(crate) fn until_err(&self, part: &str) {
        wait_until(&format!("{part:?} on stderr"), || self.err().contains(part));
    }

    /// Waits for its end: its code as a shell shows it, and what it said on stderr.
    pub(crate) fn end(mut self) -> (i32, String) {
        let status = self.status();
        // The last words may still be under way.
        wait_until("the end of stderr", || Arc::strong_count(&self.err) == 1);
        let code = status.code().or_else(|| Some(128 + status.signal()?));
        (code.expect("it exits, or a signal ends it"), self.err())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is a child").is_some()
    }

    pub(crate) fn status(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("its end", || {
            status = self.child.try_wait().expect("it is a child");
            status.is_some()
        });
        status.expect("it came")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A shell without job control starts what it leaves in the background, as a whole run of tests, with INT and QUIT ignored, and
/// leasehold respects that. The `env` of Linux can undo it.
const HEEDS: bool = cfg!(target_os = "linux");

/// A program that heeds all signals, where that can be had.
fn heeding(program: &str) -> Command {
    if !HEEDS {
        return Command::new(program);
    }
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", program]);
    command
}

/// Whether what these tests start can be interrupted.
pub(crate) fn can_be_interrupted() -> bool {
    if HEEDS {
        return true;
    }
    skip("this system may have these tests started with signals ignored");
    false
}

/// A machine that is busy for a moment spoils what is measured. Then the next attempt is made, and one of them must be right.
pub(crate) fn is_right_once<T: Debug>(attempts: impl IntoIterator<Item = T>, is_right: impl Fn(&T) -> bool) {
    let mut wrong = Vec::new();
    for attempt in attempts {
        if is_right(&attempt) {
            return;
        }
        wrong.push(attempt);
    }
    panic!("{wrong:?}");
}
