//! What is measured, and on what.

use std::{fs, process::Command, thread};

use leasehold_browser_tests::own_work_ms;
use serde_json::{Value, json};

/// The day, the commit, the processor, how many of them, and how busy they are already: figures of a busy machine say little.
pub(crate) fn described() -> String {
    let load = load().map_or_else(|| "unknown".into(), |load| format!("{load:.1}"));
    format!("{}, commit {}, {}, {} processors, load {load} at the start", day(), commit(), processor(), processors())
}

/// The same for programs.
pub(crate) fn facts() -> Value {
    json!({
        "day": day(),
        "commit": commit(),
        "processor": processor(),
        "processors": processors(),
        "load_at_the_start": load(),
    })
}

fn day() -> String {
    said_by("date", &["-u", "+%F"]).unwrap_or_else(|| "some day".into())
}

/// The one that is checked out. It is followed by a `+` if files differ from it.
fn commit() -> String {
    said_by("git", &["describe", "--always", "--abbrev=8", "--exclude=*", "--dirty=+"])
        .unwrap_or_else(|| "unknown".into())
}

fn said_by(program: &str, args: &[&str]) -> Option<String> {
    let told = Command::new(program).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    told.status.success().then(|| String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

/// Its name, where the system tells it.
fn processor() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = told.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("an unnamed processor", |(_, name)| name.trim()).to_owned()
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The mean number of running processes in the last minute.
fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Watches what other programs do to the processors. The load average would count the browser, too.
pub(crate) struct Watch {
    worked_ms: f64,
    own_ms: f64,
    passed_ms: f64,
}

impl Watch {
    /// None on systems that do not tell.
    pub(crate) fn begin() -> Option<Self> {
        let (worked_ms, passed_ms) = times()?;
        Some(Self { worked_ms, own_ms: own_work_ms().ok()?, passed_ms })
    }

    /// The part of the processors' time that other programs have taken since the beginning, from 0 to 1.
    pub(crate) fn others(&self) -> Option<f64> {
        let now = Self::begin()?;
        let others_ms = now.worked_ms - self.worked_ms - (now.own_ms - self.own_ms);
        Some((others_ms / (now.passed_ms - self.passed_ms)).max(0.0))
    }
}

/// What all processors have worked since the system's start, and the time that has passed for all of them, in ms.
///
/// [proc_stat(5)](https://man7.org/linux/man-pages/man5/proc_stat.5.html)
fn times() -> Option<(f64, f64)> {
    /// Linux reports times to programs in ticks of 10 ms.
    const MS_PER_TICK: f64 = 10.0;
    let told = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<f64> =
        told.lines().next()?.split_whitespace().skip(1).filter_map(|tick| tick.parse().ok()).collect();
    // User, nice, system, idle, waiting for a disk, and more; what a guest takes is counted as the user's, too.
    let passed = ticks.iter().take(8).sum::<f64>();
    Some(((passed - ticks.get(3)? - ticks.get(4)?) * MS_PER_TICK, passed * MS_PER_TICK))
}
