//! Pipes that nobody reads: leasehold goes on though it cannot say what it has to say.

use std::{
    fs::File,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    process::Command,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use crate::harness::{Running, Scratch, can_be_interrupted};
use crate::signals::NAPS;
use crate::skipped::skip;

/// A named pipe in the folder of a test, as full as it can be; `None` where no pipe can be opened for both ends.
fn full(scratch: &Scratch, name: &str) -> Option<File> {
    if !cfg!(target_os = "linux") {
        skip("only Linux opens both ends of a pipe at once");
        return None;
    }
    let path = scratch.0.join(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut options = File::options();
    let mut pipe = options.read(true).write(true).custom_flags(nix::libc::O_NONBLOCK).open(path).unwrap();
    let mut count = 65_536;
    while count > 0 {
        if pipe.write(&vec![b'x'; count]).is_err() {
            count /= 2;
        }
    }
    Some(pipe)
}

/// A line of shell that becomes leasehold.
fn becomes(scratch: &Scratch, line: &str) -> Running {
    Running::start(&mut scratch.command("sh", &["-c", &format!("exec {line}")]))
}

#[test]
fn a_loss_ends_the_command_though_nobody_reads_stderr() {
    let scratch = Scratch::new();
    let Some(_pipe) = full(&scratch, "err") else { return };
    let holder = becomes(&scratch, &format!("leasehold run --grace 0.3 k -- sh -c 'trap \"\" TERM; {NAPS}' 2>err"));
    assert_eq!(holder.line().as_deref(), Some("ready"));
    assert_eq!(scratch.done(&["steal", "k"]).code, 0);
    assert_eq!(holder.line(), None, "nobody has stdout open any more");
    assert_eq!(holder.end().0, 75);
}

#[test]
fn a_last_message_that_nobody_reads_does_not_keep_leasehold() {
    let scratch = Scratch::new();
    let Some(_pipe) = full(&scratch, "err") else { return };
    let start = Instant::now();
    assert_eq!(becomes(&scratch, "leasehold list --store carrier-pigeon:here 2>err").end().0, 64);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_watcher_whose_output_nobody_reads_can_be_ended() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    let Some(_pipe) = full(&scratch, "out") else { return };
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let watcher = becomes(&scratch, "leasehold watch --json >out");
        watcher.until_err("there is no such file yet");
        watcher.signal(signal);
        assert_eq!(watcher.end().0, code);
    }
}
