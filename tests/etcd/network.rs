//! A cluster whose members reach each other through this process, which can cut one of them off from the others.

use std::{
    io::{Read, Write, copy},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use etcd_client::Client;

use crate::{
    contract::client,
    server::{Member, Server},
};

/// Three servers.
pub(crate) struct Cluster {
    servers: Vec<Server>,
    network: Arc<Network>,
}

/// What lies between the servers.
#[derive(Default)]
struct Network(Mutex<State>);

#[derive(Default)]
struct State {
    cut_off: Option<End>,
    links: Vec<Link>,
}

/// A server: its place in the cluster, and its own id.
#[derive(Clone, Copy)]
struct End {
    place: usize,
    id: u64,
}

/// A connection between two servers.
struct Link {
    to: usize,
    /// The id of the server that made it. A server does not name itself when it only asks for a version.
    from: Option<u64>,
    streams: [TcpStream; 2],
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let (members, network) = ([Member::new(), Member::new(), Member::new()], Arc::<Network>::default());
        let members: Vec<_> =
            members.into_iter().enumerate().map(|(place, member)| network.proxy(place, member)).collect();
        let all: Vec<_> = members.iter().collect();
        let servers: Vec<_> = all.iter().map(|member| Server::start_member(member, &all, &[])).collect();
        servers.iter().for_each(Server::wait);
        Self { servers, network }
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(Server::address).collect()
    }

    /// From now on, this server and the others cannot reach each other. Clients still reach all of them.
    pub(crate) async fn cut_off(&self, place: usize) {
        let mut client: Client = client(&self.servers[place].address()).await;
        let status = client.status().await.expect("it answers");
        let end = End { place, id: status.header().expect("it has one").member_id() };
        let mut state = self.network.0.lock().unwrap();
        state.cut_off = Some(end);
        for link in state.links.extract_if(.., |link| link.touches(end)) {
            link.streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        }
    }

    /// They reach each other again.
    pub(crate) fn heal(&self) {
        self.network.0.lock().unwrap().cut_off = None;
    }
}

impl Link {
    fn touches(&self, end: End) -> bool {
        self.to == end.place || self.from == Some(end.id)
    }
}

impl Network {
    /// The other members reach this one through a port of this process.
    fn proxy(self: &Arc<Self>, place: usize, mut member: Member) -> Member {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        member.advertised = listener.local_addr().expect("it is bound").port();
        let (network, peer) = (Arc::clone(self), member.peer);
        thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                let network = Arc::clone(&network);
                // The thread ends when one of the two servers ends.
                thread::spawn(move || network.link(caller, place, peer));
            }
        });
        member
    }

    fn link(&self, mut caller: TcpStream, to: usize, port: u16) -> Option<()> {
        let head = head(&mut caller)?;
        let from = sender(&head);
        let mut called = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        let copy_of = |stream: &TcpStream| stream.try_clone().expect("there are descriptors left");
        let link = Link { to, from, streams: [copy_of(&caller), copy_of(&called)] };
        {
            let mut state = self.0.lock().unwrap();
            if state.cut_off.is_some_and(|end| link.touches(end)) {
                return None;
            }
            state.links.push(link);
        }
        called.write_all(&head).ok()?;
        let (mut back, mut answers) = (copy_of(&caller), copy_of(&called));
        thread::spawn(move || {
            drop(copy(&mut answers, &mut back));
            drop(back.shutdown(Shutdown::Both));
        });
        drop(copy(&mut caller, &mut called));
        drop(called.shutdown(Shutdown::Both));
        Some(())
    }
}

/// The first bytes of a connection, at least to the end of its first request's head.
fn head(caller: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut head, mut bytes) = (Vec::new(), [0; 4_096]);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let length = caller.read(&mut bytes).ok().filter(|length| *length > 0)?;
        head.extend_from_slice(&bytes[..length]);
    }
    Some(head)
}

/// etcd's servers name themselves in what they send for Raft.
fn sender(head: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(head);
    let named =
        text.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("x-server-from: ").map(str::to_owned))?;
    Some(u64::from_str_radix(named.trim(), 16).expect("an id is hexadecimal"))
}
