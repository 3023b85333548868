//! Leases in PostgreSQL, with beacons, beside two transactions of a client and the advisory lock of a session.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use futures::{StreamExt, future::join, stream};
use leasehold::{
    machine::SessionId,
    store::{PostgresStore, Store},
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls, Notification, Statement, types::ToSql};

use crate::{
    figures::Target,
    port::free_port,
    servers,
    trial::{Engine, Place},
};

pub(crate) struct Postgres {
    client: Client,
    heard: UnboundedReceiver<Notification>,
    select: Statement,
    update: Statement,
    lock: Statement,
    unlock: Statement,
}

impl Engine for Postgres {
    const NAME: &'static str = "postgres";
    const USUAL: &'static str = "postgres_advisory_lock_unlock";
    const USUAL_HANDS_OFF: bool = true;
    const NEWS: &'static str = "notify";
    const TAKE_OVER: Target = Target::AtMost(100.0);

    async fn start() -> Option<Place> {
        let programs = programs()?;
        let (folder, port) = (servers::folder::<Self>(), free_port());
        let owner: &[&str] = if is_root() {
            let owned = Command::new("chown").arg("postgres:postgres").arg(&folder).status();
            assert!(owned.expect("it runs").success(), "the server's user owns its folder");
            &["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        } else {
            &["env"]
        };
        let mut init = Command::new(owner[0]);
        init.args(&owner[1..]).arg(programs.join("initdb")).args(["-A", "trust", "-U", "postgres", "-E", "UTF8"]);
        let made = init.args(["--locale=C", "-D", "data"]).current_dir(&folder).output().expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let (port, postgres) = (port.to_string(), programs.join("postgres"));
        let postgres = postgres.to_str().expect("its path is text");
        // Its own cleaning would be counted as transactions of the leases.
        let settings = [
            postgres,
            "-D",
            "data",
            "-p",
            &port,
            "-k",
            "",
            "-h",
            "127.0.0.1",
            "-c",
            "max_connections=400",
            "-c",
            "autovacuum=off",
        ];
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        Some(servers::run(&folder, "QUIT", &[owner, &settings].concat(), url).await)
    }

    async fn store(url: &str) -> Box<dyn Store> {
        let store = PostgresStore::builder(url).with_beacons().connect().await.expect("the server runs");
        store.migrate().await.expect("the user may make tables");
        Box::new(store)
    }

    async fn connect(url: &str) -> Self {
        let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.expect("the server runs");
        let (sender, heard) = unbounded_channel();
        tokio::spawn(async move {
            let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                // The server also says that a table is there already.
                if let AsyncMessage::Notification(heard) = message {
                    drop(sender.send(heard));
                }
            }
        });
        let table = "CREATE TABLE IF NOT EXISTS raw (key text PRIMARY KEY, state text NOT NULL) WITH (fillfactor = 50); \
            INSERT INTO raw VALUES ('k', '') ON CONFLICT DO NOTHING";
        client.batch_execute(table).await.expect("the user may make tables");
        let prepare = async |sql| client.prepare(sql).await.expect("it is SQL");
        let select = prepare("SELECT state FROM raw WHERE key = 'k' FOR UPDATE").await;
        let update = prepare("UPDATE raw SET state = $1 WHERE key = 'k'").await;
        let lock = prepare("SELECT pg_advisory_lock(1)").await;
        let unlock = prepare("SELECT pg_advisory_unlock(1)").await;
        Self { client, heard, select, update, lock, unlock }
    }

    async fn version(&mut self) -> String {
        self.client.query_one("SHOW server_version", &[]).await.expect("the server runs").get(0)
    }

    /// Two round trips: what is written depends on what was read.
    async fn transact(&mut self, turn: usize) {
        let (begun, read) = join(self.client.batch_execute("BEGIN"), self.client.query_one(&self.select, &[])).await;
        begun.and(read).expect("the server runs");
        let state = format!("{turn:300}");
        let state: [&(dyn ToSql + Sync); 1] = [&state];
        let write = join(self.client.execute(&self.update, &state), self.client.batch_execute("COMMIT"));
        let (written, committed) = write.await;
        written.and(committed).expect("the disk works");
    }

    async fn notify(&mut self) {
        self.client.batch_execute("NOTIFY raw").await.expect("the server runs");
    }

    async fn listen(&mut self) {
        self.client.batch_execute("LISTEN raw").await.expect("the server runs");
    }

    async fn hear(&mut self) {
        self.heard.recv().await.expect("the server runs");
    }

    async fn lock(&mut self) {
        self.client.query_one(&self.lock, &[]).await.expect("the server runs");
    }

    async fn unlock(&mut self) {
        self.client.query_one(&self.unlock, &[]).await.expect("the server runs");
    }

    /// The server numbers all transactions that write, and those that notify.
    async fn transactions(&mut self) -> usize {
        let sql = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text";
        let row = self.client.query_one(sql, &[]).await.expect("the server runs");
        row.get::<_, &str>(0).parse().expect("it is a number")
    }

    async fn logged(&mut self) -> f64 {
        let sql = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8";
        self.client.query_one(sql, &[]).await.expect("the server runs").get(0)
    }

    async fn row(&mut self, session: SessionId) -> String {
        let sql = "SELECT text FROM leasehold_session WHERE id = $1";
        let id = session.0.to_be_bytes();
        self.client.query_one(sql, &[&id.as_slice()]).await.expect("there is a session").get(0)
    }

    async fn records(&mut self) -> usize {
        let sql = "SELECT count(*) FROM leasehold_record";
        let count: i64 = self.client.query_one(sql, &[]).await.expect("the store works").get(0);
        usize::try_from(count).expect("it is a count")
    }
}

/// Where Debian, Fedora and Homebrew keep the server's programs, which are not on PATH everywhere.
fn programs() -> Option<PathBuf> {
    let versions =
        |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let mut places: Vec<_> = versions("/usr/lib/postgresql").chain(versions("/opt/homebrew/opt")).collect();
    places.sort();
    places.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    places.into_iter().rev().find(|place| has_server(place))
}

fn has_server(place: &Path) -> bool {
    place.join("initdb").exists() && place.join("postgres").exists()
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("every Unix has it");
    output.stdout.trim_ascii() == b"0"
}
