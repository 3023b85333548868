//! A server that encrypts, and asks for a client certificate. The tests sign all certificates themselves.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use leasehold::{
    LeaseManager, LeaseManagerBuilder, StoreError,
    executor::TokioExecutor,
    store::{EtcdStore, Store, from_url},
};
use tokio::runtime::Runtime;

use crate::{
    Scratch,
    certificates::{self, leaf, sign},
    server::{self, Member, Server},
};

/// Longer than a server takes to start, however busy the machine is.
const STARTING: Duration = Duration::from_secs(60);

fn is_installed() -> bool {
    certificates::can_be_signed() && server::is_installed()
}

/// Two authorities, each with a client certificate; the first one also signs the server's.
fn sign_all(folder: &Path) {
    for authority in ["ca", "stranger"] {
        sign(folder, authority, &[]);
        let (pem, key) = (format!("{authority}.pem"), format!("{authority}.key"));
        sign(folder, &format!("of-{authority}"), &leaf(&pem, &key, "subjectAltName=DNS:client.test"));
        if authority == "ca" {
            sign(folder, "server", &leaf(&pem, &key, "subjectAltName=IP:127.0.0.1,DNS:etcd.test"));
        }
    }
}

struct Encrypted {
    server: Server,
    folder: Scratch,
}

impl Encrypted {
    fn start(asks_for_certificates: bool) -> Self {
        let (folder, member) = (Scratch::new(), Member::new());
        sign_all(&folder.0);
        let file = |name: &str| folder.0.join(name).display().to_string();
        let (url, cert, key, ca) =
            (format!("https://127.0.0.1:{}", member.client), file("server.pem"), file("server.key"), file("ca.pem"));
        let mut options = vec!["--listen-client-urls", &url, "--advertise-client-urls", &url];
        options.extend(["--cert-file", &cert, "--key-file", &key]);
        if asks_for_certificates {
            options.extend(["--client-cert-auth", "--trusted-ca-file", &ca]);
        }
        let encrypted = Self { server: Server::start_member(&member, &[&member], &options), folder };
        encrypted.wait(if asks_for_certificates { "ca=ca.pem&cert=of-ca.pem&key=of-ca.key" } else { "ca=ca.pem" });
        encrypted
    }

    /// An address of this server, with files of its folder.
    fn address(&self, host: &str, parameters: &str) -> String {
        let folder = format!("{}/", self.folder.0.display());
        let named = parameters.split('&').map(|parameter| match parameter.split_once('=') {
            Some((name @ ("ca" | "cert" | "key"), file)) => format!("{name}={folder}{file}"),
            _ => parameter.to_owned(),
        });
        format!("etcds://{host}:{}?{}", self.server.port, named.collect::<Vec<_>>().join("&"))
    }

    fn wait(&self, parameters: &str) {
        let (runtime, began) = (Runtime::new().unwrap(), Instant::now());
        while let Err(error) = runtime.block_on(EtcdStore::connect(&self.address("127.0.0.1", parameters))) {
            assert!(began.elapsed() < STARTING, "etcd does not start: {error}");
        }
    }

    async fn refusal(&self, host: &str, parameters: &str) -> StoreError {
        EtcdStore::connect(&self.address(host, parameters)).await.expect_err("it is refused")
    }

    async fn open(&self, host: &str, parameters: &str) -> LeaseManagerBuilder {
        let store = EtcdStore::connect(&self.address(host, parameters)).await.unwrap();
        LeaseManager::builder(store, TokioExecutor::new())
    }
}

#[test]
fn leases_are_acquired_handed_over_and_signalled_over_tls() {
    if !is_installed() {
        return;
    }
    let encrypted = Encrypted::start(false);
    Runtime::new().unwrap().block_on(async {
        // The lease is too long for anything but a signal to bring the grant in time.
        let hour = Duration::from_secs(3_600);
        let open = async |host, parameters| encrypted.open(host, parameters).await.lease(hour).build().unwrap();
        let (one, two) =
            (open("127.0.0.1", "ca=ca.pem").await, open("localhost", "ca=ca.pem&server_name=etcd.test").await);
        let guard = one.lock("k").acquire().await.unwrap();
        let wait = two.lock("k").timeout(Duration::from_secs(60)).acquire();
        let release = async {
            while one.status("k").await.unwrap().queue.is_empty() {
                tokio::task::yield_now().await;
            }
            guard.release().await.unwrap();
        };
        let (heir, ()) = futures::join!(wait, release);
        assert!(heir.unwrap().verify().await.unwrap());
    });
}

#[test]
fn a_url_names_the_files() {
    if !is_installed() {
        return;
    }
    let encrypted = Encrypted::start(true);
    Runtime::new().unwrap().block_on(async {
        let url = encrypted.address("127.0.0.1", "prefix=by/url&ca=ca.pem&cert=of-ca.pem&key=of-ca.key");
        for url in [url.replace("etcds://", "https://"), url] {
            let leases = LeaseManager::from_url(&url, TokioExecutor::new()).await.unwrap();
            assert!(leases.lock("k").try_acquire().await.unwrap().is_some());
            leases.close().await;
        }
        let error = from_url(&encrypted.address("127.0.0.1", "ca=no-such-file")).await.err().unwrap();
        assert!(!error.retry && error.message.contains("no-such-file"), "{error}");
    });
}

#[test]
fn a_server_that_is_not_trusted_or_has_another_name_is_refused_with_the_remedy() {
    if !is_installed() {
        return;
    }
    let encrypted = Encrypted::start(false);
    Runtime::new().unwrap().block_on(async {
        for (host, parameters, remedy) in [
            ("127.0.0.1", "ca=stranger.pem", "CA file by ca="),
            ("127.0.0.1", "", "CA file by ca="),
            ("localhost", "ca=ca.pem", "server_name="),
            ("127.0.0.1", "ca=ca.pem&server_name=other.test", "server_name="),
            ("127.0.0.1", "ca=server.key", "certificate"),
        ] {
            let error = encrypted.refusal(host, parameters).await;
            assert!(!error.retry && error.message.contains(remedy), "{host} {parameters}: {error}");
        }
        let plain = format!("etcd://127.0.0.1:{}", encrypted.server.port);
        let error = EtcdStore::connect(&plain).await.unwrap_err();
        assert!(error.message.contains("etcds://"), "{error}");
    });
}

#[test]
fn a_missing_or_untrusted_client_certificate_is_refused_with_the_remedy() {
    if !is_installed() {
        return;
    }
    let encrypted = Encrypted::start(true);
    Runtime::new().unwrap().block_on(async {
        for parameters in ["ca=ca.pem", "ca=ca.pem&cert=of-stranger.pem&key=of-stranger.key"] {
            let error = encrypted.refusal("127.0.0.1", parameters).await;
            assert!(error.message.contains("cert= and key="), "{parameters}: {error}");
        }
        let error = encrypted.refusal("127.0.0.1", "ca=ca.pem&cert=of-ca.pem&key=of-stranger.key").await;
        assert!(!error.retry && error.message.contains("belongs to"), "{error}");
    });
}

#[test]
fn a_server_without_tls_is_reported_as_such() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let error = EtcdStore::connect(&address.replace("etcd://", "etcds://")).await.unwrap_err();
        assert!(error.message.contains("etcd://"), "{error}");
    });
}

/// Another file replaces the first one while the store is in use, as when a certificate is renewed.
#[test]
fn files_are_read_again_after_a_connection_failed() {
    if !is_installed() {
        return;
    }
    let mut encrypted = Encrypted::start(true);
    let runtime = Runtime::new().unwrap();
    let (good, copy) = (encrypted.folder.0.join("of-ca.pem"), encrypted.folder.0.join("copy.pem"));
    std::fs::copy(&good, &copy).unwrap();
    let address = encrypted.address("127.0.0.1", "ca=ca.pem&cert=copy.pem&key=of-ca.key");
    let store = runtime.block_on(EtcdStore::connect(&address)).unwrap();
    std::fs::write(&copy, "").unwrap();
    encrypted.server.kill();
    runtime.block_on(store.keys("")).expect_err("nobody answers");
    encrypted.server.start_again();
    encrypted.wait("ca=ca.pem&cert=of-ca.pem&key=of-ca.key");
    runtime.block_on(async {
        let error = store.keys("").await.expect_err("the file holds no certificate");
        assert!(error.message.contains("copy.pem"), "{error}");
        std::fs::copy(&good, &copy).unwrap();
        assert_eq!(store.keys("").await.unwrap(), []);
    });
}
