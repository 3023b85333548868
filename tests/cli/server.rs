//! The program over a server, which the tests start.

use std::time::{Duration, Instant};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{Running, Scratch, until},
    redis_server::Server,
    signals::NAPS,
};

/// The URL of a store on it.
fn url(server: &Server) -> String {
    format!("redis://{}", server.address())
}

fn ended(running: Running, why: &str) {
    let (code, err) = running.end();
    assert_eq!(code, 75, "{err}");
    assert!(err.contains("the lease of \"k\"") && err.contains(why), "{err}");
}

#[test]
fn a_lease_on_a_server_is_held_refused_and_released() {
    let Some(server) = Server::start(&[]) else { return };
    let (scratch, url) = (Scratch::new(), url(&server));
    assert_eq!(scratch.done(&["run", "--store", &url, "k", "sh", "-c", "exit 7"]).code, 7);
    let holder = scratch.ready(&["--store", &url], &format!("trap 'exit 9' TERM; {NAPS}"));
    assert_eq!(scratch.done(&["run", "-n", "--store", &url, "k", "true"]).code, 1);
    assert_eq!(scratch.done(&["run", "-n", "-E", "5", "--store", &url, "k", "true"]).code, 5);
    let listed = scratch.done(&["list", "--json", "--store", &url]).out;
    assert!(listed.contains(&format!("pid {}", holder.pid())), "{listed}");
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.end().0, 9);
    let status = scratch.done(&["status", "--store", &url, "k"]).out;
    assert!(status.contains("free"), "{status}");
}

#[test]
fn a_theft_on_a_server_ends_the_command() {
    let Some(server) = Server::start(&[]) else { return };
    let (scratch, url) = (Scratch::new(), url(&server));
    let victim = scratch.ready(&["--store", &url], &format!("trap 'echo told; exit 0' TERM; {NAPS}"));
    let thief = scratch.done(&["steal", "--store", &url, "k"]);
    assert_eq!(thief.code, 0, "{thief:?}");
    assert_eq!(victim.line().as_deref(), Some("told"));
    ended(victim, "another process stole it");
}

/// KILL comes before anybody else can be granted the key.
#[test]
fn a_server_that_hangs_ends_the_command_before_the_lease() {
    const LEASE: Duration = Duration::from_secs(4);
    let Some(server) = Server::start(&[]) else { return };
    let scratch = Scratch::new();
    let options = ["--store", &url(&server), "--lease", "4", "--grace", "0.5"];
    let holder = scratch.ready(&options, &format!("echo ready; echo $$; trap 'echo told' TERM; {NAPS}"));
    let command = Pid::from_raw(holder.line().unwrap().parse().unwrap());
    assert_eq!(holder.line().as_deref(), Some("ready"), "the trap is set");
    server.signal("STOP");
    let hangs = Instant::now();
    assert_eq!(holder.line().as_deref(), Some("told"));
    until("its end", || kill(command, None) == Err(Errno::ESRCH));
    assert!(hangs.elapsed() < LEASE, "{:?}", hangs.elapsed());
    ended(holder, "cannot be renewed");
}
