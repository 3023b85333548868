//! The other process: this program, started once more in a role.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::trial::Engine;

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
    output: UnboundedReceiver<String>,
}

impl Partner {
    /// The process is told the engine and its URL as arguments.
    pub(crate) fn start<E: Engine>(role: &str, url: &str) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program is a file"));
        command.args([E::NAME, url]).env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process can be started");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, input, output: lines(BufReader::new(output)) }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the other process listens");
    }

    pub(crate) async fn hear(&mut self) -> String {
        self.output.recv().await.expect("the other process answers")
    }

    /// What it says is a moment: see [`moment`].
    pub(crate) async fn hear_moment(&mut self) -> f64 {
        self.hear().await.parse().expect("it says a moment")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends");
    }

    /// The CPU time that its threads have used so far, in ms. Linux reports it in ns.
    pub(crate) fn cpu_ms(&self) -> f64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        let used = threads.filter_map(|thread| {
            let told = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            told.split_whitespace().next()?.parse::<f64>().ok()
        });
        used.sum::<f64>() / 1e6
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
pub(crate) fn told() -> UnboundedReceiver<String> {
    lines(BufReader::new(std::io::stdin()))
}

/// A thread waits for the lines: meanwhile the runtime goes on with heartbeats and signals.
fn lines(input: impl BufRead + Send + 'static) -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    thread::spawn(move || input.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    receiver
}
