//! How a context hears: a datagram socket in the directory, named after its session. Where there are no such sockets, it is deaf.

use std::{
    path::Path,
    sync::{Condvar, PoisonError},
    time::Duration,
};

use crate::executor::Mutex;
use crate::machine::SessionId;

#[cfg(unix)]
pub(super) use socket::{remove_dead, tell, tell_all};

pub(super) const OPENING: &str = "opening";

/// What a thread waits at: for a message, or to be woken.
#[derive(Debug)]
pub(super) enum Ear {
    #[cfg(unix)]
    Socket(socket::Socket),
    /// Nothing is heard, but it can be woken.
    Deaf(Mutex<bool>, Condvar),
}

impl Ear {
    /// Opens the socket of a session, if that is possible.
    pub(super) fn open(directory: &Path, session: SessionId) -> Self {
        #[cfg(unix)]
        if let Ok(socket) = socket::Socket::open(directory, session) {
            return Self::Socket(socket);
        }
        let _ = (directory, session);
        Self::Deaf(Mutex::new(false), Condvar::new())
    }

    /// Waits for a message for at most this long, or until it is [woken](Self::wake).
    pub(super) fn hear(&self, limit: Duration) -> Option<String> {
        match self {
            #[cfg(unix)]
            Self::Socket(socket) => socket.hear(limit),
            Self::Deaf(woken, bell) => {
                let woken = woken.lock();
                let waited = bell.wait_timeout_while(woken, limit, |woken| !*woken);
                *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
                None
            }
        }
    }

    /// Opens the socket again if somebody deleted it. For the thread that hears.
    pub(super) fn keep_open(&self) {
        #[cfg(unix)]
        if let Self::Socket(socket) = self {
            socket.keep_open();
        }
    }

    /// Ends the wait of whoever hears.
    pub(super) fn wake(&self) {
        match self {
            #[cfg(unix)]
            Self::Socket(socket) => socket.wake(),
            Self::Deaf(woken, bell) => {
                *woken.lock() = true;
                bell.notify_all();
            }
        }
    }
}

#[cfg(unix)]
mod socket {
    use std::{
        fs::{self, File},
        io,
        os::{fd::AsRawFd, unix::net::UnixDatagram},
        path::{Path, PathBuf},
        sync::Arc,
        time::Duration,
    };

    use super::{
        super::{name_of, rights::Rights, session_in},
        OPENING,
    };
    use crate::executor::Mutex;
    use crate::machine::SessionId;

    const KIND: &str = "socket";
    /// Longer than any message: a key has up to 3 kB, and more when it is escaped.
    const LONGEST: usize = 32 * 1024;
    /// The shortest limit of any Unix for the path of a socket.
    const LONGEST_PATH: usize = 103;

    #[derive(Debug)]
    pub(in super::super) struct Socket {
        directory: PathBuf,
        session: SessionId,
        /// The rights of the directory.
        rights: Rights,
        line: Mutex<Arc<Line>>,
        /// Used again for each message.
        bytes: Mutex<Vec<u8>>,
    }

    /// What is heard at, and what wakes whoever hears. They are connected, so that this works without the name, too.
    #[derive(Debug)]
    struct Line {
        socket: UnixDatagram,
        bell: UnixDatagram,
    }

    impl Line {
        /// Others see it under its name only once it is bound: else they might take it for one that a dead process left.
        fn open(directory: &Path, session: SessionId, rights: Rights) -> io::Result<Self> {
            let (opening, named) = (name_of(session, OPENING), directory.join(name_of(session, KIND)));
            rights
                .bind(&directory.join(&opening), &named, Self::at)
                .or_else(|_| Self::open_plainly(directory, &opening, &named))
        }

        /// With the rights that the umask leaves: other users may not be able to send to it.
        fn open_plainly(directory: &Path, opening: &str, named: &Path) -> io::Result<Self> {
            let bound = reach(directory, opening, Self::at);
            let opened = bound.and_then(|line| fs::rename(directory.join(opening), named).map(|()| line));
            if opened.is_err() {
                let _ = fs::remove_file(directory.join(opening));
            }
            opened
        }

        fn at(path: &Path) -> io::Result<Self> {
            let (socket, bell) = (UnixDatagram::bind(path)?, UnixDatagram::unbound()?);
            bell.set_nonblocking(true)?;
            bell.connect(path)?;
            Ok(Self { socket, bell })
        }
    }

    impl Socket {
        pub(super) fn open(directory: &Path, session: SessionId) -> io::Result<Self> {
            let rights = Rights::of(directory)?;
            let line = Mutex::new(Arc::new(Line::open(directory, session, rights)?));
            Ok(Self { directory: directory.to_owned(), session, rights, line, bytes: Mutex::new(vec![0; LONGEST]) })
        }

        pub(super) fn hear(&self, limit: Duration) -> Option<String> {
            let mut bytes = self.bytes.lock();
            let line = self.line.lock().clone();
            line.socket.set_read_timeout(Some(limit)).ok()?;
            let length = line.socket.recv(&mut bytes).ok()?;
            String::from_utf8(bytes[..length].to_vec()).ok()
        }

        pub(super) fn wake(&self) {
            // If there is no room, there is something to hear, and nobody waits.
            let _ = self.line.lock().bell.send(&[]);
        }

        /// A message that nobody has heard yet is lost with the old one.
        pub(super) fn keep_open(&self) {
            let found = fs::symlink_metadata(self.directory.join(name_of(self.session, KIND)));
            if found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                // Somebody may have deleted the whole directory. The one around it is not ours to make.
                let _ = self.rights.make_directory(&self.directory);
                if let Ok(line) = Line::open(&self.directory, self.session, self.rights) {
                    *self.line.lock() = Arc::new(line);
                    // Whoever woke the old one must be heard.
                    self.wake();
                }
            }
        }
    }

    impl Drop for Socket {
        fn drop(&mut self) {
            let _ = fs::remove_file(self.directory.join(name_of(self.session, KIND)));
        }
    }

    /// Calls with a path to this name that is short enough for a socket.
    fn reach<T>(directory: &Path, name: &str, call: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let path = directory.join(name);
        if path.as_os_str().len() <= LONGEST_PATH {
            return call(&path);
        }
        // Linux shows what is open under a short name. Elsewhere the call fails.
        let open = File::open(directory)?;
        call(&Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()).join(name))
    }

    /// Sends without waiting for anybody: a context that does not listen must not hold this one up.
    fn send(directory: &Path, name: &str, text: &str) -> bool {
        let sent = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            reach(directory, name, |path| socket.send_to(text.as_bytes(), path))
        });
        // Nobody answers at the socket of a process that died.
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(directory.join(name));
        }
        sent.is_ok()
    }

    /// Sends a text to a session, and says whether its socket took it. Messages are hints: one that cannot be delivered is lost.
    pub(in super::super) fn tell(directory: &Path, session: SessionId, text: &str) -> bool {
        send(directory, &name_of(session, KIND), text)
    }

    /// Tells the sessions that have a socket among these names, except the own one, and `most` of them at most.
    pub(in super::super) fn tell_all(
        directory: &Path,
        names: impl Iterator<Item = String>,
        own: SessionId,
        text: &str,
        most: usize,
    ) {
        let others = names.filter_map(|name| session_in(&name, KIND)).filter(|session| *session != own);
        for session in others.take(most) {
            // A session that is gone needs no message.
            let _ = tell(directory, session, text);
        }
    }

    /// Removes a socket if nobody listens at it, whether it has its name yet or not. Files of other kinds stay.
    pub(in super::super) fn remove_dead(directory: &Path, name: &str) {
        if session_in(name, KIND).or_else(|| session_in(name, OPENING)).is_none() {
            return;
        }
        let connected = UnixDatagram::unbound().and_then(|socket| reach(directory, name, |path| socket.connect(path)));
        if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(directory.join(name));
        }
    }
}

/// No sockets, no messages.
#[cfg(not(unix))]
pub(super) fn tell(_directory: &Path, _session: SessionId, _text: &str) -> bool {
    false
}

/// Nobody can be told.
#[cfg(not(unix))]
pub(super) fn tell_all(_: &Path, _names: impl Iterator<Item = String>, _own: SessionId, _text: &str, _most: usize) {}

/// There is nothing to remove.
#[cfg(not(unix))]
pub(super) fn remove_dead(_directory: &Path, _name: &str) {}
