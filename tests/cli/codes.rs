//! The exit codes, and what is said with them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use crate::{
    harness::{Done, LIMIT, Running, Scratch, is_right_once},
    wall_clock::WallClock,
};

fn told(done: &Done, code: i32, parts: &[&str]) {
    assert_eq!(done.code, code, "{done:?}");
    assert!(done.err.starts_with("leasehold: ") && done.err.lines().count() == 1, "{done:?}");
    for part in parts {
        assert!(done.err.contains(part), "{part:?} is missing: {done:?}");
    }
}

#[test]
fn the_code_of_the_command_is_passed_on() {
    let scratch = Scratch::new();
    for code in [0, 1, 7, 75, 255] {
        let done = scratch.done(&["run", "k", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!((done.code, &*done.err), (code, ""), "{done:?}");
    }
}

#[test]
fn a_command_that_a_signal_ends_gives_128_and_its_number() {
    let scratch = Scratch::new();
    // 40 is a real-time signal, which has no name.
    for (signal, code) in [("KILL", 137), ("SEGV", 139), ("PIPE", 141), ("40", 168)] {
        let done = scratch.done(&["run", "k", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(done.code, code, "{done:?}");
    }
}

#[test]
fn a_command_that_is_not_found_gives_127() {
    let scratch = Scratch::new();
    told(&scratch.done(&["run", "k", "no-such-command"]), 127, &["no-such-command", "PATH"]);
    assert_eq!(scratch.done(&["run", "-n", "k", "true"]).code, 0, "the lease was given back");
}

/// Users of flock know `-c`. A variable before the command, or a builtin of the shell, needs a shell, too.
#[test]
fn a_line_of_shell_is_refused_with_the_way_to_run_it() {
    let scratch = Scratch::new();
    for words in [&["echo hi"][..], &["NAME=1", "env"], &["cd", "/"]] {
        told(&scratch.done(&[&["run", "k"], words].concat()), 127, &[words[0], "sh -c LINE"]);
    }
}

#[test]
fn a_script_whose_interpreter_is_missing_is_not_reported_as_missing() {
    let scratch = Scratch::new();
    for (name, line) in [("gone", "#!/no/such/shell\n"), ("dos", "#!/bin/sh\r\n")] {
        let path = scratch.0.join(name);
        fs::write(&path, line).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        told(&scratch.done(&["run", "k", &format!("./{name}")]), 127, &[name, "interpreter", "#!"]);
        // The same, found by its name.
        let path = format!("{}:{}", std::env::var("PATH").unwrap(), scratch.0.display());
        let by_name = crate::harness::done(scratch.leasehold(&["run", "k", name]).env("PATH", path));
        told(&by_name, 127, &[name, "interpreter", "#!"]);
    }
}

#[test]
fn a_command_that_cannot_be_executed_gives_126() {
    let scratch = Scratch::new();
    told(&scratch.done(&["run", "k", "/"]), 126, &["/", "denied"]);
    fs::write(scratch.0.join("plain"), "no program\n").unwrap();
    told(&scratch.done(&["run", "k", "./plain"]), 126, &["./plain"]);
}

#[test]
fn a_key_that_is_taken_gives_1_or_the_code_that_was_chosen() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    for options in [&["-n"][..], &["-w", "0.2"], &["-w", "0"]] {
        for (chosen, code) in [(None, 1), (Some("0"), 0), (Some("42"), 42), (Some("255"), 255)] {
            let mut arguments = vec!["run"];
            arguments.extend(options);
            arguments.extend(chosen.iter().flat_map(|code| ["-E", *code]));
            arguments.extend(["k", "--", "sh", "-c", "echo ran"]);
            scratch.ends(&arguments, (code, "", ""));
        }
    }
    drop(holder);
}

#[test]
fn a_wait_with_a_limit_ends_with_the_grant() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let waiter = scratch.start(&["run", "-q", "-w", "25", "k", "echo", "granted"]);
    crate::show::until_queued(&scratch, 1);
    holder.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(waiter.line().as_deref(), Some("granted"));
    assert_eq!(waiter.end(), (0, String::new()));
}

#[test]
fn those_who_share_hold_together_and_exclude_others() {
    let scratch = Scratch::new();
    let reader = scratch.ready(&["-s"], "echo ready; exec sleep 600");
    assert_eq!(scratch.done(&["run", "-n", "-s", "k", "true"]).code, 0);
    assert_eq!(scratch.done(&["run", "-n", "-x", "k", "true"]).code, 1);
    assert_eq!(scratch.done(&["run", "-n", "k", "true"]).code, 1, "exclusive is the default");
    drop(reader);
    let writer = scratch.ready(&["-x"], "echo ready; exec sleep 600");
    assert_eq!(scratch.done(&["run", "-n", "-s", "k", "true"]).code, 1);
    assert_eq!(scratch.done(&["run", "-n", "-x", "another", "true"]).code, 0);
    drop(writer);
}

/// `/dev/full` stands for a full disk.
#[test]
#[cfg(target_os = "linux")]
fn an_output_that_cannot_be_written_gives_71() {
    let scratch = Scratch::new();
    for command in ["list --json", "status k", "watch", "bench --rounds 1", "man", "completions bash"] {
        let done =
            crate::harness::done(&mut scratch.command("sh", &["-c", &format!("leasehold {command} >/dev/full")]));
        assert_eq!(done.code, 71, "{command}: {done:?}");
        assert!(done.err.contains("cannot write to stdout") && done.err.contains("redirect it"), "{command}: {done:?}");
    }
}

/// tokio would panic at some of these limits.
#[test]
fn too_few_open_files_give_71() {
    let scratch = Scratch::new();
    for limit in 5..9 {
        let line = format!("ulimit -n {limit}; exec leasehold list");
        let done = crate::harness::done(&mut scratch.command("sh", &["-c", &line]));
        told(&done, 71, &["ulimit -n", "open files"]);
    }
}

/// Rust opens it as `/dev/null` before leasehold begins.
#[test]
fn an_output_that_is_closed_is_thrown_away() {
    let scratch = Scratch::new();
    for command in ["list", "status k", "watch"] {
        let done = crate::harness::done(&mut scratch.command("sh", &["-c", &format!("leasehold {command} >&-")]));
        assert_eq!((done.code, &*done.out), (0, ""), "{command}: {done:?}");
    }
}

#[test]
fn a_command_line_that_is_wrong_gives_64_and_names_the_word() {
    let scratch = Scratch::new();
    for (arguments, parts) in [
        (&["run", "-E", "256", "k", "true"][..], &["256", "whole number from 0 to 255"][..]),
        (&["run", "-E", "-1", "k", "true"], &["-1", "whole number from 0 to 255"]),
        (&["run", "-E", "1.5", "k", "true"], &["1.5", "whole number from 0 to 255"]),
        (&["run", "-w", "soon", "k", "true"], &["soon", "number"]),
        (&["run", "-w", "-1", "k", "true"], &["-1", "number"]),
        (&["run", "-w", "inf", "k", "true"], &["inf", "number"]),
        (&["run", "-s", "-x", "k", "true"], &["--shared", "--exclusive"]),
        (&["run", "-n", "-w", "1", "k", "true"], &["--nonblock", "--wait"]),
        (&["run", "--on-loss", "pray", "k", "true"], &["pray", "kill", "warn"]),
        (&["run", "-c", "k", "true"], &["-c", "write sh -c LINE after the key"]),
        (&["run", "k"], &["\"k\"", "command"]),
        (&["run", "k", "--"], &["\"k\"", "command"]),
        (&["run", "", "true"], &["key is empty"]),
        (&["run", "--lease", "0.5", "k", "true"], &["0.5 s", "1 to 86400 s"]),
        (&["run", "--lease", "1e9", "k", "true"], &["1000000000 s", "1 to 86400 s"]),
        (&["run", "--grace", "8", "k", "true"], &["8 s", "20 s", "7 s at most"]),
        (&["lend", "k"], &["lend"]),
        (&["--store", "memory:", "list"], &["--store", "options after the subcommand", "leasehold list --store URL"]),
        (&["-w", "5", "run", "k", "true"], &["-w", "options after the subcommand"]),
        (&["--timeout", "5", "run", "k", "true"], &["--timeout", "options after the subcommand"]),
        (&["--pray", "list"], &["--pray", "leasehold run [OPTIONS]"]),
        (&["run", "k", "-n", "--", "true"], &["\"-n\"", "\"k\"", "before the key"]),
        (&["run", "-n", "k", "--wait=3", "true"], &["--wait=…", "before the key"]),
        (&["steal", "k", "--on-loss", "warn"], &["--on-loss", "before the key"]),
        (&["run", "k", "-c", "true"], &["\"-c\"", "sh -c LINE"]),
        (&["elect", "k", "-q", "true"], &["\"-q\"", "before the key"]),
        (&["elect", "-n", "-w", "1", "k", "true"], &["--nonblock", "--wait"]),
    ] {
        let done = scratch.done(arguments);
        told(&done, 64, parts);
        assert_eq!(done.out, "");
        assert!(!done.err.contains("as a value"), "the word would become the key: {done:?}");
    }
    let done = scratch.done(&[]);
    assert!(done.code == 64 && done.err.contains("Usage: leasehold"), "{done:?}");
}

#[test]
fn a_command_whose_name_begins_with_a_dash_stands_behind_two_dashes() {
    let scratch = Scratch::new();
    told(&scratch.done(&["run", "k", "--", "-n"]), 127, &["\"-n\"", "not found"]);
}

/// The limit says how long to wait for others, and not how fast the store has to be.
#[test]
fn a_limit_that_is_shorter_than_an_answer_of_the_store_takes_a_free_key() {
    let scratch = Scratch::new();
    for _ in 0..3 {
        let done = scratch.opened(&["run", "-w", "0.000001", "k", "echo", "ran"]);
        assert_eq!((done.code, &*done.out, &*done.err), (0, "ran\n", ""));
    }
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let refused = || {
        let done = scratch.opened(&["run", "-w", "0.000001", "k", "echo", "ran"]);
        assert_eq!((done.code, &*done.out), (1, ""));
        done.err
    };
    // On a busy machine, the answer may take so long that leasehold says whom it waits for.
    is_right_once(std::iter::repeat_with(refused).take(5), |said| said.is_empty());
    drop(holder);
}

/// No such store can be, whatever the system does: the word is wrong.
#[test]
fn a_url_that_names_no_store_gives_64_and_names_the_remedy() {
    let scratch = Scratch::new();
    for (url, parts) in [
        ("carrier-pigeon:here", &["carrier-pigeon", "sqlite:"][..]),
        ("sqlite", &["\"sqlite\"", "sqlite:"]),
        ("/tmp/x.db", &["\"/tmp/x.db\"", "for an SQLite file write sqlite:/tmp/x.db"]),
        ("sqlite:", &["names no file after `sqlite:`"]),
        ("sqlite::memory:", &["name a file"]),
        ("sqlite:/", &["directory", "name a file"]),
        ("sqlite:leases.db?colour=red", &["colour", "prefix"]),
        ("sqlite:leases.db?prefix=1a", &["\"1a\"", "lower-case letters"]),
        ("memory:", &["memory:", "sqlite:"]),
        ("indexeddb:app", &["browsers", "sqlite:"]),
    ] {
        for arguments in
            [&["run", "--store", url, "k", "true"][..], &["list", "--store", url], &["watch", "--store", url]]
        {
            told(&scratch.done(arguments), 64, parts);
        }
        let mut command = scratch.leasehold(&["elect", "k", "true"]);
        told(&crate::harness::done(command.env("LEASEHOLD_STORE", url)), 64, parts);
    }
    told(&scratch.done(&["bench", "--store", "sqlite"]), 64, &["\"sqlite\""]);
    let unknown = scratch.done(&["list", "--store", "carrier-pigeon:here"]);
    assert!(!unknown.err.contains("indexeddb"), "that is for browsers: {}", unknown.err);
    for url in ["carrier-pigeon:here", "/tmp/x.db"] {
        let refused = scratch.done(&["run", "--store", url, "k", "true"]);
        assert!(!refused.err.contains("memory:"), "that would be refused: {}", refused.err);
    }
    let secret = scratch.done(&["list", "--store", "password=secret host=db"]);
    assert!(secret.code == 64 && !secret.err.contains("secret"), "{secret:?}");
}

/// Which URLs of servers this program can judge depends on its features.
#[test]
fn a_url_of_a_server_that_is_wrong_in_itself_gives_64() {
    let scratch = Scratch::new();
    for url in
        ["redis://", "redis://127.0.0.1:1/x", "redis://127.0.0.1:1/0?prefx=j", "redis://127.0.0.1:1/0?prefix=a{b}"]
    {
        let done = scratch.done(&["run", "--store", url, "k", "true"]);
        told(&done, 64, if cfg!(feature = "store-redis") { &[] } else { &["--features cli,store-redis"] });
    }
    for url in [
        "postgres://127.0.0.1:1/app?prefix=1a",
        "postgres://",
        "postgres:///app",
        "etcd://127.0.0.1:1?prefix=ends/",
        "etcd://",
    ] {
        told(&scratch.done(&["list", "--store", url]), 64, &[]);
    }
}

#[test]
fn tables_of_another_program_are_told_with_the_prefix_of_the_url() {
    let scratch = Scratch::new();
    let other = rusqlite::Connection::open(scratch.file()).unwrap();
    other.execute_batch("CREATE TABLE leasehold_store (tenant, rent)").unwrap();
    told(&scratch.done(&["run", "k", "true"]), 69, &["another program's", "?prefix="]);
    told(&scratch.done(&["list"]), 69, &["another program's", "?prefix="]);
    assert_eq!(scratch.done(&["run", "--store", &format!("{}?prefix=jobs", scratch.url()), "k", "true"]).code, 0);
}

#[test]
fn a_store_that_cannot_be_opened_gives_69_and_names_the_remedy() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("diary"), "dear diary\n".repeat(1_000)).unwrap();
    for (url, parts) in [
        ("sqlite:missing/leases.db", &["missing/leases.db", "directory must exist"][..]),
        ("sqlite:diary", &["diary", "not an SQLite database"]),
    ] {
        told(&scratch.done(&["run", "--store", url, "k", "true"]), 69, parts);
        told(&scratch.done(&["list", "--store", url]), 69, parts);
        told(&scratch.done(&["watch", "--store", url]), 69, parts);
    }
}

/// A job that begins anew each night, and never waits, must not be refused for ever because one of them was killed.
#[test]
fn a_dead_holder_is_in_the_way_of_nobody_who_only_tries() {
    let scratch = Scratch::new();
    for options in [&["-n"][..], &["-w", "0"], &["-n", "-s"]] {
        for swept in [false, true] {
            drop(scratch.ready(&["--lease", "3600", "--grace", "1"], "echo ready; exec sleep 600"));
            if swept {
                // As another process does it that ends.
                crate::show::beacons(&scratch).iter().for_each(|beacon| fs::remove_file(beacon).unwrap());
            }
            let mut arguments = vec!["run", "-q"];
            arguments.extend(options);
            arguments.extend(["k", "echo", "granted"]);
            let done = scratch.opened(&arguments);
            assert_eq!((done.code, &*done.out, &*done.err), (0, "granted\n", ""), "{options:?}, swept: {swept}");
        }
    }
}

/// It may be dead: that is proved before the key is refused.
#[test]
fn a_holder_whose_lease_ran_out_is_in_the_way_of_nobody_who_only_tries() {
    let scratch = Scratch::new();
    for (options, lease) in [(&["-n"][..], "4"), (&["-w", "0.1"], "1")] {
        let holder = scratch.ready(&["--lease", lease], "echo ready; exec sleep 600");
        scratch.stop(&holder);
        crate::until::wait_until("silence", || scratch.done(&["list", "--json"]).out.contains(r#""life":"silent""#));
        let mut arguments = vec!["run", "-q"];
        arguments.extend(options);
        arguments.extend(["k", "echo", "granted"]);
        let done = scratch.opened(&arguments);
        assert_eq!((done.code, &*done.out, &*done.err), (0, "granted\n", ""), "{options:?}");
    }
}

#[test]
fn a_holder_that_shows_that_it_is_alive_refuses_who_only_tries() {
    // On a busy machine, the holder may show too late that it is alive, and counts as dead; or the test may notice the refusal late.
    is_right_once([8, 8, 16].into_iter().map(refused_by_a_holder_that_goes_on), |(code, took, lease)| {
        *code == 1 && *took < *lease * 3 / 4
    });
}

/// Stops a holder whose lease has this many seconds until it is silent, and lets it go on once another process tries. Returns the exit code
/// of that process, how long after the holder went on it ended, and the length of the lease.
fn refused_by_a_holder_that_goes_on(lease: u64) -> (i32, Duration, Duration) {
    let scratch = Scratch::new();
    let holder = scratch.ready(&["--lease", &lease.to_string()], "echo ready; exec sleep 600");
    // Its beat stands still for longer than its lease. Nobody waits who could take the key.
    scratch.stop(&holder);
    crate::until::wait_until("silence", || scratch.done(&["list", "--json"]).out.contains(r#""life":"silent""#));
    let mut waits = scratch.start(&["run", "-q", "-n", "k", "true"]);
    crate::until::wait_until("the queue", || waits.has_ended() || crate::show::queued(&scratch) == 1);
    let is_early = waits.has_ended();
    holder.signal(nix::sys::signal::Signal::SIGCONT);
    let start = Instant::now();
    let (code, err) = waits.end();
    assert!(code < 2, "{code}: {err}");
    assert!(code == 0 || !is_early, "it was refused by a holder that was silent");
    (code, start.elapsed(), Duration::from_secs(lease))
}

/// It makes them again.
#[test]
fn a_holder_whose_files_were_deleted_refuses_who_only_tries() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&["--lease", "60"], "echo ready; exec sleep 600");
    fs::remove_dir_all(format!("{}-leasehold.d", scratch.file().display())).unwrap();
    let start = Instant::now();
    assert_eq!(scratch.done(&["run", "-q", "-n", "k", "true"]).code, 1);
    assert!(start.elapsed() < LIMIT, "it waited for {:?}", start.elapsed());
    drop(holder);
}

/// With a wrong clock, nobody can say by the clocks whether its lease has run out. Its heartbeats show that it is alive, and its beacon
/// shows its death.
#[test]
fn a_holder_whose_clock_is_wrong_refuses_who_only_tries_until_it_is_dead() {
    let Some(clock) = WallClock::new() else { return };
    let scratch = Scratch::new();
    for off in [-3_600, 3_600] {
        clock.jump(off);
        // On a busy machine, the heartbeats of a short lease may be late, or leasehold may give up too soon.
        let refuses = |lease| refuses_by_a_wrong_clock(&scratch, &clock, lease);
        is_right_once([8, 8, 24].into_iter().map(refuses), Result::is_ok);
    }
}

fn refuses_by_a_wrong_clock(scratch: &Scratch, clock: &WallClock, lease: u64) -> Result<(), String> {
    let script = "echo ready; exec sleep 600";
    let mut command = scratch.leasehold(&["run", "--lease", &lease.to_string(), "k", "sh", "-c", script]);
    let holder = Running::start(command.envs(clock.environment()));
    assert_eq!(holder.line().as_deref(), Some("ready"), "{}", holder.err());
    for options in [&["-n"][..], &["-w", "0.5"]] {
        let start = Instant::now();
        let done = scratch.done(&[&["run", "-q"][..], options, &["k", "true"]].concat());
        let took = start.elapsed();
        if done.code != 1 || took >= Duration::from_secs(lease) {
            return Err(format!("{options:?} with a lease of {lease} s, after {took:?}: {done:?}"));
        }
    }
    drop(holder);
    scratch.ends(&["run", "-q", "-n", "k", "echo", "granted"], (0, "granted\n", ""));
    Ok(())
}

/// A dead one beside a living one proves nothing about the key.
#[test]
fn a_living_holder_beside_a_dead_one_refuses_who_only_tries() {
    let scratch = Scratch::new();
    let ready = || scratch.ready(&["-s", "--lease", "60"], "echo ready; exec sleep 600");
    let (living, dead) = (ready(), ready());
    drop(dead);
    let start = Instant::now();
    assert_eq!(scratch.done(&["run", "-n", "k", "true"]).code, 1);
    assert!(start.elapsed() < LIMIT, "it would wait this long only if everybody in the way were dead");
    assert_eq!(scratch.done(&["run", "-n", "-s", "k", "true"]).code, 0);
    drop(living);
}

#[test]
fn a_dead_waiter_refuses_nobody_who_can_share_the_key() {
    let scratch = Scratch::new();
    let reader = scratch.ready(&["-s"], "echo ready; exec sleep 600");
    let writer = scratch.start(&["run", "-q", "k", "true"]);
    crate::show::until_queued(&scratch, 1);
    assert_eq!(scratch.done(&["run", "-n", "-s", "k", "true"]).code, 1, "who waits goes first");
    drop(writer);
    assert_eq!(scratch.done(&["run", "-n", "-s", "k", "true"]).code, 0);
    drop(reader);
}

#[test]
fn a_store_that_does_not_answer_gives_69() {
    let scratch = Scratch::new();
    assert_eq!(scratch.done(&["run", "k", "true"]).code, 0);
    let mut other = rusqlite::Connection::open(scratch.file()).unwrap();
    let busy = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    // leasehold hears from SQLite a tenth before its own time limit. On a busy machine it may hear too late, and is run again.
    let ask = || scratch.done(&["run", "--lease", "4", "k", "true"]);
    let heard = std::iter::repeat_with(ask).take(5).find(|done| !done.err.contains("did not answer within"));
    told(&heard.expect("leasehold hears from SQLite"), 69, &["write lock"]);
    drop(busy);
}

/// The store alone would be given up after 5 s, with another sentence.
#[test]
fn the_seconds_of_w_include_those_of_the_opening() {
    let scratch = Scratch::new();
    let mut other = rusqlite::Connection::open(scratch.file()).unwrap();
    let busy = other.transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive).unwrap();
    for (wait, limit) in [("1.5", "within 1.5 s"), ("0", "within 1 s")] {
        for order in ["run", "elect"] {
            told(&scratch.done(&[order, "-w", wait, "k", "true"]), 69, &["did not open", limit, "-w"]);
        }
    }
    drop(busy);
    for wait in ["0", "1e30"] {
        assert_eq!(scratch.opened(&["run", "-w", wait, "k", "true"]).code, 0);
    }
}

/// Another program locks the file while leasehold waits for the key.
#[test]
fn a_file_that_is_locked_prolongs_the_wait_by_little() {
    // On a busy machine, a wait takes longer even if nobody locks the file.
    let attempts = std::iter::repeat_with(|| [waits_for_a_file(false), waits_for_a_file(true)]);
    is_right_once(attempts.take(5), |[free, locked]| {
        let limit = free.clone().unwrap_or_default() + Duration::from_millis(1_500);
        locked.as_ref().is_ok_and(|took| *took >= Duration::from_secs(2) && *took < limit)
    });
}

/// How long a leasehold takes that may wait for 2 s. On a busy machine, it may give up before it is seen in the queue, or say other things.
fn waits_for_a_file(is_locked: bool) -> Result<Duration, String> {
    let scratch = Scratch::new();
    let holder = scratch.ready(&["--lease", "600"], "echo ready; exec sleep 600");
    let mut other = rusqlite::Connection::open(scratch.file()).unwrap();
    other.busy_timeout(LIMIT).unwrap();
    let begun = Instant::now();
    let mut waiter = scratch.start(&["run", "-q", "-w", "2", "k", "true"]);
    crate::until::wait_until("the queue", || waiter.has_ended() || crate::show::queued(&scratch) == 1);
    let busy = is_locked.then(|| other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap());
    let was_seen = !waiter.has_ended();
    let (code, err) = waiter.end();
    let took = begun.elapsed();
    drop(busy);
    drop(holder);
    assert_eq!(scratch.done(&["run", "-n", "k", "true"]).code, 0, "who gave up is in nobody's way");
    if was_seen && (code, &*err) == (1, "") { Ok(took) } else { Err(format!("seen: {was_seen}, code {code}: {err}")) }
}
