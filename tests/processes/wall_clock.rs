//! A wall clock that a test moves, while servers and other processes run by it.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::Command,
    sync::OnceLock,
};

use crate::{other::Scratch, skipped::skip};

/// The wall clock of the processes that get its [`environment`](Self::environment). Their monotonic clocks stay as they are.
pub(crate) struct WallClock {
    scratch: Scratch,
    library: PathBuf,
}

const AN_HOUR: i64 = 3_600;
/// Forward, back to the right time, and behind it: each time by an hour or two.
pub(crate) const JUMPS: [i64; 4] = [AN_HOUR, 0, -AN_HOUR, AN_HOUR];
/// The last jump sets the clock behind all times that it has shown before.
pub(crate) const BACK: i64 = -2 * AN_HOUR;

impl WallClock {
    /// A clock that is right until it jumps; `None` where none can be made, which in CI is a failure.
    pub(crate) fn new() -> Option<Self> {
        let scratch = Scratch::new();
        let library = preloaded("wall_clock", &scratch)?;
        let clock = Self { scratch, library };
        fs::write(clock.file(), 0_i64.to_ne_bytes()).expect("the folder is ours");
        Some(clock)
    }

    fn file(&self) -> PathBuf {
        self.scratch.0.join("seconds")
    }

    /// The environment variables that a process must be started with.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library.clone()), ("LEASEHOLD_TEST_CLOCK", self.file())]
    }

    /// Sets the clock this many seconds off the right time.
    pub(crate) fn jump(&self, seconds: i64) {
        let file = OpenOptions::new().write(true).open(self.file()).expect("it was written");
        // All processes have mapped the file, so it must not be truncated, even for a moment.
        file.write_all_at(&seconds.to_ne_bytes(), 0).expect("the disk is not full");
    }
}

/// A library that a process is to preload, from a file of C beside this one; `None` where none can be made, which in CI is a failure.
pub(crate) fn preloaded(name: &str, scratch: &Scratch) -> Option<PathBuf> {
    static COMPILES: OnceLock<bool> = OnceLock::new();
    let source = format!("{}/tests/processes/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let library = scratch.0.join(format!("{name}.so"));
    let compiled = cfg!(target_os = "linux")
        && Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status().is_ok();
    if !*COMPILES.get_or_init(|| compiled) {
        skip("a library to preload needs Linux and a C compiler");
        return None;
    }
    assert!(library.exists(), "the compiler refuses {source}");
    Some(library)
}
