//! Signals between the processes of one machine, through a directory that all of them can write to. They need no server, and no thread
//! of a context that neither holds nor waits.

pub(super) mod beacon;
mod ear;
mod listener;
pub(super) mod rights;
mod sentry;
pub(super) mod sweep;
#[cfg(all(test, unix))]
mod tests;

use std::{
    fs, io,
    iter::Peekable,
    path::{self, Path, PathBuf},
    thread,
};

use super::{Beacons, Inbox, Notice, Signals};
use crate::executor::{Mutex, ProcessMark, Shared, WeakShared, this_process};
use crate::machine::{Message, SessionId};
use crate::store::Reach;

use beacon::Beacon;
use ear::Ear;
use listener::Listener;
use rights::Rights;

/// Messages and beacons between the processes of one machine that share a directory.
///
/// * A beacon is a file on which its context keeps a lock
///   ([`File::lock`](https://doc.rust-lang.org/std/fs/struct.File.html#method.lock)). The operating system frees the lock when
///   the process dies, however it dies. So if a holder is killed, the next waiter is granted the lease within a few ms. A
///   process that is stopped or hangs keeps its lock. So does a process that was killed after it forked another one without
///   `exec`, as long as that one lives: then the holder is replaced after a lease of silence.
/// * A message is a datagram to the socket of the context that it concerns. On Windows, which has no such sockets in Rust's
///   standard library, no message arrives, so a waiter reads the store once per heartbeat.
///
/// A manager over a store with [`Reach::Machine`], such as `SqliteStore`, has these signals
/// already.
///
/// # For which stores its beacons count
/// Only for a store whose reach is `Reach::Machine` with this very directory. By this reach the store promises that only processes of this
/// machine share it, and that all of them name the same directory. So a store of your own that lives on this machine gets messages and
/// beacons by naming a directory as its reach, and needs no [`signals`](crate::LeaseManagerBuilder::signals). If it says so although
/// another machine shares it, or although its contexts name different directories, living holders are evicted.
///
/// For a store of any other reach, these signals carry messages only, and a dead holder is replaced after a lease of silence: a directory
/// of one machine shows nothing of other machines, even if they have one of the same path.
///
/// # When a beacon counts as gone
/// * Its file is there, and nobody has it locked: the process died, or the end of the session could not be written. Waiters see that at
///   once.
/// * Its file was open here before, and the lock on it was dropped: the context died or rests. Waiters see that at once.
/// * There has been no file for 2.5 s: the context rests, or it died and its file is gone, too.
///
/// The file of a dead context stays for about a day: the context may have been in a queue, and then waiters look for its file long after
/// its death. After that day it is swept away. If there are more than 1,024 files, a sweep also removes all but the 512 youngest of the
/// dead. A context sweeps once it has been awake for 10 s. A context that ends sweeps 64 files before its process can end, unless another
/// context of this process did so in the last 10 s.
///
/// So a living context is not taken for dead because somebody deleted its file, or the whole directory: once a second it looks for
/// its own beacon and socket, and makes them again. If it cannot raise the beacon again, it goes on without one, and says so in
/// the store. Don't delete the files of a process that is stopped, though, or of one that gets no time for seconds: it cannot look.
///
/// # The directory
/// It must be on a file system of this machine: a network file system may drop a lock while its process lives. It is made when it is first
/// needed, but not its parent directory. If it cannot be made, or nothing can be made in it, there are neither messages nor beacons, and a
/// dead holder is replaced after a lease of silence; nothing reports that. Whoever can write to it can forge messages, so give it the
/// permissions of the store. Whatever the umask is, each file in it gets its permissions; its group, if the process is in that group; and
/// its owner, if root makes the file. Sockets get these on Linux only: elsewhere, the umask decides who can send to them. A directory that
/// somebody deletes while it is in use is made again for the same users.
///
/// ```no_run
/// # use leasehold::{LeaseManager, executor::TokioExecutor, signal::DirectorySignals, store::Store};
/// # fn example(store: impl Store) -> Result<(), leasehold::InvalidOptions> {
/// // Messages between the processes of this machine; beacons, too, if the store's reach is `Reach::Machine` with this directory.
/// let signals = DirectorySignals::new("/var/lib/my-app/leases");
/// let leases = LeaseManager::builder(store, TokioExecutor::new()).signals(signals).build()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DirectorySignals {
    directory: PathBuf,
    /// The permissions of the directory when it was last seen. If somebody deletes the directory, it is created again for the same users.
    rights: Mutex<Option<Rights>>,
    awake: Mutex<Option<Awake>>,
}

/// At most this many other contexts get a broadcast before [`send`](Signals::send) returns.
const FEW: usize = 64;

/// What stands between [`wake`](Signals::wake) and [`rest`](Signals::rest).
#[derive(Debug)]
struct Awake {
    /// A fork copies it into another one, where the thread of the listener does not run.
    process: ProcessMark,
    session: SessionId,
    listener: Shared<Listener>,
}

impl Drop for Awake {
    fn drop(&mut self) {
        // The thread that the copy does not have still has its part of the listener. So the files of the parent stay.
        if self.process == this_process() {
            self.listener.end();
        }
    }
}

impl DirectorySignals {
    /// Signals in this directory. Nothing is made or opened yet. A relative path begins at the working directory of this moment.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        // It fails for an empty path, which names no directory anyway.
        let directory = path::absolute(&directory).unwrap_or(directory);
        let rights = Mutex::new(Rights::of(&directory).ok());
        Self { directory, rights, awake: Mutex::default() }
    }

    /// Whether the beacon of a session stands at this moment. It is for display, for instance of a [holder](crate::HolderStatus) that
    /// raised one. It needs no listener, and waits for nothing.
    ///
    /// If it does not stand, the context has ended, or somebody has just deleted the beacon's file. So this alone does not prove a
    /// death: a request that waits finds out.
    ///
    /// ```no_run
    /// # use leasehold::{LeaseManager, signal::DirectorySignals};
    /// # async fn example(leases: LeaseManager) -> Result<(), Box<dyn std::error::Error>> {
    /// let signals = DirectorySignals::new("leases.db-leasehold.d");
    /// for holder in leases.status("backup").await?.holders {
    ///     let has_ended = holder.beacon && !signals.stands(holder.holder);
    ///     println!("{}{}", holder.info, if has_ended { " (has ended)" } else { "" });
    /// }
    /// # Ok(()) }
    /// ```
    pub fn stands(&self, session: SessionId) -> bool {
        beacon::is_seen(&self.directory, session)
    }

    /// If the directory cannot be made, no file can be made in it, and no beacon stands. Its parent directory is not made: if the parent
    /// was moved or unmounted, a new one would hide the move, and a new store in it would exclude nobody who uses the old one.
    fn make_directory(&self) {
        let mut known = self.rights.lock();
        if Rights::of(&self.directory).is_err() {
            let _ = known.map(|rights| rights.make_directory(&self.directory));
            let _ = fs::create_dir(&self.directory);
        }
        *known = Rights::of(&self.directory).ok().or(*known);
    }

    /// Notifies the first ones at once, because the process may end after its last message, and the others on the thread of the listener.
    fn tell_all(&self, own: SessionId, text: String) {
        let Ok(mut names) = names(&self.directory) else { return };
        ear::tell_all(&self.directory, names.by_ref(), own, &text, FEW);
        if names.peek().is_some() {
            self.with_listener(|listener| listener.tell_all(names, text));
        }
    }

    fn with_listener(&self, act: impl FnOnce(&Shared<Listener>)) {
        // Cloned, so that the lock is released before anything else happens.
        let listener = self.awake.lock().as_ref().map(|awake| awake.listener.clone());
        if let Some(listener) = listener {
            act(&listener);
        }
    }
}

impl Signals for DirectorySignals {
    fn beacons(&self) -> Beacons {
        // A store names its directory by a string, so it cannot name one that is not UTF-8.
        self.directory.to_str().map_or(Beacons::None, |directory| Beacons::Machine(directory.to_owned()))
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        self.rest();
        self.make_directory();
        let raised = if beacon { Beacon::raise(&self.directory, session).ok() } else { None };
        let stands = raised.is_some();
        let ear = Ear::open(&self.directory, session);
        let listener = Shared::new(Listener::new(&self.directory, session, ear, raised, inbox.clone()));
        let listening = listener.clone();
        let thread = thread::Builder::new().name("leasehold signals".into());
        if thread.spawn(move || listening.listen()).is_err() {
            listener.end();
            return false;
        }
        *self.awake.lock() = Some(Awake { process: this_process(), session, listener });
        if let (true, Some(inbox)) = (stands, inbox.upgrade()) {
            inbox.notice(Notice::BeaconStands(session));
        }
        stands
    }

    fn rest(&self) {
        let Some(awake) = self.awake.lock().take() else { return };
        let session = awake.session;
        drop(awake);
        sweep::sweep_some_if_due(&self.directory, session);
    }

    fn fall(&self) {
        self.with_listener(|listener| listener.leave_file());
        self.rest();
    }

    fn send(&self, message: &Message) {
        let Some(own) = self.awake.lock().as_ref().map(|awake| awake.session) else { return };
        match message.body.recipient() {
            Some(recipient) if recipient == own => {}
            Some(recipient) => {
                // A recipient that misses this finds it in the store at its next look.
                let _ = tell(&self.directory, recipient, message);
            }
            None => self.tell_all(own, message.encode()),
        }
    }

    fn watch(&self, watch: u64, session: SessionId) {
        self.with_listener(|listener| listener.watch(watch, session));
    }

    fn unwatch(&self, watch: u64) {
        self.with_listener(|listener| listener.unwatch(watch));
    }
}

impl Drop for DirectorySignals {
    fn drop(&mut self) {
        self.rest();
    }
}

/// Whether whoever shares a store of this reach looks for beacons in this directory, on this machine.
pub(super) fn is_named_by(reach: &Reach, directory: &str) -> bool {
    match reach {
        // A relative path is resolved as `DirectorySignals::new` did it, if the working directory is still the same.
        Reach::Machine(named) => path::absolute(named).is_ok_and(|named| named == Path::new(directory)),
        Reach::Process(_) | Reach::Named(_) => false,
    }
}

/// Sends a message to a session, and says whether its socket took it.
pub(super) fn tell(directory: &Path, session: SessionId, message: &Message) -> bool {
    ear::tell(directory, session, &message.encode())
}

/// The name of a session's file: what stands before the dot is its id.
fn name_of(session: SessionId, kind: &str) -> String {
    format!("{session}.{kind}")
}

/// The names of the files in a directory. They are read bit by bit.
type Names = Peekable<Entries>;

#[derive(Debug)]
struct Entries(fs::ReadDir);

impl Iterator for Entries {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        // Other programs may have put files here whose names are no text.
        self.0.by_ref().find_map(|entry| entry.ok()?.file_name().into_string().ok())
    }
}

fn names(directory: &Path) -> io::Result<Names> {
    Ok(Entries(fs::read_dir(directory)?).peekable())
}

fn session_in(name: &str, kind: &str) -> Option<SessionId> {
    SessionId::from_digits(name.strip_suffix(kind)?.strip_suffix('.')?)
}
