//! What dead processes left beside the file is removed in the end, even if all later processes live only briefly.

use std::{
    fs::{self, File},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use crate::harness::Scratch;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn signals(scratch: &Scratch) -> PathBuf {
    PathBuf::from(format!("{}-leasehold.d", scratch.file().display()))
}

/// A process that ends has no time to look at every file.
#[test]
fn processes_that_live_for_some_ms_sweep_old_beacons_bit_by_bit() {
    let scratch = Scratch::new();
    assert_eq!(scratch.done(&["run", "k", "--", "true"]).code, 0);
    let dead = 10_000_u128;
    for id in 1..=dead {
        let file = File::create(signals(&scratch).join(format!("{id:032x}.beacon"))).unwrap();
        file.set_modified(SystemTime::now() - 3 * DAY).unwrap();
    }
    for _ in 0..20 {
        assert_eq!(scratch.done(&["run", "k", "--", "true"]).code, 0);
    }
    let left = fs::read_dir(signals(&scratch)).unwrap().count();
    // Each process looks at 64 files. All of these are older than a day, so it removes them all.
    assert!(left as u128 <= dead - 20 * 60, "{left} of {dead} are left");
}
