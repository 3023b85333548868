//! The other process: this program, started once more in a role.

use std::{
    env,
    io::{BufRead, BufReader, Lines, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

/// Names the role of the other process. Without it, this is the first.
const ROLE: &str = "LEASEHOLD_BENCH_ROLE";

/// The role of this process, if it is the other one.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// A process that is told lines, and answers with lines.
pub(crate) struct Partner {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Partner {
    pub(crate) fn start(role: &str, place: &Path) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program is a file"));
        command.arg(place).env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process can be started");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, input, output: BufReader::new(output).lines() }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the other process listens");
    }

    pub(crate) fn hear(&mut self) -> String {
        self.output.next().expect("the other process answers").expect("in UTF-8")
    }

    /// What it says is a moment: see [`moment`].
    pub(crate) fn hear_moment(&mut self) -> f64 {
        self.hear().parse().expect("it says a moment")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends");
    }

    /// The processor time that it used so far, in ms. Linux tells it, in hundredths of a second.
    pub(crate) fn cpu_ms(&self) -> f64 {
        let told = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let fields: Vec<&str> = told.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
        (ticks(11) + ticks(12)) * 10.0
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// This moment in µs, by a clock that both processes read.
pub(crate) fn moment() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs_f64() * 1e6
}

pub(crate) fn say(line: impl std::fmt::Display) {
    println!("{line}");
}

/// What the first process tells, until it ends.
pub(crate) fn told() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}
