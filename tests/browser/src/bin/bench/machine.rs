//! What it is measured on.

use std::{fs, process::Command, thread, time::Duration};

/// The day, the processor, how many of them, and how busy they are already: figures of a busy machine say little.
pub(crate) fn described() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let load = load().map_or_else(|| "unknown".into(), |load| format!("{load:.1}"));
    format!("{}, {}, {cores} processors, load {load} at the start", day(), processor())
}

fn day() -> String {
    let told = Command::new("date").args(["-u", "+%F"]).output();
    told.map_or_else(|_| "some day".into(), |told| String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

/// Its name, where the system tells it.
fn processor() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = told.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("an unnamed processor", |(_, name)| name.trim()).to_owned()
}

/// The mean number of running processes in the last minute.
fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// How long the processors are watched, before anything is measured.
const WATCH: Duration = Duration::from_secs(2);

/// The part of the processors' time that other programs take just now, from 0 to 1. The load average would still count the build.
pub(crate) fn busy() -> Option<f64> {
    let (worked, passed) = processors()?;
    thread::sleep(WATCH);
    let (worked_then, passed_then) = processors()?;
    Some((worked_then - worked) / (passed_then - passed))
}

/// What the processors have worked since the start, and the time that has passed for all of them, in ticks.
///
/// [proc_stat(5)](https://man7.org/linux/man-pages/man5/proc_stat.5.html)
fn processors() -> Option<(f64, f64)> {
    let told = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<f64> =
        told.lines().next()?.split_whitespace().skip(1).filter_map(|tick| tick.parse().ok()).collect();
    // User, nice, system, idle, waiting for a disk, and more; what a guest takes is counted as the user's, too.
    let passed = ticks.iter().take(8).sum::<f64>();
    Some((passed - ticks.get(3)? - ticks.get(4)?, passed))
}
