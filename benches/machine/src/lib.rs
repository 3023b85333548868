//! What a benchmark runs on, how much of the processors other programs take meanwhile, and when a figure is judged. Both halves of the
//! benchmark use this crate: the one in browsers and the native one.

mod goal;
mod watch;
mod work;

pub use goal::{Bound, judgement, not_judged};
pub use watch::Watch;
pub use work::{Work, ms, own_work_ms, work_below};

use std::{fmt, fs, path::Path, process::Command, thread, time::Duration};

use serde_json::{Value, json};

/// How long other programs are watched before anything is measured.
const LOOK: Duration = Duration::from_secs(1);

/// The day, the commit, the processors, and how busy they are before the measurement: figures of a busy machine say little.
pub struct Machine {
    day: String,
    commit: String,
    processor: String,
    processors: usize,
    /// The mean number of running processes in the last minute.
    load: Option<f64>,
    others: Option<f64>,
}

impl Machine {
    /// This machine, and the commit that is checked out in a folder. Watches the processors for a second.
    #[must_use]
    pub fn here(folder: &Path) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let watch = Watch::begin();
        thread::sleep(LOOK);
        let others = watch.and_then(|watch| watch.others());
        Self { day: day(folder), commit: commit(folder), processor: processor(), processors, load: load(), others }
    }

    /// The same facts in JSON, for programs.
    #[must_use]
    pub fn facts(&self) -> Value {
        json!({
            "day": self.day,
            "commit": self.commit,
            "processor": self.processor,
            "processors": self.processors,
            "load_at_the_start": self.load,
            "processors_taken_by_others_at_the_start": self.others.map(rounded),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { day, commit, processor, processors, .. } = self;
        let load = self.load.map_or_else(|| "unknown".into(), |load| format!("{load:.1}"));
        write!(text, "{day}, commit {commit}, {processor}, {processors} processors, load {load} at the start")?;
        self.others.map_or(Ok(()), |others| write!(text, ", others use {} of the processors", percent(others)))
    }
}

/// To three decimals, as in the files of figures.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn day(folder: &Path) -> String {
    said_by("date", &["-u", "+%F"], folder).unwrap_or_else(|| "unknown day".into())
}

/// The commit that is checked out, with a `+` if files differ from it.
fn commit(folder: &Path) -> String {
    let args = ["describe", "--always", "--abbrev=8", "--exclude=*", "--dirty=+"];
    said_by("git", &args, folder).unwrap_or_else(|| "unknown".into())
}

fn said_by(program: &str, args: &[&str], folder: &Path) -> Option<String> {
    let told = Command::new(program).args(args).current_dir(folder).output().ok()?;
    told.status.success().then(|| String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

/// The name of the processor, if the system tells it.
fn processor() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = told.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("an unnamed processor", |(_, name)| name.trim()).to_owned()
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_alike_for_people_and_programs() {
        let machine = Machine {
            day: "2026-11-28".into(),
            commit: "0123abcd+".into(),
            processor: "Z80".into(),
            processors: 2,
            load: Some(0.52),
            others: Some(0.0345),
        };
        let said =
            "2026-11-28, commit 0123abcd+, Z80, 2 processors, load 0.5 at the start, others use 3 % of the processors";
        assert_eq!(machine.to_string(), said);
        let facts = machine.facts();
        assert_eq!((&facts["commit"], &facts["processors"]), (&json!("0123abcd+"), &json!(2)));
        assert_eq!(facts["processors_taken_by_others_at_the_start"], json!(0.035));
    }

    #[test]
    fn what_a_system_does_not_tell_is_left_out() {
        let machine = Machine { load: None, others: None, ..Machine::here(Path::new(".")) };
        assert!(machine.to_string().ends_with("load unknown at the start"), "{machine}");
        assert_eq!(machine.facts()["processors_taken_by_others_at_the_start"], Value::Null);
    }
}
