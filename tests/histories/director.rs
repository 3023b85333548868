//! Starts the processes of a history, injects faults, and has the judge read what the processes wrote down.

use std::{
    collections::hash_map::RandomState,
    env,
    hash::{BuildHasher, Hasher},
    thread,
    time::{Duration, Instant},
};

use super::{Dice, Notebook, What, court, judge::Tally, player::Part};
use crate::{
    histories::Note,
    other::{Other, Scratch, killing_lasts},
};

/// The faults of processes.
const DEATH: &str = "a process was killed";
const PAUSE: &str = "a process was stopped";
const PROCESSES: usize = 3;
/// What happens on every store.
const EXPECTED: [&str; 7] = [
    DEATH,
    PAUSE,
    "a lease was granted",
    "a theft was asked for",
    "a loss was told",
    "a write was committed",
    "a release came in time",
];

/// A store that processes share, and the faults that it can have.
pub(crate) trait Site {
    /// The faults of its server, and of the connections to it.
    const SPOILS: &'static [&'static str];

    /// Starts a process in this role. Each slot reaches the server in its own way.
    fn start(&self, slot: usize, role: &str) -> Other;

    /// Injects this fault into a slot's way to the server, or into the server itself.
    fn spoil(&mut self, slot: usize, what: &'static str, dice: &mut Dice);

    /// Makes all ways lead to a server that answers.
    fn heal(&mut self);

    /// The keys and tokens of all fenced writes, in the order of their commits.
    fn writes(&mut self) -> Vec<(usize, u64)>;
}

/// Runs histories in which processes are killed at random, one after the other. If an expected event is still
/// missing after that time, it runs more histories, for at most six times as long in all.
pub(crate) fn histories<S: Site>(mut site: S) {
    let given = env::var("HISTORY_SEED").ok().map(|seed| seed.parse().expect("it is a number"));
    let mut seed: u64 = given.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 32);
    let (began, tally, mut judged) = (Instant::now(), Tally::default(), (0, 0, 0));
    let missing = |tally: &Tally| tally.missing(EXPECTED.into_iter().chain(S::SPOILS.iter().copied()));
    let lasts = || if missing(&tally).is_empty() { killing_lasts() } else { killing_lasts() * 6 };
    while began.elapsed() < lasts() {
        let (guards, notes) = history(&mut site, seed, &tally);
        judged = (judged.0 + 1, judged.1 + guards, judged.2 + notes);
        seed += 1;
    }
    let (histories, guards, notes) = judged;
    println!("{histories} histories, {guards} guards, {notes} notes in {:?}\n{}", began.elapsed(), tally.table());
    let missing = missing(&tally);
    assert!(missing.is_empty(), "the histories are too kind; this never happened: {missing:?}");
}

fn history<S: Site>(site: &mut S, seed: u64, tally: &Tally) -> (usize, usize) {
    let (scratch, mut dice, earlier) = (Scratch::new(), Dice(seed), site.writes().len());
    let mut cast = Cast { scratch: &scratch, seed, started: 0 };
    let mut others: Vec<Other> = (0..PROCESSES).map(|slot| cast.start(site, slot)).collect();
    for what in faults::<S>(&mut dice) {
        // The time between two faults.
        thread::sleep(Duration::from_millis(100 + dice.below(400)));
        let slot = dice.index(PROCESSES);
        match what {
            DEATH => {
                others[slot].kill();
                others[slot] = cast.start(site, slot);
            }
            PAUSE => {
                others[slot].stop();
                // Some processes outlive a stop, and some lose their leases.
                thread::sleep(Duration::from_millis(300 + dice.below(2_000)));
                others[slot].go_on();
            }
            what => site.spoil(slot, what, &mut dice),
        }
        tally.count(what, ());
    }
    site.heal();
    others.iter_mut().for_each(|other| other.tell("over"));
    let ended: Vec<_> = others.iter_mut().map(Other::hear).collect();
    let (notes, writes) = (Notebook::read_all(&scratch.0), site.writes().split_off(earlier));
    count(&notes, writes.len(), tally);
    let replay = format!("HISTORY_SEED={seed} makes the same random choices again");
    assert!(ended.iter().all(|said| said == "done"), "{ended:?}: a process waits for ever; {replay}");
    match court::judge(&notes, &writes, tally) {
        Ok(guards) => (guards, notes.len()),
        Err(wrong) => panic!("{wrong}\n{replay}; the notes are in {}", keep(scratch).display()),
    }
}

/// All faults of a store, and a larger number of process deaths and pauses, in random order.
fn faults<S: Site>(dice: &mut Dice) -> Vec<&'static str> {
    let of_processes = [DEATH, PAUSE, DEATH].into_iter().cycle().take(6 + S::SPOILS.len());
    let mut faults: Vec<_> = S::SPOILS.iter().copied().chain(of_processes).collect();
    for last in (1..faults.len()).rev() {
        faults.swap(last, dice.index(last + 1));
    }
    faults
}

/// Keeps the notes, so that somebody can read why a history was refused.
fn keep(scratch: Scratch) -> std::path::PathBuf {
    let folder = scratch.0.clone();
    std::mem::forget(scratch);
    folder
}

fn count(notes: &[Note], writes: usize, tally: &Tally) {
    for note in notes {
        match note.what {
            What::Asks { steals: true, .. } => tally.count("a theft was asked for", ()),
            What::Granted { shared: true, .. } => tally.count("a lease was shared", ()),
            What::Granted { .. } => tally.count("a lease was granted", ()),
            What::Released => tally.count("a release came in time", ()),
            What::WroteNot => tally.count("a write was refused, or its outcome is unknown", ()),
            _ => {}
        }
    }
    (0..writes).for_each(|_| tally.count("a write was committed", ()));
}

/// Gives each process a number, a seed and a notebook.
struct Cast<'a> {
    scratch: &'a Scratch,
    seed: u64,
    started: u64,
}

impl Cast<'_> {
    fn start(&mut self, site: &impl Site, slot: usize) -> Other {
        self.started += 1;
        let notebook = self.scratch.0.join(format!("{}.notes", self.started));
        site.start(slot, &Part::role(self.started, self.seed, &notebook))
    }
}
