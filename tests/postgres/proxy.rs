//! A connection to the server that can be made to fail.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// What becomes of the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    /// The server has it, and its answer comes.
    Passes,
    /// The server does it, and the connection is cut before its answer comes.
    LosesAnswer,
    /// The connection is cut before the server has it.
    IsLost,
    /// Neither the server nor the client hears anything more of each other, and both connections stand.
    Stalls,
}

/// Forwards to a server, but for the commit that was chosen: then to the next one nothing happens.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    next: Arc<watch::Sender<Commit>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Commits that met something else than passing.
    hits: AtomicU64,
    commits: AtomicU64,
    /// How often a client went on after it heard from the server.
    trips: AtomicU64,
    /// Nobody hears anything any more.
    silent: AtomicBool,
}

impl Proxy {
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (next, counts) = (Arc::new(watch::Sender::new(Commit::Passes)), Arc::new(Counts::default()));
        let (choice, counted) = (next.clone(), counts.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                tokio::spawn(forward(client, server, choice.clone(), counted.clone()));
            }
        });
        Self { port, next, counts }
    }

    pub(crate) fn let_next_commit(&self, commit: Commit) {
        self.next.send_replace(commit);
    }

    /// From now on nobody hears anything of the other, and all connections stand.
    #[cfg(feature = "store-postgres-sqlx")]
    pub(crate) fn fall_silent(&self) {
        self.counts.silent.store(true, Ordering::SeqCst);
    }

    /// How many commits met something else than passing.
    pub(crate) fn hits(&self) -> u64 {
        self.counts.hits.load(Ordering::SeqCst)
    }

    pub(crate) fn commits(&self) -> u64 {
        self.counts.commits.load(Ordering::SeqCst)
    }

    pub(crate) fn trips(&self) -> u64 {
        self.counts.trips.load(Ordering::SeqCst)
    }
}

/// Not what the level of isolation is called.
const COMMIT: &[u8] = b"; COMMIT\0";
const COMMITTED: &[u8] = b"COMMIT\0";

async fn forward(client: TcpStream, server: TcpStream, next: Arc<watch::Sender<Commit>>, counts: Arc<Counts>) {
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let (fate, lost) = watch::channel(Commit::Passes);
    let heard = Arc::new(AtomicBool::new(true));
    let answers = tokio::spawn(back(from_server, to_client, lost, heard.clone(), counts.clone()));
    let mut bytes = vec![0; 65_536];
    while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
        let request = &bytes[..length];
        if counts.silent.load(Ordering::SeqCst) {
            continue;
        }
        counts.trips.fetch_add(u64::from(heard.swap(false, Ordering::SeqCst)), Ordering::SeqCst);
        if request.windows(COMMIT.len()).any(|window| window == COMMIT) {
            let chosen = next.send_replace(Commit::Passes);
            counts.commits.fetch_add(1, Ordering::SeqCst);
            counts.hits.fetch_add(u64::from(chosen != Commit::Passes), Ordering::SeqCst);
            fate.send_replace(chosen);
            match chosen {
                Commit::IsLost => {
                    answers.abort();
                    break;
                }
                Commit::Stalls => std::future::pending().await,
                Commit::Passes | Commit::LosesAnswer => {}
            }
        }
        if to_server.write_all(request).await.is_err() {
            break;
        }
    }
    drop(to_server);
}

/// The answer to a commit names it, too.
async fn back(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    fate: watch::Receiver<Commit>,
    heard: Arc<AtomicBool>,
    counts: Arc<Counts>,
) {
    let mut bytes = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        let answer = &bytes[..length];
        if counts.silent.load(Ordering::SeqCst) {
            continue;
        }
        if *fate.borrow() == Commit::LosesAnswer {
            if answer.windows(COMMITTED.len()).any(|window| window == COMMITTED) {
                return;
            }
            continue;
        }
        heard.store(true, Ordering::SeqCst);
        if to.write_all(answer).await.is_err() {
            return;
        }
    }
}
