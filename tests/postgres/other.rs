//! Another process, which runs the test `the_other_process` in a role. It is spoken with line by line.

use std::{
    env,
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

const ROLE: &str = "LEASEHOLD_TEST_ROLE";
const URL: &str = "LEASEHOLD_TEST_URL";
const PREFIX: &str = "LEASEHOLD_TEST_PREFIX";
/// What the other process says begins with this: its test harness says more.
const MARK: &str = "leasehold says ";

/// What this process is to do, if it is another one.
pub(crate) struct Role {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) prefix: String,
}

pub(crate) fn role() -> Option<Role> {
    let name = env::var(ROLE).ok()?;
    let [url, prefix] = [URL, PREFIX].map(|name| env::var(name).expect("a role comes with a place"));
    Some(Role { name, url, prefix })
}

pub(crate) struct Other {
    pub(crate) child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Other {
    pub(crate) fn start(role: &str, place: &crate::server::Place) -> Self {
        let mut command = Command::new(env::current_exe().expect("this test is a file"));
        command.args(["the_other_process", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(URL, &place.url).env(PREFIX, &place.prefix);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (child.stdin.take().expect("it is piped"), child.stdout.take().expect("it is piped"));
        Self { child, input, output: BufReader::new(output).lines() }
    }

    /// What it says next.
    pub(crate) fn hear(&mut self) -> String {
        self.try_hear().expect("the other process ended without a word")
    }

    /// What it says next, unless it ended.
    pub(crate) fn try_hear(&mut self) -> Option<String> {
        let lines = self.output.by_ref().map_while(Result::ok);
        lines.into_iter().find_map(|line| line.split_once(MARK).map(|(_, said)| said.to_owned()))
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the other process listens");
    }

    /// Tells it a line, and hears its answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// It dies without a word.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is a process of ours");
        self.child.wait().expect("it ends");
    }

    /// Sends it a signal such as STOP.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.expect("every Unix has it").success());
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
