//! Signals between the processes of one machine, through a directory that all of them can write to. They need no server, and no thread
//! of a context that neither holds nor waits.

mod beacon;
mod ear;
mod listener;
mod sentry;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use super::{Beacons, Inbox, Notice, Signals};
use crate::executor::{Shared, WeakShared};
use crate::machine::{Message, SessionId};

use beacon::Beacon;
use ear::Ear;
use listener::Listener;

/// Messages and beacons between the processes of one machine that share a directory.
///
/// * A beacon is a file on which its context keeps a lock
///   ([`File::lock`](https://doc.rust-lang.org/std/fs/struct.File.html#method.lock)). The operating system frees the lock when
///   the process dies, however it dies. So if a holder is killed, the next waiter is granted the lease within a few ms. A process
///   that is stopped or hangs keeps its lock.
/// * A message is a datagram to the Unix socket of the context that it concerns. On Windows there are no messages, because Rust's
///   standard library has no such sockets there: a waiter reads the store once per heartbeat.
///
/// A manager over a store with [`Reach::Machine`](crate::store::Reach::Machine), such as `SqliteStore`, uses these signals
/// by default. The directory must be on a local file system: a network file system may drop a lock while its process lives.
/// It is created when it is first needed. Anyone who can write to it can forge messages, so give it the permissions of the store.
///
/// ```no_run
/// # use leasehold::{LeaseManager, executor::TokioExecutor, signal::DirectorySignals, store::Store};
/// # fn example(store: impl Store) -> Result<(), leasehold::InvalidOptions> {
/// let signals = DirectorySignals::new("/var/lib/my-app/leases");
/// let leases = LeaseManager::builder(store, TokioExecutor::new()).signals(signals).build()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DirectorySignals {
    directory: PathBuf,
    awake: Mutex<Option<Awake>>,
}

/// What stands between [`wake`](Signals::wake) and [`rest`](Signals::rest).
#[derive(Debug)]
struct Awake {
    session: SessionId,
    listener: Shared<Listener>,
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.listener.end();
    }
}

impl DirectorySignals {
    /// Signals in this directory. Nothing is created or opened yet.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), awake: Mutex::default() }
    }

    /// Nothing outside is called under the lock, so a poisoned one guards a sound value.
    fn awake(&self) -> MutexGuard<'_, Option<Awake>> {
        self.awake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_listener(&self, act: impl FnOnce(&Shared<Listener>)) {
        // Cloned, so that the lock is let go of before anything is done.
        let listener = self.awake().as_ref().map(|awake| awake.listener.clone());
        if let Some(listener) = listener {
            act(&listener);
        }
    }
}

impl Signals for DirectorySignals {
    fn beacons(&self) -> Beacons {
        Beacons::All
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        self.rest();
        // Where it cannot be made, no file in it can, and nothing stands.
        let _ = fs::create_dir_all(&self.directory);
        sweep(&self.directory);
        let raised = if beacon { Beacon::raise(&self.directory, session).ok() } else { None };
        let stands = raised.is_some();
        let ear = Ear::open(&self.directory, session);
        let listener = Shared::new(Listener::new(&self.directory, session, ear, raised, inbox.clone()));
        let listening = listener.clone();
        let thread = thread::Builder::new().name("leasehold signals".into()).spawn(move || listening.listen());
        if thread.is_err() {
            listener.end();
            return false;
        }
        *self.awake() = Some(Awake { session, listener });
        if let (true, Some(inbox)) = (stands, inbox.upgrade()) {
            inbox.notice(Notice::BeaconStands(session));
        }
        stands
    }

    fn rest(&self) {
        let awake = self.awake().take();
        drop(awake);
    }

    fn send(&self, message: &Message) {
        let Some(own) = self.awake().as_ref().map(|awake| awake.session) else { return };
        let text = message.encode();
        match message.body.recipient() {
            Some(recipient) if recipient == own => {}
            Some(recipient) => ear::tell(&self.directory, recipient, &text),
            None => {
                for session in ear::others(&self.directory).filter(|session| *session != own) {
                    ear::tell(&self.directory, session, &text);
                }
            }
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

/// The name of a session's file: what stands before the dot is its id.
fn name_of(session: SessionId, kind: &str) -> String {
    format!("{session}.{kind}")
}

/// The sessions that have a file of this kind here.
fn sessions(directory: &Path, kind: &'static str) -> impl Iterator<Item = SessionId> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(move |name| id_in(name.strip_suffix(kind)?.strip_suffix('.')?))
}

fn id_in(name: &str) -> Option<SessionId> {
    (name.len() == 32).then(|| u128::from_str_radix(name, 16).ok().map(SessionId))?
}

/// Removes what processes left behind that died.
fn sweep(directory: &Path) {
    beacon::sweep(directory);
    ear::sweep(directory);
}
