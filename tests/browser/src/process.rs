//! The processes of a browser, as Linux shows them. WebDriver does not tell which one a page runs in.

use std::{
    collections::{HashMap, HashSet},
    fs,
    process::Command,
};

use anyhow::{Context as _, ensure};

/// Linux reports times to programs in ticks of 10 ms, whatever the length of its own ticks is.
const MS_PER_TICK: f64 = 10.0;
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
    Ok(below(root)?.iter().map(|stat| (stat.process, stat.time)).collect())
}

/// How long a process and all of its descendants have worked, in ms. One that has ended counts if its parent lives and has waited for it.
pub(crate) fn work_below(root: u32) -> anyhow::Result<f64> {
    Ok(below(root)?.iter().map(|stat| stat.time + stat.time_of_ended).sum::<u64>() as f64 * MS_PER_TICK)
}

/// How long this program and all that it has started have worked so far, in ms.
///
/// # Errors
/// On systems that do not tell.
pub fn own_work_ms() -> anyhow::Result<f64> {
    work_below(std::process::id())
}

fn below(root: u32) -> anyhow::Result<Vec<Stat>> {
    let all = fs::read_dir("/proc").context("the processes of a browser can be seen on Linux only")?;
    let mut all: Vec<_> = all.filter_map(|entry| stat(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect();
    let mut below = HashSet::from([root]);
    // Parents come before their children, but for numbers that were used again.
    while all.iter().any(|stat| below.contains(&stat.parent) && below.insert(stat.process)) {}
    all.retain(|stat| below.contains(&stat.process));
    Ok(all)
}

struct Stat {
    process: u32,
    parent: u32,
    time: u64,
    /// What those of its children worked that have ended, with their own children.
    time_of_ended: u64,
}

/// [proc_pid_stat(5)](https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html)
fn stat(process: u32) -> Option<Stat> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program may have blanks and parentheses in it.
    let fields: Vec<_> = line.rsplit(')').next()?.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        process,
        parent: number(1)?.try_into().ok()?,
        time: number(11)? + number(12)?,
        time_of_ended: number(13)? + number(14)?,
    })
}
