//! A proxy between a store and its server. It cuts connections, and holds back, loses or delays what they carry. Each test program that has
//! one uses this file.
#![allow(dead_code, reason = "no test program needs all of it")]

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

/// What becomes of the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    /// The server gets it, and its answer arrives.
    Passes,
    /// The connection is cut before the server gets it.
    IsLost,
    /// The server executes it, and the connection is cut before its answer arrives.
    LosesAnswer,
    /// The server executes it, and nothing that it answers on this connection arrives any more. The connections of both ends stay open.
    IsUnanswered,
    /// The server gets neither it nor what follows on this connection, until something else is chosen. The same holds for all commits
    /// until then.
    IsKept,
    /// The server never gets it, nor what follows on this connection. The connections of both ends stay open.
    Stalls,
}

/// The bytes that mark a commit, and the answer to it, on the wire. If empty, nothing is a commit.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wire {
    pub(crate) commit: &'static [u8],
    /// If empty, any answer after a commit is the answer to it.
    pub(crate) committed: &'static [u8],
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// Forwards to a server, with the faults that were chosen. Its threads end with the connections, or with the process.
#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    wire: Wire,
    state: Mutex<State>,
    chosen: Condvar,
    /// How often a client went on after it heard from the server.
    trips: AtomicUsize,
    /// How many connections both ends keep open.
    open: AtomicUsize,
    /// How often the connections that stood then were left to themselves.
    strandings: AtomicUsize,
}

struct State {
    server: u16,
    next: Commit,
    commits: usize,
    /// Commits that did not simply pass.
    hits: usize,
    /// The added delay of each direction, and whether everything in it is lost.
    delays: [Duration; 2],
    swallows: [bool; 2],
    streams: Vec<TcpStream>,
}

impl Proxy {
    /// A proxy in front of the server at this port.
    pub(crate) fn start(server: u16, wire: Wire) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = State {
            server,
            next: Commit::Passes,
            commits: 0,
            hits: 0,
            delays: [Duration::ZERO; 2],
            swallows: [false; 2],
            streams: Vec::new(),
        };
        let (state, chosen) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared {
            wire,
            state,
            chosen,
            trips: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            strandings: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || listener.incoming().flatten().for_each(|client| accepting.serve(client)));
        Self { port, shared }
    }

    pub(crate) fn let_next_commit(&self, commit: Commit) {
        self.shared.state().next = commit;
        self.shared.chosen.notify_all();
    }

    /// Delays everything in this direction from now on.
    pub(crate) fn delay(&self, way: Way, delay: Duration) {
        self.shared.state().delays[way as usize] = delay;
    }

    /// From now on, loses what the server says.
    pub(crate) fn mute(&self) {
        self.shared.state().swallows[Way::ToClient as usize] = true;
    }

    /// Neither end hears the other from now on, and all connections stay open.
    pub(crate) fn fall_silent(&self) {
        self.shared.state().swallows = [true; 2];
    }

    /// On the connections that stand, neither end hears the other from now on. New ones work.
    pub(crate) fn strand(&self) {
        self.shared.strandings.fetch_add(1, SeqCst);
    }

    /// Closes all connections. New ones work again.
    pub(crate) fn cut(&self) {
        let mut state = self.shared.state();
        state.swallows = [false; 2];
        state.streams.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Closes all connections. Later ones lead to the server at this port.
    pub(crate) fn lead_to(&self, server: u16) {
        self.shared.state().server = server;
        self.cut();
    }

    /// How many commits did not simply pass.
    pub(crate) fn hits(&self) -> usize {
        self.shared.state().hits
    }

    pub(crate) fn commits(&self) -> usize {
        self.shared.state().commits
    }

    pub(crate) fn trips(&self) -> usize {
        self.shared.trips.load(SeqCst)
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(SeqCst)
    }
}

/// A connection: what its two directions share.
#[derive(Default)]
struct Connection {
    /// The answer to its commit is to be lost.
    loses_answer: AtomicBool,
    /// Nothing that the server answers arrives.
    is_unanswered: AtomicBool,
    /// The client heard from the server, and has not said anything since.
    heard: AtomicBool,
    /// How often others were stranded before it was opened.
    strandings: usize,
}

/// A piece of data, and when the other end gets it.
type Piece = (Instant, Vec<u8>);

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics in between")
    }

    fn serve(self: &Arc<Self>, client: TcpStream) {
        let server = self.state().server;
        // The client learns that nobody answers.
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else { return };
        let copy = |stream: &TcpStream| stream.try_clone().expect("there are descriptors left");
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("it is a plain setting");
        }
        let connection = Arc::new(Connection {
            heard: AtomicBool::new(true),
            strandings: self.strandings.load(SeqCst),
            ..Connection::default()
        });
        self.state().streams.extend([copy(&client), copy(&server)]);
        self.open.fetch_add(1, SeqCst);
        self.forward(Way::ToServer, copy(&client), copy(&server), Arc::clone(&connection));
        self.forward(Way::ToClient, server, client, connection);
    }

    /// One thread reads and another one writes, so that a delay of one piece does not add to the delay of the next.
    fn forward(self: &Arc<Self>, way: Way, mut from: TcpStream, to: TcpStream, connection: Arc<Connection>) {
        let (pieces, due) = mpsc::channel();
        let ends = [&from, &to].map(|end| end.try_clone().expect("there are descriptors left"));
        let (reading, writing, read_by) = (Arc::clone(self), Arc::clone(self), Arc::clone(&connection));
        thread::spawn(move || {
            reading.read(way, &mut from, &pieces, &read_by);
        });
        thread::spawn(move || {
            writing.write(way, to, &due, &connection);
            ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
            writing.open.fetch_sub(usize::from(way == Way::ToClient), SeqCst);
        });
    }

    fn read(&self, way: Way, from: &mut TcpStream, pieces: &Sender<Piece>, connection: &Connection) {
        let mut bytes = vec![0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            let piece = &bytes[..length];
            if self.state().swallows[way as usize] || connection.strandings < self.strandings.load(SeqCst) {
                continue;
            }
            let passes = match way {
                Way::ToServer => self.asks(piece, connection),
                Way::ToClient => self.answers(piece, connection),
            };
            let Some(passes) = passes else { return };
            let due = Instant::now() + self.state().delays[way as usize];
            if passes && pieces.send((due, piece.to_vec())).is_err() {
                return;
            }
        }
    }

    fn write(&self, way: Way, mut to: TcpStream, due: &Receiver<Piece>, connection: &Connection) {
        for (at, piece) in due {
            // It is the delay itself.
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if way == Way::ToClient {
                connection.heard.store(true, SeqCst);
            }
            if to.write_all(&piece).is_err() {
                return;
            }
        }
    }

    /// Whether the server gets it; `None` if the connection is cut.
    fn asks(&self, piece: &[u8], connection: &Connection) -> Option<bool> {
        self.trips.fetch_add(usize::from(connection.heard.swap(false, SeqCst)), SeqCst);
        if self.wire.commit.is_empty() || !has(piece, self.wire.commit) {
            return Some(true);
        }
        let mut state = self.state();
        state.commits += 1;
        let chosen = state.next;
        state.hits += usize::from(chosen != Commit::Passes);
        if chosen != Commit::IsKept {
            state.next = Commit::Passes;
        }
        match chosen {
            Commit::Passes => {}
            Commit::IsLost => return None,
            Commit::LosesAnswer => connection.loses_answer.store(true, SeqCst),
            Commit::IsUnanswered => connection.is_unanswered.store(true, SeqCst),
            Commit::IsKept => {
                let is_kept = |state: &mut State| state.next == Commit::IsKept;
                drop(self.chosen.wait_while(state, is_kept).expect("nothing panics in between"));
            }
            Commit::Stalls => {
                drop(state);
                loop {
                    thread::park();
                }
            }
        }
        Some(true)
    }

    /// Whether the client gets it; `None` if the connection is cut.
    fn answers(&self, piece: &[u8], connection: &Connection) -> Option<bool> {
        if !connection.loses_answer.load(SeqCst) {
            return Some(!connection.is_unanswered.load(SeqCst));
        }
        (!has(piece, self.wire.committed)).then_some(false)
    }
}

fn has(piece: &[u8], word: &[u8]) -> bool {
    word.is_empty() || piece.windows(word.len()).any(|window| window == word)
}
