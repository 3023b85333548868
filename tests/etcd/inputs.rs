//! What cannot work is told with its remedy.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener},
    sync::Arc,
    time::Duration,
};

use etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use leasehold::{
    AcquireError, LeaseManager, Mode, StoreError,
    executor::{TokioExecutor, process_clock},
    store::{EtcdStore, Store, from_url},
};
use tokio::runtime::Runtime;

use crate::{
    address_of, connect,
    contract::client,
    faults::ask,
    manager,
    port::free_port,
    proxy_before,
    server::{self, Server},
};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

async fn refusal(address: &str) -> StoreError {
    EtcdStore::connect(address).await.expect_err("it is refused")
}

#[tokio::test]
async fn an_address_that_cannot_be_right_is_refused_with_its_remedy() {
    for (address, remedy) in
        [("", "host:port"), ("etcd://a b:1", "host:port"), ("etcd://me@localhost", "user:password")]
    {
        let error = refusal(address).await;
        assert!(!error.retry && error.message.contains(remedy), "{address}: {error}");
    }
    // Otherwise the first server would be taken for a part of the password.
    let error = refusal("etcd://me:secret@127.0.0.1:1,me:secret@127.0.0.1:2").await;
    assert!(!error.retry && error.message.contains("once, before the first server"), "{error}");
    assert!(!error.message.contains("secret"), "{error}");
    // Without a network no name can be resolved either, so this failure may pass.
    let error = refusal("etcd://no-such-host.invalid:2379").await;
    assert!(error.retry && error.message.contains("check the address"), "{error}");
    let error = EtcdStore::connect_with_prefix("localhost", "a/session/b").await.unwrap_err();
    assert!(!error.retry && error.message.contains("session"), "{error}");
}

#[cfg(not(feature = "store-etcd-tls"))]
#[tokio::test]
async fn without_the_feature_an_address_with_tls_is_refused_and_the_error_names_it() {
    for address in ["https://localhost:2379", "etcds://localhost"] {
        for error in [refusal(address).await, from_url(address).await.err().unwrap()] {
            assert!(!error.retry && error.message.contains("store-etcd-tls"), "{address}: {error}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_down_may_come_back() {
    let error = refusal(&format!("etcd://127.0.0.1:{}", free_port())).await;
    assert!(error.retry, "{error}");
    assert!(error.message.contains("127.0.0.1"), "{error}");
}

/// Like a host that does not exist, or one behind a firewall.
#[tokio::test]
async fn a_server_that_says_nothing_is_told_with_what_to_check() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let error = refusal(&format!("etcd://{}", listener.local_addr().unwrap())).await;
    assert!(error.retry && error.message.contains("check the host and the port"), "{error}");
}

#[tokio::test]
async fn what_is_no_etcd_is_refused() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            drop(stream.read(&mut [0; 64]));
            drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
            // Until the client hangs up.
            drop(stream.read_to_end(&mut Vec::new()));
        }
    });
    let error = refusal(&format!("etcd://127.0.0.1:{port}")).await;
    assert!(!error.retry && error.message.contains("is not etcd"), "{error}");
}

#[test]
fn there_must_be_a_runtime() {
    let error = futures::executor::block_on(EtcdStore::connect("localhost")).unwrap_err();
    assert!(error.message.contains("runtime"), "{error}");
}

#[test]
fn a_url_names_the_store() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let open = async || LeaseManager::from_url(&format!("{address}?prefix=by/url"), TokioExecutor::new()).await;
        let (one, two) = (open().await.unwrap(), open().await.unwrap());
        let guard = one.lock("k").acquire().await.unwrap();
        assert!(two.lock("k").try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
        let found = client(&address).await.get("by/url/record/k", None).await.unwrap();
        assert_eq!(found.kvs().len(), 1);
        let error = from_url("etcd://a b").await.err().unwrap();
        assert!(error.message.contains("host:port"), "{error}");
    });
}

#[test]
fn leases_of_a_newer_version_are_refused_and_kept() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let text = "{\"format\":99}";
        let mut other = client(&address).await;
        other.put("newer/store", text, None).await.unwrap();
        let error = manager(&address, "newer").await.build().unwrap().lock("k").acquire().await.unwrap_err();
        assert!(error.to_string().contains("update this program"), "{error}");
        let found = other.get("newer/store", None).await.unwrap();
        assert_eq!(found.kvs()[0].value_str().unwrap(), text);
    });
}

#[test]
fn keys_of_another_program_are_refused_and_kept() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let mut other = client(&address).await;
        for (prefix, name) in [("alien-store", "store"), ("alien-record", "record/k")] {
            let name = format!("{prefix}/{name}");
            other.put(name.as_str(), "by another program", None).await.unwrap();
            let asked = manager(&address, prefix).await.build().unwrap();
            let error = asked.lock("k").acquire().await.unwrap_err().to_string();
            assert!(error.contains("left as it is"), "{error}");
            let found = other.get(name.as_str(), None).await.unwrap();
            assert_eq!(found.kvs()[0].value_str().unwrap(), "by another program");
        }
    });
}

async fn acquire_many(address: &str, many: usize) -> Result<(), String> {
    let leases = manager(address, "many").await.build().unwrap();
    let keys: Vec<_> = (0..many).map(|number| format!("k{number}")).collect();
    let all = leases.lock_all(keys.iter().map(|key| (key.as_str(), Mode::Exclusive)));
    let held = all.timeout(BUSY).acquire().await.map_err(|error| error.to_string())?;
    held.release().await.map(drop).map_err(|error| error.to_string())
}

#[test]
fn more_rows_than_a_transaction_takes_are_refused_with_the_flag() {
    let Some(address) = server::shared() else { return };
    let runtime = Runtime::new().unwrap();
    runtime.block_on(acquire_many(&address, 126)).unwrap();
    let error = runtime.block_on(acquire_many(&address, 127)).unwrap_err();
    assert!(error.contains("129 rows") && error.contains("--max-txn-ops=256"), "{error}");
    let larger = Server::start(&["--max-txn-ops=256"]);
    runtime.block_on(acquire_many(&larger.address(), 127)).unwrap();
}

#[test]
fn more_bytes_than_a_transaction_takes_are_refused_with_the_flag() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&["--max-request-bytes=2048"]);
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&server.address(), "large").await.build().unwrap();
        let error = leases.lock("k").info("i".repeat(4_000)).acquire().await.unwrap_err();
        assert!(error.to_string().contains("--max-request-bytes"), "{error}");
        assert!(leases.lock("k").acquire().await.unwrap().is_valid(), "what is smaller goes on");
    });
}

#[test]
fn a_server_without_room_is_told_as_such() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&["--quota-backend-bytes=1"]);
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&server.address(), "full").await.build().unwrap();
        let error = leases.lock("k").timeout(Duration::from_secs(3)).acquire().await.unwrap_err();
        assert!(matches!(&error, AcquireError::Quota(why) if why.message.contains("etcdctl alarm disarm")), "{error}");
    });
}

/// Turns on users: `root`, `worker` who may use the leases only, and `reader` who may only read them.
pub(crate) async fn enable_users(client: &mut Client) {
    client.user_add("root", "secret", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.role_add("worker").await.unwrap();
    let permission = Permission::new(PermissionType::Readwrite, "leasehold/").with_prefix();
    client.role_grant_permission("worker", permission).await.unwrap();
    client.role_add("reader").await.unwrap();
    let permission = Permission::new(PermissionType::Read, "leasehold/").with_prefix();
    client.role_grant_permission("reader", permission).await.unwrap();
    for name in ["worker", "reader"] {
        client.user_add(name, "p@ss", None).await.unwrap();
        client.user_grant_role(name, name).await.unwrap();
    }
    client.auth_enable().await.unwrap();
}

#[test]
fn users_are_let_in_by_their_password_and_to_their_own_keys() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        let of = |user: &str| format!("etcd://{user}127.0.0.1:{}", server.port);
        let error = refusal(&of("worker:p%40ss@")).await;
        assert!(!error.retry && error.message.contains("knows no users"), "{error}");
        enable_users(&mut client(&server.address()).await).await;
        for (user, remedy) in [("", "user:password"), ("worker:wrong@", "password"), ("nobody:p%40ss@", "password")] {
            let error = refusal(&of(user)).await;
            assert!(!error.retry && error.message.contains(remedy), "{user}: {error}");
        }
        let error = EtcdStore::connect_with_prefix(&of("worker:p%40ss@"), "other").await.unwrap_err();
        assert!(!error.retry && error.message.contains("readwrite"), "{error}");
        let store = EtcdStore::connect(&of("worker:p%40ss@")).await.unwrap();
        let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        // Whoever may only read sees the leases, and is told what is missing when it requests one.
        let store = EtcdStore::connect(&of("reader:p%40ss@")).await.unwrap();
        let reads = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        assert_eq!(reads.status("k").await.unwrap().holders.len(), 1);
        let error = reads.lock("other").try_acquire().await.unwrap_err().to_string();
        assert!(error.contains("readwrite"), "{error}");
        guard.release().await.unwrap();
    });
}

/// Somebody has to correct the password, so the error must name it. They may know already that one of the servers is down.
#[test]
fn a_refused_password_is_reported_although_another_server_is_down() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        enable_users(&mut client(&server.address()).await).await;
        let (proxy, down) = (proxy_before(&server.address()), free_port());
        let address = format!("etcd://worker:p%40ss@127.0.0.1:{},127.0.0.1:{down}", proxy.port);
        let store = EtcdStore::connect(&address).await.unwrap();
        let root = ConnectOptions::new().with_user("root", "secret");
        let mut root = Client::connect([format!("127.0.0.1:{}", server.port)], Some(root)).await.unwrap();
        root.user_change_password("worker", "another").await.unwrap();
        proxy.cut();
        // This call still uses the connection that was cut.
        drop(store.transact(ask(1), process_clock(), BUSY).await);
        for _ in 0..4 {
            let error = store.transact(ask(1), process_clock(), BUSY).await.expect_err("no server lets it in");
            assert!(error.retry && error.message.contains("refused the user or the password"), "{error}");
        }
    });
}

#[test]
fn a_closed_store_keeps_no_connection() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        let store = Arc::new(connect(&address_of(&proxy), "closed").await);
        let leases = LeaseManager::builder(Arc::clone(&store), TokioExecutor::new()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        assert!(proxy.open() > 0);
        leases.close().await;
        while proxy.open() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(!guard.is_valid());
        drop(store);
    });
}

/// Each of the two would grant the same lease.
#[test]
fn a_server_of_another_cluster_is_refused() {
    let Some(other) = server::shared() else { return };
    let mut first = Server::start(&["--initial-cluster-token", "another"]);
    let address = format!("{},{}", first.address(), other.strip_prefix("etcd://").unwrap());
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let store = connect(&address, "two-clusters").await;
        first.kill();
        let told =
            async || store.transact(ask(1), process_clock(), BUSY).await.expect_err("none of its cluster answers");
        // A lasting error would cost the leases and fail the requests, although the first server may come back.
        let mut error = told().await;
        while !error.message.contains("another etcd cluster") {
            assert!(error.retry, "{error}");
            error = told().await;
        }
        assert!(error.retry, "{error}");
        first.start_again();
        while let Err(error) = store.transact(ask(1), process_clock(), BUSY).await {
            assert!(error.retry, "{error}");
        }
    });
}

/// Its connections are dead. A request would find that out only at its time limit.
#[test]
fn a_store_whose_runtime_ended_says_so_at_once() {
    let Some(address) = server::shared() else { return };
    let ended = Runtime::new().unwrap();
    let leases = ended.block_on(async { manager(&address, "ended").await.build().unwrap() });
    ended.block_on(async { leases.lock("k").acquire().await.unwrap().release().await.unwrap() });
    let store = ended.block_on(EtcdStore::connect_with_prefix(&address, "ended")).unwrap();
    ended.shutdown_timeout(BUSY);
    Runtime::new().unwrap().block_on(async {
        let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        let start = std::time::Instant::now();
        let error = leases.lock("k").timeout(BUSY).acquire().await.unwrap_err().to_string();
        assert!(error.contains("has ended") && error.contains("outlives"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    });
}
