//! The processes of a browser, told apart by what they do. Linux only: it reads `/proc`.

use std::{collections::HashMap, fs};

use anyhow::Context as _;

/// The processor time that each process of a group has used so far, in ticks.
pub(crate) fn used_by_group(group: u32) -> anyhow::Result<HashMap<u32, u64>> {
    let all = fs::read_dir("/proc").context("processes are told apart on Linux only")?;
    let processes = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    Ok(processes.filter_map(|process| Some((process, used_within(group, process)?))).collect())
}

/// Who has used most since.
pub(crate) fn busiest_since(before: &HashMap<u32, u64>, group: u32) -> anyhow::Result<u32> {
    let used = |(process, ticks): (u32, u64)| (ticks.saturating_sub(*before.get(&process).unwrap_or(&0)), process);
    let most = used_by_group(group)?.into_iter().map(used).max();
    most.map(|(_, process)| process).context("the browser has no process")
}

/// None for a process of another group, or one that is gone.
fn used_within(group: u32, process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold anything; after it come state, parent, group, …, and as 12th and 13th the two times.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
    (number(2)? == u64::from(group)).then_some(number(11)? + number(12)?)
}
