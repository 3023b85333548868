//! How a context hears: a datagram socket in the directory, named after its session. Where there are no such sockets, it is deaf.

use std::{
    path::Path,
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use crate::machine::SessionId;

#[cfg(unix)]
pub(super) use socket::{others, sweep, tell};

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

    /// Waits for a message, for so long at most, or until it is [woken](Self::wake).
    pub(super) fn hear(&self, limit: Duration) -> Option<String> {
        match self {
            #[cfg(unix)]
            Self::Socket(socket) => socket.hear(limit),
            Self::Deaf(woken, bell) => {
                let woken = woken.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = bell.wait_timeout_while(woken, limit, |woken| !*woken);
                *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
                None
            }
        }
    }

    /// Ends the wait of whoever hears.
    pub(super) fn wake(&self) {
        match self {
            #[cfg(unix)]
            Self::Socket(socket) => socket.wake(),
            Self::Deaf(woken, bell) => {
                *woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
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
        sync::{Mutex, PoisonError},
        time::Duration,
    };

    use super::super::{name_of, sessions};
    use crate::machine::SessionId;

    const KIND: &str = "socket";
    const OPENING: &str = "opening";
    /// Longer than any message: a key has up to 3 kB, and more when it is escaped.
    const LONGEST: usize = 32 * 1024;
    /// The shortest limit of any Unix for the path of a socket.
    const LONGEST_PATH: usize = 103;

    #[derive(Debug)]
    pub(in super::super) struct Socket {
        socket: UnixDatagram,
        path: PathBuf,
        /// Used again for each message.
        bytes: Mutex<Vec<u8>>,
    }

    impl Socket {
        /// Others see it under its name only once it is bound: else they might take it for one that a dead process left.
        pub(super) fn open(directory: &Path, session: SessionId) -> io::Result<Self> {
            let opening = name_of(session, OPENING);
            let socket = reach(directory, &opening, |path| UnixDatagram::bind(path))?;
            let path = directory.join(name_of(session, KIND));
            fs::rename(directory.join(opening), &path)?;
            Ok(Self { socket, path, bytes: Mutex::new(vec![0; LONGEST]) })
        }

        pub(super) fn hear(&self, limit: Duration) -> Option<String> {
            let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            self.socket.set_read_timeout(Some(limit)).ok()?;
            let length = self.socket.recv(&mut bytes).ok()?;
            String::from_utf8(bytes[..length].to_vec()).ok()
        }

        pub(super) fn wake(&self) {
            if let Some((directory, name)) = self.path.parent().zip(self.path.file_name()) {
                send(directory, &name.to_string_lossy(), "");
            }
        }
    }

    impl Drop for Socket {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.path);
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
    fn send(directory: &Path, name: &str, text: &str) {
        let sent = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            reach(directory, name, |path| socket.send_to(text.as_bytes(), path))
        });
        // Nobody answers at the socket of a process that died.
        if sent.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(directory.join(name));
        }
    }

    /// Tells a session. Messages are hints: what cannot be delivered is lost.
    pub(in super::super) fn tell(directory: &Path, session: SessionId, text: &str) {
        send(directory, &name_of(session, KIND), text);
    }

    /// Who has a socket here.
    pub(in super::super) fn others(directory: &Path) -> impl Iterator<Item = SessionId> + use<> {
        sessions(directory, KIND)
    }

    /// Removes the sockets that nobody listens at.
    pub(in super::super) fn sweep(directory: &Path) {
        for session in others(directory) {
            let name = name_of(session, KIND);
            let connected =
                UnixDatagram::unbound().and_then(|socket| reach(directory, &name, |path| socket.connect(path)));
            if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = fs::remove_file(directory.join(name));
            }
        }
    }
}

/// No sockets, no messages.
#[cfg(not(unix))]
pub(super) fn tell(_directory: &Path, _session: SessionId, _text: &str) {}

/// Nobody can be told.
#[cfg(not(unix))]
pub(super) fn others(_directory: &Path) -> impl Iterator<Item = SessionId> {
    core::iter::empty()
}

/// There is nothing to remove.
#[cfg(not(unix))]
pub(super) fn sweep(_directory: &Path) {}
