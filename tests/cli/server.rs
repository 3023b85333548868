//! The program over servers, which the tests start. The same tests run over each kind of server.

use std::{
    any::Any,
    fs,
    thread::{ScopedJoinHandle, scope, sleep},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};

use crate::{
    harness::{Done, Running, Scratch, is_right_once},
    proxy::{Proxy, Way, Wire},
    signals::NAPS,
    until::wait_until,
    wall_clock::WallClock,
};

/// Nothing that the proxy sees counts as a commit.
const WIRE: Wire = Wire { commit: b"", committed: b"" };

/// A store of the test's own on a server.
struct Place {
    scratch: Scratch,
    url: String,
    port: u16,
    /// Dropping this ends the server. `None` if other tests share the server.
    _server: Option<Box<dyn Any + Send + Sync>>,
}

impl Place {
    fn new(url: String, port: u16, server: Option<Box<dyn Any + Send + Sync>>) -> Self {
        Self { scratch: Scratch::new(), url, port, _server: server }
    }

    /// Runs `leasehold COMMAND --store URL REST` to its end.
    fn done(&self, command: &str, rest: &[&str]) -> Done {
        self.scratch.done(&[&[command, "--store", &self.url][..], rest].concat())
    }

    /// Starts a script under the lease of `k`, and waits until the script has said `ready`.
    fn ready(&self, script: &str) -> Running {
        self.scratch.ready(&["--store", &self.url], script)
    }
}

fn ended(running: Running, why: &str) {
    let (code, err) = running.end();
    assert_eq!(code, 75, "{err}");
    assert!(err.contains("the lease of \"k\"") && err.contains(why), "{err}");
}

fn a_lease_is_held_refused_and_released(place: &Place) {
    assert_eq!(place.done("run", &["k", "sh", "-c", "exit 7"]).code, 7);
    let holder = place.ready(&format!("trap 'exit 9' TERM; {NAPS}"));
    assert_eq!(place.done("run", &["-n", "k", "true"]).code, 1);
    assert_eq!(place.done("run", &["-n", "-E", "5", "k", "true"]).code, 5);
    let listed = place.done("list", &["--json"]).out;
    assert!(listed.contains(&format!("pid {}", holder.pid())), "{listed}");
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.end().0, 9);
    let status = place.done("status", &["k"]).out;
    assert!(status.contains("free"), "{status}");
}

fn a_theft_ends_the_command(place: &Place) {
    let victim = place.ready(&format!("trap 'echo told; exit 0' TERM; {NAPS}"));
    let thief = place.done("steal", &["k"]);
    assert_eq!(thief.code, 0, "{thief:?}");
    assert_eq!(victim.line().as_deref(), Some("told"));
    ended(victim, "another process stole it");
}

/// Only the lease keeps the counter exact.
fn processes_take_turns_and_lose_no_increment(place: &Place) {
    const PROCESSES: usize = 4;
    const ROUNDS: usize = 5;
    let folder = &place.scratch.0;
    fs::write(folder.join("count"), "0\n").unwrap();
    let increment = "read n < count; sleep 0.01; echo $((n + 1)) > count";
    let turns = format!(
        "for i in $(seq {ROUNDS}); do leasehold run -q --store '{}' k -- sh -c '{increment}' || exit; echo turn; done",
        place.url
    );
    let start = || Running::start(&mut place.scratch.command("sh", &["-c", &turns]));
    let shells: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    for shell in shells {
        // On a busy machine, all turns together may take longer than `end` waits. So the test waits for each turn.
        assert_eq!(std::iter::from_fn(|| shell.line()).count(), ROUNDS);
        assert_eq!(shell.end(), (0, String::new()));
    }
    assert_eq!(fs::read_to_string(folder.join("count")).unwrap(), format!("{}\n", PROCESSES * ROUNDS));
}

/// Nobody listens to what a try tells a dead holder.
fn a_dead_holder_does_not_delay_a_refusal(place: &Place) {
    let holder = place.ready("echo ready; exec sleep 600");
    let took = || {
        let begun = Instant::now();
        assert_eq!(place.done("run", &["-n", "k", "true"]).code, 1);
        begun.elapsed()
    };
    // Something else may keep the machine busy for a while. Then a refusal by a living holder takes as long.
    let by_the_living = (0..3).map(|_| took()).max();
    drop(holder);
    let limit = by_the_living.max(Some(Duration::from_millis(700))).expect("it is one of two");
    is_right_once((0..5).map(|_| took()), |took| *took < limit);
}

/// The clock of the holder's machine is an hour behind. Otherwise a process would wait for the proof of a death that never comes.
fn a_holder_whose_clock_is_behind_is_alive(place: &Place) {
    const LEASE: Duration = Duration::from_secs(20);
    let Some(clock) = WallClock::new() else { return };
    clock.jump(-3_600);
    let script = "echo ready; exec sleep 600";
    let mut command = place.scratch.leasehold(&["run", "--store", &place.url, "k", "sh", "-c", script]);
    let holder = Running::start(command.envs(clock.environment()));
    assert_eq!(holder.line().as_deref(), Some("ready"), "{}", holder.err());
    let (scratch, url) = (&place.scratch, &place.url);
    let refused = |options: &'static [&'static str]| {
        move || {
            let begun = Instant::now();
            let done = scratch.opened(&[&["run", "--store", url][..], options, &["k", "true"]].concat());
            assert!(done.code == 1 && begun.elapsed() < LEASE, "{options:?}: {done:?} after {:?}", begun.elapsed());
        }
    };
    scope(|threads| {
        threads.spawn(refused(&["-n"]));
        threads.spawn(refused(&["-w", "2"]));
    });
}

/// KILL comes before anybody else can be granted the key. On a busy machine, the command may not get to say that it heard of TERM, and the
/// test may hear of its end too late.
fn a_server_that_falls_silent_ends_the_command_before_the_lease(place: &Place) {
    let ends = |lease| (lease, ends_when_the_server_falls_silent(place, lease));
    is_right_once([4, 4, 12].into_iter().map(ends), |(lease, (told, took))| {
        told.as_deref() == Some("told") && *took < Duration::from_secs(*lease)
    });
}

fn ends_when_the_server_falls_silent(place: &Place, lease: u64) -> (Option<String>, Duration) {
    let proxy = Proxy::start(place.port, WIRE);
    let url = place.url.replace(&format!(":{}", place.port), &format!(":{}", proxy.port));
    let options = ["--store", &url, "--lease", &lease.to_string(), "--grace", "0.5"];
    let holder = place.scratch.ready(&options, &format!("echo ready; echo $$; trap 'echo told' TERM; {NAPS}"));
    let command = Pid::from_raw(holder.line().unwrap().parse().unwrap());
    assert_eq!(holder.line().as_deref(), Some("ready"), "the trap is set");
    proxy.fall_silent();
    let silent = Instant::now();
    let told = holder.line();
    wait_until("its end", || kill(command, None) == Err(Errno::ESRCH));
    let took = silent.elapsed();
    ended(holder, "cannot be renewed");
    (told, took)
}

/// The holder is cut off from the server, and another leasehold, which is not, waits for the key. The command and what it has started
/// ignore TERM. The grace is as long as the lease allows, so that KILL comes as late as it may. When the rival's command begins, it checks
/// whether any process of the holder's group is left. With `--on-loss warn` one is, so the check can fail.
fn a_group_that_ignores_term_is_gone_before_a_rivals_command_begins(place: &Place) {
    // leasehold can only be in time while it runs. If the machine kept this process from running for so long, it may have kept leasehold
    // from running, too. Then an attempt in which somebody is left proves nothing. Each other attempt counts.
    const BUSY: Duration = Duration::from_millis(300);
    let is_proof = |_| {
        let ([killed, warned], pause) = finds_side_by_side(place);
        println!("{killed} after kill, {warned} after warn; the machine paused for {pause:?}");
        assert_eq!(warned, "left");
        assert!(killed == "gone" || pause > BUSY, "the machine paused for {pause:?}");
        killed == "gone"
    };
    assert!((0..5).any(is_proof), "the machine is too busy");
}

/// What the rivals' commands find, and the longest time for which this process did not run meanwhile.
fn finds_side_by_side(place: &Place) -> ([String; 2], Duration) {
    scope(|threads| {
        let finds = ["kill", "warn"]
            .map(|on_loss| threads.spawn(move || finds_when_it_begins(place, on_loss, Proxy::fall_silent)));
        let mut pause = Duration::ZERO;
        while !finds.iter().all(ScopedJoinHandle::is_finished) {
            let start = Instant::now();
            sleep(Duration::from_millis(10));
            pause = pause.max(start.elapsed());
        }
        (finds.map(|found| found.join().expect("it fails with a message of its own")), pause)
    })
}

/// What the rival's command finds after the holder was cut off in this way.
fn finds_when_it_begins(place: &Place, on_loss: &str, cut_off: impl Fn(&Proxy)) -> String {
    let (key, times) = (&on_loss[..1], ["--lease", "6", "--grace", "1.6"]);
    let proxy = Proxy::start(place.port, WIRE);
    let url = place.url.replace(&format!(":{}", place.port), &format!(":{}", proxy.port));
    let script = "trap '' TERM; sleep 600 & echo $$; exec sleep 600";
    let options = ["run", "--store", &url, "--on-loss", on_loss];
    let holder = place.scratch.start(&[&options, &times[..], &[key, "sh", "-c", script]].concat());
    let group = Pid::from_raw(holder.line().expect("it runs").parse().expect("it is a process id"));
    // A dead process stays in the group until its parent has waited for it.
    let look = format!("ps -A -o pgid= -o stat= | grep -q '^ *{group} [^Z]' && echo left || echo gone");
    let options = ["run", "-q", "--store", &place.url];
    let mut rival = place.scratch.start(&[&options, &times[..], &[key, "sh", "-c", &look]].concat());
    let waits = || place.done("status", &["--json", key]).out.contains(r#""queue":[{"#);
    // On a busy machine, the holder may have lost the lease by then.
    wait_until("the queue", || rival.has_ended() || waits());
    cut_off(&proxy);
    let found = rival.line().expect("it is granted the key");
    match on_loss {
        "kill" => assert_eq!(holder.end().0, 75),
        _ => killpg(group, Signal::SIGKILL).expect("it is left"),
    }
    assert_eq!(rival.end(), (0, String::new()));
    found
}

/// The holder is cut off from the server, so nobody can tell it that another one is granted the key.
fn warn_tells_of_a_late_lease_before_a_rival_is_granted_the_key(place: &Place) {
    let proxy = Proxy::start(place.port, WIRE);
    let url = place.url.replace(&format!(":{}", place.port), &format!(":{}", proxy.port));
    let options = ["--store", &url, "--on-loss", "warn", "--lease", "6"];
    let holder = place.scratch.ready(&options, &format!("trap 'exit 9' TERM; echo ready; {NAPS}"));
    assert_eq!(holder.line().as_deref(), Some("ready"), "the trap is set");
    proxy.fall_silent();
    let rival = place.done("run", &["-q", "--lease", "6", "k", "echo", "granted"]);
    let heard = holder.err();
    assert_eq!((rival.code, &*rival.out), (0, "granted\n"), "{rival:?}");
    assert!(heard.contains("cannot be renewed") && heard.contains("may be granted the key"), "{heard}");
    holder.signal(Signal::SIGTERM);
    let (code, err) = holder.end();
    assert!(
        code == 9 && err.contains("it may have run out, so another process may have been granted the key"),
        "{code}: {err}"
    );
}

/// `timeout` tells its child to end, and then the group of its child.
fn a_second_signal_does_not_belie_a_release_that_succeeds(place: &Place) {
    let proxy = Proxy::start(place.port, WIRE);
    let url = place.url.replace(&format!(":{}", place.port), &format!(":{}", proxy.port));
    let holder = place.scratch.ready(&["--store", &url], &format!("trap 'exit 9' TERM; {NAPS}"));
    proxy.delay(Way::ToServer, Duration::from_millis(100));
    holder.signal(Signal::SIGTERM);
    sleep(Duration::from_millis(50));
    holder.signal(Signal::SIGTERM);
    let (code, err) = holder.end();
    assert!(code == 9 && !err.contains("leasehold:"), "{code}: {err}");
    let status = place.done("status", &["k"]).out;
    assert!(status.contains("free"), "{status}");
}

/// Declares these tests for one kind of server. `place` gets the test's name, which is unique, and returns a store, or `None` if no such
/// server is installed.
macro_rules! over {
    ($place:ident: $($test:ident)*) => {$(
        #[test]
        fn $test() {
            if let Some(place) = $place(stringify!($test)) {
                super::$test(&place);
            }
        }
    )*};
    ($place:ident) => {
        over! { $place:
            a_lease_is_held_refused_and_released
            a_theft_ends_the_command
            a_dead_holder_does_not_delay_a_refusal
            a_holder_whose_clock_is_behind_is_alive
            processes_take_turns_and_lose_no_increment
            a_server_that_falls_silent_ends_the_command_before_the_lease
            a_group_that_ignores_term_is_gone_before_a_rivals_command_begins
            warn_tells_of_a_late_lease_before_a_rival_is_granted_the_key
            a_second_signal_does_not_belie_a_release_that_succeeds
        }
    };
}

#[cfg(feature = "store-redis")]
mod redis {
    use super::Place;
    use crate::redis_server::Server;

    fn place(_: &str) -> Option<Place> {
        let server = Server::start(&[])?;
        let (url, port) = (format!("redis://{}", server.address()), server.port());
        Some(Place::new(url, port, Some(Box::new(server))))
    }

    over!(place);
}

#[cfg(feature = "store-postgres")]
mod postgres {
    use super::Place;
    use crate::postgres_server as server;

    fn place(name: &str) -> Option<Place> {
        // `PostgresStore` takes prefixes of at most 50 bytes.
        let tables = server::Place::new(&name[..name.len().min(50)])?;
        let url = format!("{}?prefix={}", tables.url, tables.prefix);
        Some(Place::new(url, tables.port(), None))
    }

    over!(place);
}

#[cfg(feature = "store-postgres")]
mod postgres_with_beacons {
    use std::{thread::sleep, time::Duration};

    use super::{Place, finds_when_it_begins};
    use crate::{harness::is_right_once, postgres_server as server, proxy::Proxy, until::wait_until};

    fn place(name: &str) -> Option<Place> {
        let tables = server::Place::new(&format!("beacons_{}", &name[..name.len().min(40)]))?;
        let url = format!("{}?prefix={}&signals=beacons", tables.url, tables.prefix);
        Some(Place::new(url, tables.port(), None))
    }

    over! { place:
        a_lease_is_held_refused_and_released
        a_theft_ends_the_command
        a_group_that_ignores_term_is_gone_before_a_rivals_command_begins
    }

    /// Otherwise its lease would have to run out. Whoever comes after its death needs 10 s to tell that death from a restart of the server.
    #[test]
    fn a_dead_holder_is_replaced_before_its_lease_has_run_out() {
        let Some(place) = place("a_dead_holder_is_replaced") else { return };
        let options = ["--store", &place.url, "--lease", "3600", "--grace", "1"];
        let holder = || place.scratch.ready(&options, "echo ready; exec sleep 600");
        let first = holder();
        let waits = place.scratch.start(&["run", "-q", "--store", &place.url, "k", "echo", "granted"]);
        wait_until("the queue", || place.done("status", &["--json", "k"]).out.contains(r#""queue":[{"#));
        drop(first);
        assert_eq!(waits.line().as_deref(), Some("granted"));
        drop(holder());
        assert_eq!(place.done("run", &["-n", "k", "true"]).code, 1);
        let later = place.done("run", &["-q", "-w", "25", "k", "echo", "granted"]);
        assert_eq!((later.code, &*later.out, &*later.err), (0, "granted\n", ""));
    }

    /// Here nothing promises that its command ends before the rival's begins.
    #[test]
    fn a_holder_whose_connection_the_server_closes_counts_as_dead() {
        let Some(place) = place("a_holder_whose_connection_is_closed") else { return };
        let cut = |proxy: &Proxy| {
            // By now the rival has seen the beacon. Otherwise it would wait longer than the lease lasts.
            sleep(Duration::from_secs(1));
            proxy.cut();
            proxy.fall_silent();
        };
        // On a busy machine, the rival may come so late that the command has ended.
        is_right_once((0..3).map(|_| finds_when_it_begins(&place, "kill", cut)), |found| found == "left");
    }
}

#[cfg(feature = "store-etcd")]
mod etcd {
    use super::Place;
    use crate::etcd_server::shared;

    fn place(name: &str) -> Option<Place> {
        let address = shared()?;
        let port = address.rsplit(':').next()?.parse().expect("it ends with a port");
        Some(Place::new(format!("{address}?prefix={name}"), port, None))
    }

    over!(place);
}
