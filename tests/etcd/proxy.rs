//! A proxy between a store and its server, which loses answers and cuts connections.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

#[derive(Default)]
struct State {
    /// What the server says is lost.
    mutes: AtomicBool,
    /// How many connections both ends keep open.
    open: AtomicUsize,
    streams: Mutex<Vec<TcpStream>>,
}

pub(crate) struct Proxy {
    state: Arc<State>,
    port: u16,
}

impl Proxy {
    pub(crate) fn start(address: &str) -> Self {
        let server = address.strip_prefix("etcd://").expect("it is an address").to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        // It ends with the process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                let mut streams = shared.streams.lock().unwrap();
                streams.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || copy(ends.0, ends.1, None));
                let state = Arc::clone(&shared);
                state.open.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    copy(server, client, Some(&state));
                    state.open.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { state, port }
    }

    pub(crate) fn address(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.state.open.load(SeqCst)
    }

    /// Loses all that the server says from now on.
    pub(crate) fn mute(&self) {
        self.state.mutes.store(true, SeqCst);
    }

    /// Closes all connections. New ones hear the server again.
    pub(crate) fn cut(&self) {
        for stream in self.state.streams.lock().unwrap().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
        self.state.mutes.store(false, SeqCst);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, state: Option<&State>) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        let is_lost = state.is_some_and(|state| state.mutes.load(SeqCst));
        if !is_lost && to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        drop(stream.shutdown(Shutdown::Both));
    }
}
