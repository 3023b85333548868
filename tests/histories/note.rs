//! The notes of a process. Each note is a line that goes straight to a file, so that a killed process loses none.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::Path,
    sync::Mutex,
};

use leasehold::LostReason;
use nix::time::{ClockId, clock_gettime};

/// In µs, by a clock that all processes of the machine share.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Unix has it");
    u64::try_from(now.tv_sec()).expect("it is positive") * 1_000_000 + u64::try_from(now.tv_nsec()).unwrap() / 1_000
}

/// What became of a request, and of its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Asks {
        key: usize,
        steals: bool,
    },
    /// The request yields no guard, as far as its context knows.
    Refused,
    Granted {
        token: u64,
        shared: bool,
    },
    /// It was valid at some moment after this one and before the note.
    Valid {
        since: u64,
    },
    Lost(LostReason),
    /// Its holder is about to release it.
    Leaves,
    /// Its holder released it, and the store agreed that the lease was its own.
    Released,
    /// It was in doubt for long enough that its holder should have been notified by then.
    Untold,
    Wrote,
    /// The fence refused it, or its outcome is unknown.
    WroteNot,
}

/// A note of a context about one of its guards, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) at: u64,
    pub(crate) context: u64,
    pub(crate) guard: u64,
    pub(crate) what: What,
}

const REASONS: [LostReason; 9] = [
    LostReason::Expired,
    LostReason::Stolen,
    LostReason::Suspended,
    LostReason::Evicted,
    LostReason::StoreCleared,
    LostReason::StoreFailed,
    LostReason::StoreFull,
    LostReason::FormatTooNew,
    LostReason::Closed,
];

impl Note {
    fn line(&self) -> String {
        let Self { at, context, guard, what } = self;
        let what = match what {
            What::Asks { key, steals } => format!("asks {key} {}", u64::from(*steals)),
            What::Refused => "refused".into(),
            What::Granted { token, shared } => format!("granted {token} {}", u64::from(*shared)),
            What::Valid { since } => format!("valid {since}"),
            What::Lost(reason) => format!("lost {}", REASONS.iter().position(|known| known == reason).unwrap()),
            What::Leaves => "leaves".into(),
            What::Released => "released".into(),
            What::Untold => "untold".into(),
            What::Wrote => "wrote".into(),
            What::WroteNot => "wrote-not".into(),
        };
        format!("{at} {context} {guard} {what}\n")
    }

    /// `None` for a line that is not whole, because its process was killed.
    fn read(line: &str) -> Option<Self> {
        let mut words = line.strip_suffix('\n')?.split(' ');
        let [at, context, guard] = [words.next()?, words.next()?, words.next()?].map(str::parse::<u64>);
        let what = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let what = match what {
            "asks" => What::Asks { key: usize::try_from(number()?).ok()?, steals: number()? == 1 },
            "refused" => What::Refused,
            "granted" => What::Granted { token: number()?, shared: number()? == 1 },
            "valid" => What::Valid { since: number()? },
            "lost" => What::Lost(REASONS[usize::try_from(number()?).ok()?]),
            "leaves" => What::Leaves,
            "released" => What::Released,
            "untold" => What::Untold,
            "wrote" => What::Wrote,
            "wrote-not" => What::WroteNot,
            other => panic!("no note is called {other:?}"),
        };
        Some(Self { at: at.ok()?, context: context.ok()?, guard: guard.ok()?, what })
    }
}

/// The notes of one process.
pub(crate) struct Notebook(Mutex<File>);

impl Notebook {
    pub(crate) fn open(path: &Path) -> Self {
        Self(Mutex::new(OpenOptions::new().create(true).append(true).open(path).expect("the folder is there")))
    }

    pub(crate) fn write(&self, note: Note) {
        // The kernel has the line when this returns, whatever becomes of the process.
        self.0.lock().unwrap().write_all(note.line().as_bytes()).expect("the disk is not full");
    }

    /// The notes of all processes that had a notebook in this folder, in the order of time.
    pub(crate) fn read_all(folder: &Path) -> Vec<Note> {
        let files = fs::read_dir(folder).expect("the folder is there").map(|entry| entry.unwrap().path());
        let notebooks = files.filter(|path| path.extension().is_some_and(|extension| extension == "notes"));
        let texts = notebooks.map(|path| fs::read_to_string(path).expect("it is text"));
        let mut notes: Vec<_> =
            texts.flat_map(|text| text.split_inclusive('\n').filter_map(Note::read).collect::<Vec<_>>()).collect();
        notes.sort_by_key(|note| note.at);
        notes
    }
}
