//! Another process, which plays a role; and a directory that both share.

use std::{
    env,
    io::{BufRead, BufReader, Lines, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio, id},
    sync::atomic::{AtomicU64, Ordering},
};

/// Names what the other process is to do; without it, a test is the first process.
const ROLE: &str = "LEASEHOLD_TEST_ROLE";
/// The directory that both share.
const DIRECTORY: &str = "LEASEHOLD_TEST_DIRECTORY";

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

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Another process, which runs the test `the_other_process` of this file in a role. It is spoken with line by line.
pub(crate) struct Other {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// What the other process says begins with this: its test harness says more.
const MARK: &str = "leasehold says ";

impl Other {
    pub(crate) fn start(role: &str, scratch: &Scratch) -> Self {
        Self::start_by(&env::current_exe().expect("this test is a file"), role, scratch, |_| ())
    }

    /// From a copy of this program, and with something else about the process.
    pub(crate) fn start_by(program: &Path, role: &str, scratch: &Scratch, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(program);
        change(&mut command);
        command.args(["the_other_process", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(DIRECTORY, &scratch.0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (child.stdin.take().expect("it is piped"), child.stdout.take().expect("it is piped"));
        Self { child, input, output: BufReader::new(output).lines() }
    }

    /// What it says next.
    pub(crate) fn hear(&mut self) -> String {
        for line in self.output.by_ref() {
            let line = line.expect("it is text");
            if let Some((_, said)) = line.split_once(MARK) {
                return said.to_owned();
            }
        }
        panic!("the other process ended without a word");
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

    #[allow(dead_code, reason = "not every test sends signals")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// It dies without a word.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is a process of ours");
        self.child.wait().expect("it ends");
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

/// The role of this process and its directory, if it is the other process. For the test `the_other_process` of each file.
pub(crate) fn role() -> Option<(String, PathBuf)> {
    let role = env::var(ROLE).ok()?;
    Some((role, env::var(DIRECTORY).expect("a role comes with a directory").into()))
}
