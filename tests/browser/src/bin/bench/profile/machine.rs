//! What a profile was measured on.

use std::{fs, process::Command, thread};

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
