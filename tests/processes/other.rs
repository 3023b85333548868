//! Another process, which plays a role; and what both share. Each test program that has one uses this file.
#![allow(dead_code, reason = "no test program needs all of it")]

use std::{
    env,
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio, id},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Names what the other process is to do; without it, a test is the first process.
const ROLE: &str = "LEASEHOLD_TEST_ROLE";
/// Names what both share: a word a line.
const PLACE: &str = "LEASEHOLD_TEST_PLACE";

/// For how long processes are killed at random: `make test` and `make test-long` say for longer.
pub(crate) fn killing_lasts() -> Duration {
    Duration::from_secs(
        env::var("LEASEHOLD_KILL_SECONDS").map_or(10, |seconds| seconds.parse().expect("whole seconds")),
    )
}

/// If the killing has not proved enough when its time is over, as on a busy machine, it goes on: until this time, or until six times its own.
const LONGEST_KILLING: Duration = Duration::from_secs(180);

/// Whether more processes are to be killed.
pub(crate) fn kills_more(began: Instant, proves_enough: impl FnOnce() -> bool) -> bool {
    let killed_for = began.elapsed();
    let longest = LONGEST_KILLING.max(6 * killing_lasts());
    killed_for < killing_lasts() || (killed_for < longest && !proves_enough())
}

/// What both processes share, in words: a directory, or a server and a prefix.
pub(crate) trait Shared {
    fn words(&self) -> Vec<String>;
}

/// A directory of its own for each test, gone with it.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("leasehold-{}-{}", id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("the directory is new");
        Self(path)
    }
}

impl Shared for Scratch {
    fn words(&self) -> Vec<String> {
        vec![self.0.to_str().expect("a path in UTF-8").to_owned()]
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A server and a prefix.
impl Shared for (&str, &str) {
    fn words(&self) -> Vec<String> {
        vec![self.0.to_owned(), self.1.to_owned()]
    }
}

/// Another process, which runs the test `the_other_process` of this file in a role. It is spoken with line by line.
pub(crate) struct Other {
    child: Child,
    input: ChildStdin,
    said: Receiver<String>,
}

/// What the other process says begins with this: its test harness says more.
const MARK: &str = "leasehold says ";

/// What a process says. It is read as it comes, so that no process waits until somebody listens.
fn said_on(output: ChildStdout) -> Receiver<String> {
    let (sender, said) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // It fails if nobody listens.
            drop(line.split_once(MARK).map(|(_, said)| sender.send(said.to_owned())));
        }
    });
    said
}

impl Other {
    pub(crate) fn start(role: &str, shared: &impl Shared) -> Self {
        Self::start_by(&env::current_exe().expect("this test is a file"), role, shared, |_| ())
    }

    /// From a copy of this program, and with something else about the process.
    pub(crate) fn start_by(
        program: &Path,
        role: &str,
        shared: &impl Shared,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = Command::new(program);
        change(&mut command);
        command.args(["the_other_process", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(PLACE, shared.words().join("\n"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (child.stdin.take().expect("it is piped"), child.stdout.take().expect("it is piped"));
        Self { child, input, said: said_on(output) }
    }

    /// What it says next.
    pub(crate) fn hear(&mut self) -> String {
        self.try_hear().expect("the other process ended without a word")
    }

    /// What it says next, unless it ended.
    #[allow(clippy::needless_pass_by_ref_mut, reason = "what it says is heard by one only")]
    pub(crate) fn try_hear(&mut self) -> Option<String> {
        self.said.recv().ok()
    }

    /// What it says next, unless it ends or stays silent for this long.
    #[allow(clippy::needless_pass_by_ref_mut, reason = "what it says is heard by one only")]
    pub(crate) fn hear_within(&mut self, limit: Duration) -> Option<String> {
        self.said.recv_timeout(limit).ok()
    }

    /// Tells it a line.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the other process listens");
    }

    /// Tells it a line, and hears its answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// Stops it. When this returns, nothing of it runs.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
        while !self.is_stopped() {}
    }

    /// Stops them at the same moment. When this returns, nothing of them runs.
    pub(crate) fn stop_together<'a>(others: impl Iterator<Item = &'a Self> + Clone) {
        let processes = others.clone().map(|other| other.child.id().to_string());
        let sent = Command::new("kill").arg("-STOP").args(processes).status();
        assert!(sent.expect("there is a kill").success());
        others.for_each(|other| while !other.is_stopped() {});
    }

    pub(crate) fn is_stopped(&self) -> bool {
        let state = Command::new("ps").args(["-o", "stat=", "-p", &self.child.id().to_string()]).output();
        state.expect("there is a ps").stdout.starts_with(b"T")
    }

    /// Lets it go on after a stop.
    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    /// Sends it a signal, such as `-TERM`.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("there is a kill").success());
    }

    /// Whether it ended by itself, and well.
    pub(crate) fn ended_well(&mut self) -> bool {
        self.child.wait().expect("it ends").success()
    }

    /// It dies without a word.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is a process of ours");
        self.child.wait().expect("it ends");
    }

    /// Kills it at work: it must not have ended by itself. Returns what it has said that nobody has heard yet.
    pub(crate) fn kill_at_work(&mut self) -> impl Iterator<Item = String> {
        self.child.kill().expect("it is a process of ours");
        let ended = self.child.wait().expect("it ends");
        assert_eq!(ended.signal(), Some(9), "it ended by itself, {ended}: its words are above");
        self.said.iter()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn say(line: &str) {
    println!("{MARK}{line}");
}

/// What the first process tells, until it ends.
pub(crate) fn told() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}

/// The role of this process, and the words of what it shares, if it is the other process. For the test `the_other_process` of each
/// program.
pub(crate) fn role<const WORDS: usize>() -> Option<(String, [String; WORDS])> {
    let role = env::var(ROLE).ok()?;
    let place = env::var(PLACE).expect("a role comes with a place");
    let words: Vec<String> = place.split('\n').map(str::to_owned).collect();
    Some((role, words.try_into().expect("the place has as many words as its program says")))
}
