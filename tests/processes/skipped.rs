//! What is not tested on this machine.

use std::{
    env,
    fs::OpenOptions,
    io::{Write, stderr},
};

/// Names the file that lists what was skipped: `make test` shows it at its end.
const LIST: &str = "LEASEHOLD_SKIPPED";

/// Says that a test, or a part of it, does not run, and why.
///
/// # Panics
/// In CI, where nothing may be skipped.
pub(crate) fn skip(why: &str) {
    assert!(env::var("CI").as_deref() != Ok("true"), "in CI nothing may be skipped: {why}");
    leave_out(why);
}

/// Says it of what no installation can provide: it is no failure in CI, either.
#[allow(dead_code, reason = "each program of tests has a copy of this module")]
pub(crate) fn leave_out(why: &str) {
    // The test harness keeps what a test prints, and shows it only if the test fails.
    let said = writeln!(stderr(), "SKIPPED: {why}");
    said.expect("there is a standard error");
    if let Some(list) = env::var_os(LIST) {
        let file = OpenOptions::new().create(true).append(true).open(list);
        // In one piece: tests run at once.
        file.and_then(|mut file| file.write_all(format!("  {why}\n").as_bytes())).expect("the list can be written");
    }
}
