//! The CPU time of processes, as Linux reports it.

use std::{collections::HashSet, fs, io, process};

/// Linux reports times to programs in ticks of 10 ms, whatever the length of its own ticks is.
pub(crate) const MS_PER_TICK: f64 = 10.0;

/// A process, and its CPU time so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Its id.
    pub process: u32,
    parent: u32,
    /// Its CPU time, in ticks of 10 ms.
    pub ticks: u64,
    /// The CPU time of its children that have ended, and of their children.
    ticks_of_ended: u64,
}

/// The CPU time of this program and of all that it has started, in ms.
///
/// # Errors
/// On systems that do not tell it.
pub fn own_work_ms() -> io::Result<f64> {
    Ok(ms(&work_below(process::id())?))
}

/// A process and all of its descendants. One that has ended counts if its parent lives and has waited for it.
///
/// # Errors
/// On systems that do not tell.
pub fn work_below(root: u32) -> io::Result<Vec<Work>> {
    let all = fs::read_dir("/proc")?;
    let mut all: Vec<_> = all.filter_map(|entry| work_of(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect();
    let mut below = HashSet::from([root]);
    // A child may be listed before its parent, because ids are used again. So this repeats until it finds no more.
    while all.iter().any(|work| below.contains(&work.parent) && below.insert(work.process)) {}
    all.retain(|work| below.contains(&work.process));
    Ok(all)
}

/// The CPU time of all of these processes, with that of children that have ended, in ms.
#[must_use]
pub fn ms(all: &[Work]) -> f64 {
    all.iter().map(|work| work.ticks + work.ticks_of_ended).sum::<u64>() as f64 * MS_PER_TICK
}

fn work_of(process: u32) -> Option<Work> {
    parsed(process, &fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// [proc_pid_stat(5)](https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html)
fn parsed(process: u32, line: &str) -> Option<Work> {
    // The name of the program may have blanks and parentheses in it.
    let fields: Vec<_> = line.rsplit(')').next()?.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Work {
        process,
        parent: number(1)?.try_into().ok()?,
        ticks: number(11)? + number(12)?,
        ticks_of_ended: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_may_look_like_other_fields() {
        let line = "7 (a) 1 (b) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99";
        assert_eq!(parsed(7, line), Some(Work { process: 7, parent: 3, ticks: 30, ticks_of_ended: 70 }));
        assert_eq!(parsed(7, "7 (a) S 3"), None);
    }

    #[test]
    fn work_is_that_of_the_ended_too() {
        let work = |process, ticks, ticks_of_ended| Work { process, parent: 1, ticks, ticks_of_ended };
        assert_eq!(ms(&[work(2, 3, 4), work(3, 5, 0)]), 120.0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_program_is_among_its_own() {
        let own = work_below(process::id()).unwrap();
        assert!(own.iter().any(|work| work.process == process::id()));
    }
}
