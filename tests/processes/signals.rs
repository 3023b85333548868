//! The contract suite of signals over two processes.

use std::{path::Path, sync::Mutex, thread, time::Duration};

use futures::executor::block_on;
use leasehold::signal::{
    DirectorySignals,
    contract::{self, Half},
};

use crate::{Other, Scratch, say, told};

/// Several times what a message takes, or a look at the beacons.
const SETTLED: Duration = Duration::from_millis(120);

async fn settle() {
    thread::sleep(SETTLED);
}

/// The other process: does what it is told, and answers.
pub(crate) fn obey(directory: &Path) {
    let half = Half::new(DirectorySignals::new(directory));
    told().for_each(|line| say(&half.obey(&line)));
}

#[test]
fn signals_over_two_processes_keep_the_contract() {
    let scratch = Scratch::new();
    let (one, other) = (Half::new(DirectorySignals::new(&scratch.0)), Mutex::new(Other::start("half", &scratch)));
    let obey = async |line: String| other.lock().unwrap().ask(&line);
    block_on(contract::between(async |line: String| one.obey(&line), obey, settle));
}

#[test]
fn the_death_of_a_process_is_seen() {
    let scratch = Scratch::new();
    let (one, other) = (Half::new(DirectorySignals::new(&scratch.0)), Mutex::new(Other::start("half", &scratch)));
    let obey = async |line: String| other.lock().unwrap().ask(&line);
    let kill = async || other.lock().unwrap().kill();
    block_on(contract::a_death_is_seen(async |line: String| one.obey(&line), obey, kill, settle));
}
