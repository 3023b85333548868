//! Stands between a store and its server, and loses what it is told to lose.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use redis::Client;

/// What becomes of the next script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// It passes, and so do all others.
    Pass,
    /// It is lost on its way to the server, and the connection is cut.
    LoseQuestion,
    /// The server runs it, but its answer is lost, and the connection is cut.
    LoseAnswer,
    /// It is kept back, with all that follows, until the plan is another one.
    Keep,
}

struct State {
    plan: Plan,
    target: u16,
    /// How many scripts had another fate than to pass.
    struck: usize,
    connections: Vec<TcpStream>,
}

#[derive(Clone)]
pub(crate) struct Proxy {
    state: Arc<(Mutex<State>, Condvar)>,
    port: u16,
}

impl Proxy {
    /// A proxy before the server at this port. Its threads end with the connections.
    pub(crate) fn new(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State { plan: Plan::Pass, target, struck: 0, connections: Vec::new() };
        let proxy = Self { state: Arc::new((Mutex::new(state), Condvar::new())), port };
        let accepting = proxy.clone();
        thread::spawn(move || listener.incoming().flatten().for_each(|client| accepting.serve(client)));
        proxy
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(format!("redis://127.0.0.1:{}/", self.port)).unwrap()
    }

    pub(crate) fn plan(&self, plan: Plan) {
        self.state.0.lock().unwrap().plan = plan;
        self.state.1.notify_all();
    }

    pub(crate) fn struck(&self) -> usize {
        self.state.0.lock().unwrap().struck
    }

    /// Cuts all connections. Later ones lead to the server at this port.
    pub(crate) fn lead_to(&self, target: u16) {
        let mut state = self.state.0.lock().unwrap();
        state.target = target;
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn serve(&self, client: TcpStream) {
        let target = self.state.0.lock().unwrap().target;
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { return };
        let copy = |stream: &TcpStream| stream.try_clone().unwrap();
        self.state.0.lock().unwrap().connections.extend([copy(&client), copy(&server)]);
        let lost = Arc::new(Mutex::new(false));
        let (asking, answering) = (self.clone(), Arc::clone(&lost));
        let (questions, to_server) = (copy(&client), copy(&server));
        thread::spawn(move || asking.forward(questions, to_server, &lost));
        thread::spawn(move || answer(server, client, &answering));
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream, lost: &Mutex<bool>) {
        let mut bytes = [0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            let is_script = bytes[..length].windows(4).any(|word| word == b"EVAL");
            if is_script && self.strike(lost) {
                break;
            }
            if to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        for end in [&from, &to] {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Whether the question is to be lost.
    fn strike(&self, lost: &Mutex<bool>) -> bool {
        let mut state = self.state.0.lock().unwrap();
        if state.plan == Plan::Pass {
            return false;
        }
        state.struck += 1;
        match state.plan {
            Plan::Keep => {
                let _passed = self.state.1.wait_while(state, |state| state.plan == Plan::Keep).unwrap();
                return false;
            }
            Plan::LoseAnswer => *lost.lock().unwrap() = true,
            Plan::LoseQuestion | Plan::Pass => {}
        }
        let loses = state.plan == Plan::LoseQuestion;
        state.plan = Plan::Pass;
        loses
    }
}

fn answer(mut from: TcpStream, mut to: TcpStream, lost: &Mutex<bool>) {
    let mut bytes = [0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if *lost.lock().unwrap() || to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    for end in [&from, &to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}
