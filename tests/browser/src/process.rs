//! The processes of a browser, as Linux shows them. WebDriver does not tell which one a page runs in.

use std::{collections::HashMap, fs, process::Command};

use anyhow::{Context as _, ensure};
use leasehold_bench_machine::{Work, ms};

/// Less work than this many ticks tells nothing.
const LEAST_TICKS: u64 = 3;

/// A process of a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

/// How long each process has worked, in ticks.
pub(crate) type Times = HashMap<u32, u64>;

impl Process {
    /// The one that has worked between the two looks, of those that run pages; none where it was not one above all.
    pub(crate) fn busiest_since(before: &Times, after: &Times) -> Option<Self> {
        let since = |process, time: &u64| time.saturating_sub(*before.get(process).unwrap_or(&0));
        let pages = after.iter().filter(|(process, _)| runs_pages(**process));
        let mut worked: Vec<_> = pages.map(|(process, time)| (since(process, time), *process)).collect();
        worked.sort_unstable();
        let (most, process) = worked.pop()?;
        let next = worked.pop().map_or(0, |(time, _)| time);
        (most >= LEAST_TICKS && most > 2 * next).then_some(Self(process))
    }

    /// Ends it, without a word.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn kill(self) -> anyhow::Result<()> {
        let status = Command::new("kill").args(["-KILL", &self.0.to_string()]).status()?;
        ensure!(status.success(), "the process {} cannot be killed", self.0);
        Ok(())
    }
}

fn runs_pages(process: u32) -> bool {
    let command = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
    command.contains("--type=renderer") || command.contains("-contentproc")
}

/// How long each descendant of a process has worked.
pub(crate) fn times_below(root: u32) -> anyhow::Result<Times> {
    Ok(below(root)?.iter().map(|work| (work.process, work.ticks)).collect())
}

/// How long a process and all of its descendants have worked, in ms. One that has ended counts if its parent lives and has waited for it.
pub(crate) fn work_below(root: u32) -> anyhow::Result<f64> {
    Ok(ms(&below(root)?))
}

fn below(root: u32) -> anyhow::Result<Vec<Work>> {
    leasehold_bench_machine::work_below(root).context("the processes of a browser can be seen on Linux only")
}
