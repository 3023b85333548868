//! Leases over encrypted connections, set up as documented: transactions, and the signals beside them.

use std::{
    env,
    process::Command,
    time::{Duration, Instant},
};

use leasehold::{
    LeaseManager, LeaseManagerBuilder, StoreError,
    executor::TokioExecutor,
    store::{self, PostgresStore, RedisStore, Store},
};
use leasehold_tls_tests::{Clients, Server};
use redis::{Client, ClientTlsConfig, TlsCertificates};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// More than anything takes here, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
/// Too long for anything but a signal to bring a grant in time.
const LEASE: Duration = Duration::from_secs(3_600);

/// One context is granted what the other one releases, at once.
async fn are_handed_over(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (open().await.lease(LEASE).build().unwrap(), open().await.lease(LEASE).build().unwrap());
    let guard = one.lock("k").acquire().await.unwrap();
    let release = async {
        while one.status("k").await.unwrap().queue.is_empty() {
            tokio::task::yield_now().await;
        }
        guard.release().await.unwrap();
    };
    let both = async { tokio::join!(two.lock("k").acquire(), release) };
    let (heir, ()) = tokio::time::timeout(PATIENCE, both).await.expect("the waiter is signalled");
    assert!(heir.unwrap().verify().await.unwrap());
}

/// A server that is starting refuses connections.
async fn started<S>(server: &Server, open: impl AsyncFn() -> Result<S, StoreError>) -> S {
    let began = Instant::now();
    loop {
        match open().await {
            Ok(store) => return store,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}: {}", server.log()),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn manager(store: impl Store + 'static) -> LeaseManagerBuilder {
    LeaseManager::builder(store, TokioExecutor::new())
}

/// A store that is open follows its server under another authority, once the file that its URL names has been replaced.
async fn files_are_read_again(mut server: Server, url: &str) {
    let trusted = server.file("trusted.pem");
    std::fs::copy(server.file("ca.pem"), &trusted).unwrap();
    let url = format!("{url}{}", trusted.display());
    let store = started(&server, async || store::from_url(&url).await).await;
    let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
    leases.status("k").await.unwrap();
    server.restart_under_stranger().unwrap();
    let began = Instant::now();
    let status = async || {
        assert!(began.elapsed() < PATIENCE, "the store does not recover");
        tokio::time::sleep(Duration::from_millis(20)).await;
        leases.status("k").await.map(drop).map_err(|error| error.to_string())
    };
    while !status().await.expect_err("its authority is a stranger").contains("certificate") {}
    std::fs::copy(server.file("stranger.pem"), &trusted).unwrap();
    while status().await.is_err() {}
}

mod postgres {
    use super::*;

    #[tokio::test]
    async fn a_replaced_file_is_read_for_the_next_connection() {
        let Some(server) = Server::postgres().unwrap() else { return };
        let url = format!("postgres://postgres@localhost:{}/postgres?sslmode=require&sslrootcert=", server.port);
        files_are_read_again(server, &url).await;
    }

    fn trusting(certificate: &std::path::Path) -> MakeRustlsConnect {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
        MakeRustlsConnect::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
    }

    #[tokio::test]
    async fn leases_are_handed_over_and_a_stranger_or_no_encryption_is_refused() {
        let Some(server) = Server::postgres().unwrap() else { return };
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode=require", server.port);
        let open = async || PostgresStore::builder(&url).tls(trusting(&server.file("ca.pem"))).connect().await;
        started(&server, open).await.migrate().await.unwrap();
        are_handed_over(async || manager(open().await.unwrap())).await;

        let stranger =
            PostgresStore::builder(&url).tls(trusting(&server.file("stranger.pem"))).connect().await.unwrap_err();
        assert!(stranger.message.contains("trusts its authority"), "{stranger}");
        let plain = url.replace("sslmode=require", "sslmode=disable");
        let plain = PostgresStore::connect(&plain).await.unwrap_err();
        assert!(plain.message.contains("sslmode=require in the URL"), "{plain}");
    }

    /// Servers before version 17 begin with a negotiation, and hang up otherwise.
    #[tokio::test]
    async fn a_server_that_cannot_begin_with_tls_is_told_as_such() {
        let Some(server) = Server::postgres().unwrap() else { return };
        let ca = server.file("ca.pem");
        let url = format!(
            "postgres://postgres@localhost:{}/postgres?sslmode=require&sslrootcert={}",
            server.port,
            ca.display()
        );
        started(&server, async || PostgresStore::connect(&url).await).await;
        // A newer server takes it.
        let Err(error) = PostgresStore::connect(&format!("{url}&sslnegotiation=direct")).await else { return };
        assert!(error.message.contains("sslnegotiation=direct, leave it out"), "{error}");
    }

    /// With the parameters of `psql`, and without a line of Rust.
    #[tokio::test]
    async fn a_url_is_enough_for_encryption_trust_and_a_certificate() {
        let Some(server) = Server::postgres().unwrap() else { return };
        let file = |name: &str| server.file(name).display().to_string();
        let url = format!("postgres://postgres@localhost:{}/postgres?prefix=jobs", server.port);
        let trusted = format!("{url}&sslmode=verify-full&sslrootcert={}", file("ca.pem"));
        let store = started(&server, async || store::from_url(&trusted).await).await;
        are_handed_over(async || LeaseManager::builder(store::from_url(&trusted).await.unwrap(), TokioExecutor::new()))
            .await;
        drop(store);

        let refusal = async |url: &str| store::from_url(url).await.map(drop).unwrap_err().message;
        let stranger = refusal(&format!("{url}&sslmode=require&sslrootcert={}", file("stranger.pem"))).await;
        assert!(stranger.contains("sslrootcert="), "{stranger}");
        let system = refusal(&format!("{url}&sslmode=require")).await;
        assert!(system.contains("sslrootcert="), "the system does not trust it: {system}");
        let another_name = refusal(&format!("{}&hostaddr=127.0.0.1", trusted.replace("localhost", "other.test"))).await;
        assert!(another_name.contains("check its host name"), "{another_name}");
        let missing = refusal(&format!("{url}&sslmode=require&sslrootcert=/no/such.pem")).await;
        assert!(missing.contains("\"/no/such.pem\", which sslrootcert= in the URL names, cannot be read"), "{missing}");
        let no_pem = refusal(&format!("{url}&sslmode=require&sslrootcert={}", file("log"))).await;
        assert!(no_pem.contains("is no PEM file"), "{no_pem}");
        assert!(refusal(&url).await.contains("sslmode=require in the URL"));

        let no_certificate = refusal(&format!("{url}&sslmode=require&sslrootcert={}", file("ca.key"))).await;
        assert!(
            no_certificate.contains("ca.key") && no_certificate.contains("holds no certificate"),
            "{no_certificate}"
        );
        let nameless = refusal(&trusted.replace("localhost", "").replace("?", "?hostaddr=127.0.0.1&")).await;
        assert!(nameless.contains("write the name as host="), "{nameless}");

        // The user that must show a certificate.
        let certified = trusted.replace("postgres@", "certified@");
        let unknown = refusal(&certified).await;
        assert!(unknown.contains("sslcert= and sslkey="), "{unknown}");
        let shown = format!("{certified}&sslcert={}&sslkey={}", file("client.pem"), file("client.key"));
        let shown = refusal(&shown).await;
        assert!(shown.contains("\"certified\" does not exist"), "the certificate is accepted: {shown}");
        let refused = format!("{certified}&sslcert={}&sslkey={}", file("stranger.pem"), file("stranger.key"));
        let refused = refusal(&refused).await;
        assert!(refused.contains("refuses the certificate of this program"), "{refused}");
        let torn = format!("{certified}&sslcert={}&sslkey={}", file("client.pem"), file("server.key"));
        let torn = refusal(&torn).await;
        assert!(torn.contains("cannot be used together"), "{torn}");
    }
}

mod over_redis {
    use super::*;

    #[tokio::test]
    async fn a_replaced_file_is_read_for_the_next_connection() {
        let Some(server) = Server::redis(Clients::Unknown, "server").unwrap() else { return };
        let url = format!("rediss://localhost:{}/?ca=", server.port);
        files_are_read_again(server, &url).await;
    }

    fn trusting(url: &str, certificate: &std::path::Path) -> Client {
        let root_cert = Some(std::fs::read(certificate).unwrap());
        Client::build_with_tls(url, TlsCertificates { client_tls: None, root_cert }).unwrap()
    }

    #[tokio::test]
    async fn leases_are_handed_over_and_a_stranger_or_no_encryption_is_refused() {
        let Some(server) = Server::redis(Clients::Unknown, "server").unwrap() else { return };
        let url = format!("rediss://127.0.0.1:{}/", server.port);
        let open = async || RedisStore::from_client(trusting(&url, &server.file("ca.pem"))).await;
        started(&server, open).await;
        are_handed_over(async || manager(open().await.unwrap())).await;

        let stranger = RedisStore::from_client(trusting(&url, &server.file("stranger.pem"))).await.unwrap_err();
        assert!(stranger.message.contains("build_with_tls"), "{stranger}");
        let plain = RedisStore::connect(&url.replace("rediss", "redis")).await.unwrap_err();
        assert!(plain.message.contains("if it expects TLS, write rediss://"), "{plain}");
    }

    /// Redis asks for one unless it is told otherwise.
    #[tokio::test]
    async fn a_server_may_ask_for_a_client_certificate() {
        let Some(server) = Server::redis(Clients::Certified, "server").unwrap() else { return };
        let url = format!("rediss://127.0.0.1:{}/", server.port);
        let read = |name: &str| std::fs::read(server.file(name)).unwrap();
        let certified = || {
            let client_tls = Some(ClientTlsConfig { client_cert: read("client.pem"), client_key: read("client.key") });
            Client::build_with_tls(url.clone(), TlsCertificates { client_tls, root_cert: Some(read("ca.pem")) })
                .unwrap()
        };
        started(&server, async || RedisStore::from_client(certified()).await).await;
        let mut said = String::new();
        // The server closes the connection right after its alert, so the alert may be lost.
        for _ in 0..20 {
            said = RedisStore::from_client(trusting(&url, &server.file("ca.pem"))).await.unwrap_err().message;
            if said.contains("asks for a certificate") {
                return;
            }
        }
        panic!("{said}");
    }

    #[tokio::test]
    async fn a_url_names_an_authority_and_a_certificate() {
        let Some(server) = Server::redis(Clients::Certified, "server").unwrap() else { return };
        let file = |name: &str| server.file(name).display().to_string();
        let url = format!("rediss://localhost:{}/?ca={}", server.port, file("ca.pem"));
        let shown = format!("{url}&cert={}&key={}", file("client.pem"), file("client.key"));
        started(&server, async || store::from_url(&shown).await).await;
        are_handed_over(async || LeaseManager::builder(store::from_url(&shown).await.unwrap(), TokioExecutor::new()))
            .await;

        let refusal = async |url: &str| store::from_url(url).await.map(drop).unwrap_err().message;
        let stranger = refusal(&shown.replace("/ca.pem", "/stranger.pem")).await;
        assert!(stranger.contains("ca= in the URL"), "{stranger}");
        let refused = format!("{url}&cert={}&key={}", file("stranger.pem"), file("stranger.key"));
        let mut said = String::new();
        // The server closes the connection right after its alert, so the alert may be lost.
        for _ in 0..20 {
            said = refusal(&refused).await;
            if said.contains("refuses the certificate of this program") {
                break;
            }
        }
        assert!(said.contains("by cert= and key="), "{said}");
        let missing = refusal(&url.replace("/ca.pem", "/no-such.pem")).await;
        assert!(missing.contains("no-such.pem\", which ca= in the URL names, cannot be read"), "{missing}");
        let plain = refusal(&shown.replace("rediss", "redis")).await;
        assert!(plain.contains("begin the URL with rediss://"), "{plain}");
        let half = refusal(&format!("{url}&cert=c.pem")).await;
        assert!(half.contains("cert= and key="), "{half}");
    }

    #[tokio::test]
    async fn a_useless_file_is_named_and_its_url_stays_valid() {
        let Some(server) = Server::redis(Clients::Unknown, "server").unwrap() else { return };
        let file = |name: &str| server.file(name).display().to_string();
        let url = format!("rediss://localhost:{}/", server.port);
        started(&server, async || store::from_url(&format!("{url}?ca={}", file("ca.pem"))).await).await;
        std::fs::write(file("broken.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        std::fs::write(file("closed.key"), "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n").unwrap();
        let (cert, key) = (file("client.pem"), file("client.key"));
        let missing = format!("{url}?ca={}", file("no-such.pem"));
        let error = store::from_url(&missing).await.map(drop).unwrap_err();
        assert!(!error.retry && error.message.contains("cannot be read"), "{error}");
        store::check_url(&missing).unwrap();
        for (parameters, named, what) in [
            (format!("ca={key}"), "client.key", "holds no certificate"),
            (format!("ca={}", file("broken.pem")), "broken.pem", "cannot be used"),
            (format!("cert={cert}&key={}", file("closed.key")), "closed.key", "openssl pkey"),
            (format!("cert={cert}&key={cert}"), "client.pem", "holds no private key"),
            (format!("cert={key}&key={key}"), "client.key", "holds no certificate"),
            (format!("ca={0}&cert={cert}&key={1}", file("ca.pem"), file("server.key")), "cert=", "a matching pair"),
        ] {
            let url = format!("{url}?{parameters}");
            let error = store::from_url(&url).await.map(drop).unwrap_err();
            assert!(
                error.retry && error.message.contains(named) && error.message.contains(what),
                "{parameters}: {error}"
            );
            store::check_url(&url).unwrap();
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_speak_tls_is_reported_as_such() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = nobody.local_addr().unwrap().port();
        let closer = std::thread::spawn(move || drop(nobody.accept()));
        let error = RedisStore::connect(&format!("rediss://127.0.0.1:{port}/")).await.unwrap_err();
        closer.join().unwrap();
        assert!(error.message.contains("write redis://") && !error.message.contains("rediss://"), "{error}");
    }

    /// As a server without TLS does, which waits for the end of a command. Its system accepts connections.
    #[tokio::test]
    async fn a_server_that_waits_for_more_may_not_speak_tls() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let refusal = async |url: String| RedisStore::connect(&url).await.unwrap_err();
        let (alone, group, plain) = tokio::join!(
            refusal(format!("rediss://127.0.0.1:{port}/")),
            refusal(format!("rediss-cluster://127.0.0.1:{port}")),
            refusal(format!("redis://127.0.0.1:{port}/"))
        );
        for error in [alone, group] {
            assert!(error.retry && error.message.contains("if it does not speak TLS, write redis://"), "{error}");
        }
        assert!(!plain.message.contains("TLS"), "{plain}");
    }

    /// Sends a command to a server that may be starting.
    async fn tell(server: &Server, words: &[&str]) {
        let client = trusting(&format!("rediss://localhost:{}/", server.port), &server.file("ca.pem"));
        let began = Instant::now();
        loop {
            let told = match client.get_multiplexed_async_connection().await {
                Ok(mut link) => redis::cmd(words[0]).arg(&words[1..]).exec_async(&mut link).await,
                Err(error) => Err(error),
            };
            let Err(error) = told else { return };
            assert!(began.elapsed() < PATIENCE, "{error}: {}", server.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn the_nodes_of_a_cluster_are_trusted_alike() {
        let Some(server) = Server::node().unwrap() else { return };
        tell(&server, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
        let url = format!("rediss-cluster://localhost:{}/?ca={}", server.port, server.file("ca.pem").display());
        started(&server, async || store::from_url(&url).await).await;
        are_handed_over(async || LeaseManager::builder(store::from_url(&url).await.unwrap(), TokioExecutor::new()))
            .await;
    }

    #[tokio::test]
    async fn the_master_is_trusted_like_its_sentinel() {
        let Some(master) = Server::redis(Clients::Unknown, "server").unwrap() else { return };
        tell(&master, &["PING"]).await;
        let Some(sentinel) = Server::sentinel(&master).unwrap() else { return };
        // Each has an authority of its own, so one file has both.
        let both = sentinel.file("both.pem");
        let authorities = [&master, &sentinel].map(|server| std::fs::read_to_string(server.file("ca.pem")).unwrap());
        std::fs::write(&both, authorities.concat()).unwrap();
        let url = format!("rediss-sentinel://localhost:{}/mymaster?ca={}", sentinel.port, both.display());
        started(&sentinel, async || store::from_url(&url).await).await;
        are_handed_over(async || LeaseManager::builder(store::from_url(&url).await.unwrap(), TokioExecutor::new()))
            .await;
    }

    #[tokio::test]
    async fn a_certificate_that_signs_itself_is_trusted_unless_it_is_that_of_an_authority() {
        let url = |server: &Server, name: &str| {
            format!("rediss://localhost:{}/?ca={}", server.port, server.file(name).display())
        };
        let Some(server) = Server::redis(Clients::Unknown, "own").unwrap() else { return };
        started(&server, async || store::from_url(&url(&server, "own.pem")).await).await;
        let Some(server) = Server::redis(Clients::Unknown, "authority").unwrap() else { return };
        let url = url(&server, "authority.pem");
        let began = Instant::now();
        let mut said = String::new();
        while !said.contains("basicConstraints=CA:FALSE") {
            assert!(began.elapsed() < PATIENCE, "{said}");
            said = store::from_url(&url).await.map(drop).unwrap_err().message;
        }
    }

    /// `SSL_CERT_FILE` names the trusted certificates. It must be set before the process starts, so the test starts itself again.
    #[tokio::test]
    async fn a_url_is_enough_where_the_system_trusts_the_certificate() {
        const TRUSTED: &str = "SSL_CERT_FILE";
        const URL: &str = "LEASEHOLD_TLS_URL";
        if let Ok(url) = env::var(URL) {
            let leases = LeaseManager::from_url(&url, TokioExecutor::new()).await.unwrap();
            assert!(leases.lock("k").try_acquire().await.unwrap().is_some());
            return leases.close().await;
        }
        let Some(server) = Server::redis(Clients::Unknown, "server").unwrap() else { return };
        let url = format!("rediss://localhost:{}/", server.port);
        started(&server, async || RedisStore::from_client(trusting(&url, &server.file("ca.pem"))).await).await;
        let mut other = Command::new(env::current_exe().unwrap());
        other.args(["--exact", "over_redis::a_url_is_enough_where_the_system_trusts_the_certificate"]);
        let done = other.env(URL, &url).env(TRUSTED, server.file("ca.pem")).output().unwrap();
        let told = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && told.contains("1 passed"), "{told}");
    }
}
