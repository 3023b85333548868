//! Signals between the processes of one machine, in a directory that they share: a message is a datagram to the socket of
//! each context, and a beacon is a file that its context keeps locked. The platform lets go of the lock when the process
//! dies, whatever it dies of: so the absence of a beacon is proof.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::id,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use leasehold::{
    executor::WeakShared,
    machine::{Message, SessionId},
    signal::{Beacons, Inbox, Notice, Signals},
};

/// How long the thread of a context waits for a message before it looks at the beacons that it watches.
const LOOK: Duration = Duration::from_millis(10);
/// Longer than any message.
const LONGEST: usize = 8_192;

#[derive(Debug)]
pub(crate) struct SocketSignals {
    directory: PathBuf,
    awake: Mutex<Option<Awake>>,
}

/// What stands between `wake` and `rest`.
#[derive(Debug)]
struct Awake {
    socket: PathBuf,
    beacon: Option<(File, PathBuf)>,
    watches: Arc<Mutex<BTreeMap<u64, PathBuf>>>,
    over: Arc<AtomicBool>,
}

impl SocketSignals {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), awake: Mutex::default() }
    }

    fn beacon(&self, session: SessionId) -> PathBuf {
        self.directory.join(format!("{session}.beacon"))
    }

    /// A file that stays locked as long as it is open.
    fn raise(&self, session: SessionId) -> Option<(File, PathBuf)> {
        let path = self.beacon(session);
        let file = File::create(&path).ok()?;
        file.try_lock().ok()?;
        Some((file, path))
    }

    fn watching(&self, change: impl FnOnce(&mut BTreeMap<u64, PathBuf>)) {
        if let Some(awake) = &*self.awake.lock().unwrap() {
            change(&mut awake.watches.lock().unwrap());
        }
    }
}

impl Signals for SocketSignals {
    fn beacons(&self) -> Beacons {
        Beacons::All
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let name = format!("{}-{}.socket", id(), OPENED.fetch_add(1, SeqCst));
        let path = self.directory.join(name);
        let Ok(socket) = UnixDatagram::bind(&path) else { return false };
        let raised = if beacon { self.raise(session) } else { None };
        let stands = raised.is_some();
        let awake = Awake { socket: path, beacon: raised, watches: Arc::default(), over: Arc::default() };
        let listener =
            Listener { socket, inbox: inbox.clone(), watches: awake.watches.clone(), over: awake.over.clone() };
        *self.awake.lock().unwrap() = Some(awake);
        thread::spawn(move || listener.listen());
        if let (true, Some(inbox)) = (stands, inbox.upgrade()) {
            inbox.notice(Notice::BeaconStands(session));
        }
        stands
    }

    fn rest(&self) {
        drop(self.awake.lock().unwrap().take());
    }

    fn send(&self, message: &Message) {
        let Some(own) = self.awake.lock().unwrap().as_ref().map(|awake| awake.socket.clone()) else { return };
        let (Ok(socket), Ok(entries)) = (UnixDatagram::unbound(), fs::read_dir(&self.directory)) else { return };
        // A context that does not listen must not hold this one up.
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            if path != own && path.extension().is_some_and(|extension| extension == "socket") {
                // Nobody answers at the socket of a process that died. Messages are hints.
                drop(socket.send_to(message.encode().as_bytes(), &path));
            }
        }
    }

    fn watch(&self, watch: u64, session: SessionId) {
        self.watching(|watches| drop(watches.insert(watch, self.beacon(session))));
    }

    fn unwatch(&self, watch: u64) {
        self.watching(|watches| drop(watches.remove(&watch)));
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        drop(fs::remove_file(&self.socket));
        if let Some((_, path)) = &self.beacon {
            drop(fs::remove_file(path));
        }
    }
}

/// The thread of a context that is awake.
struct Listener {
    socket: UnixDatagram,
    inbox: WeakShared<dyn Inbox>,
    watches: Arc<Mutex<BTreeMap<u64, PathBuf>>>,
    over: Arc<AtomicBool>,
}

impl Listener {
    fn listen(&self) {
        self.socket.set_read_timeout(Some(LOOK)).expect("the time limit is not zero");
        let mut bytes = [0; LONGEST];
        while !self.over.load(SeqCst) && self.inbox.strong_count() > 0 {
            if let Ok(length) = self.socket.recv(&mut bytes) {
                let message = str::from_utf8(&bytes[..length]).ok().and_then(Message::decode);
                message.into_iter().for_each(|message| self.tell(Notice::Message(message)));
            }
            self.look();
        }
    }

    /// Tells of the watched beacons that are gone, each once.
    fn look(&self) {
        let watches = self.watches.lock().unwrap().clone();
        for (watch, path) in watches {
            if is_gone(&path) && self.watches.lock().unwrap().remove(&watch).is_some() {
                self.tell(Notice::BeaconGone { watch });
            }
        }
    }

    fn tell(&self, notice: Notice) {
        if let Some(inbox) = self.inbox.upgrade().filter(|_| !self.over.load(SeqCst)) {
            inbox.notice(notice);
        }
    }
}

/// A beacon was lowered if its file is gone, and its process died if nobody has the lock. What else goes wrong proves nothing.
fn is_gone(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => file.try_lock_shared().is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
