//! Another process, which runs the test `the_other_process` of this file in a role. It is spoken with line by line.

use std::{
    env,
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Names what the other process is to do; without it, a test is the first process.
pub(crate) const ROLE: &str = "LEASEHOLD_TEST_ROLE";
/// The address of the server that both share.
pub(crate) const SERVER: &str = "LEASEHOLD_TEST_SERVER";
/// The prefix of their store.
pub(crate) const PREFIX: &str = "LEASEHOLD_TEST_PREFIX";

pub(crate) struct Other {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// What the other process says begins with this: its test harness says more.
const MARK: &str = "leasehold says ";

impl Other {
    pub(crate) fn start(role: &str, server: &str, prefix: &str) -> Self {
        let mut command = Command::new(env::current_exe().expect("this test is a file"));
        command.args(["the_other_process", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(SERVER, server).env(PREFIX, prefix).stderr(Stdio::null());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (child.stdin.take().expect("it is piped"), child.stdout.take().expect("it is piped"));
        Self { child, input, output: BufReader::new(output).lines() }
    }

    /// What it says next, `None` if it ended without a word.
    pub(crate) fn heard(&mut self) -> Option<String> {
        let said = |line: String| Some(line.split_once(MARK)?.1.to_owned());
        self.output.by_ref().find_map(|line| said(line.expect("it is text")))
    }

    pub(crate) fn hear(&mut self) -> String {
        self.heard().expect("the other process says something before it ends")
    }

    /// Tells it a line, and hears its answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the other process listens");
    }

    /// Stops it. When this returns, nothing of it runs.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
        let state = || Command::new("ps").args(["-o", "stat=", "-p", &self.child.id().to_string()]).output();
        while !state().expect("there is a ps").stdout.starts_with(b"T") {}
    }

    /// Lets it go on after a stop.
    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("there is a kill").success());
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
