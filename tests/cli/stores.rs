//! Which store it is, if nobody says.

use std::{fs, os::unix::fs::PermissionsExt};

use rusqlite::{Connection, TransactionBehavior};

use crate::harness::{Scratch, done};

#[test]
fn the_own_store_is_in_the_state_folder_for_this_user_alone() {
    let scratch = Scratch::new();
    let home = scratch.0.join("home");
    fs::create_dir(&home).unwrap();
    let state = scratch.0.join("state");
    for (variable, folder) in [(Some(&*state), state.clone()), (None, home.join(".local/state"))] {
        let mut command = scratch.leasehold(&["run", "k", "sh", "-c", "echo $LEASEHOLD_STORE"]);
        command.env_remove("LEASEHOLD_STORE").env_remove("XDG_STATE_HOME").env("HOME", &home);
        command.envs(variable.map(|folder| ("XDG_STATE_HOME", folder)));
        let done = done(&mut command);
        assert_eq!(done.out, format!("sqlite:{}\n", folder.join("leasehold/leases.db").display()), "{done:?}");
        let mode = fs::metadata(folder.join("leasehold")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}

#[test]
fn without_a_home_a_store_has_to_be_named() {
    let scratch = Scratch::new();
    let mut command = scratch.leasehold(&["list"]);
    command.env_remove("LEASEHOLD_STORE").env("XDG_STATE_HOME", "relative/paths/are/ignored").env_remove("HOME");
    let done = done(&mut command);
    assert!(done.code == 69 && done.err.contains("--store"), "{done:?}");
}

/// A URL cannot name a file in it, and the user has given no URL.
#[test]
fn a_state_folder_with_a_question_mark_is_refused_with_a_remedy() {
    let scratch = Scratch::new();
    let home = scratch.0.join("why?prefix=x");
    fs::create_dir(&home).unwrap();
    for variable in ["HOME", "XDG_STATE_HOME"] {
        for order in [&["run", "k", "true"][..], &["list"], &["watch"], &["bench"]] {
            let mut command = scratch.leasehold(order);
            command.env_remove("LEASEHOLD_STORE").env_remove("XDG_STATE_HOME").env(variable, &home);
            let refused = done(&mut command);
            let parts = ["why?prefix=x", "question mark", "--store"];
            assert!(refused.code == 69 && parts.iter().all(|part| refused.err.contains(part)), "{refused:?}");
        }
    }
    assert_eq!(fs::read_dir(&home).unwrap().count() + fs::read_dir(&scratch.0).unwrap().count(), 1, "nothing is made");
}

/// A shell does so only at the beginning of a word.
#[test]
fn a_tilde_that_no_shell_replaced_is_told() {
    let scratch = Scratch::new();
    for order in [&["run", "k", "true"][..], &["list"]] {
        let mut command = scratch.leasehold(order);
        let refused = done(command.env("LEASEHOLD_STORE", "sqlite:~/leases.db"));
        assert!(refused.code == 69 && refused.err.contains("write $HOME instead"), "{refused:?}");
    }
}

/// Every command that takes a lease or looks at one refuses these URLs, and makes no file.
fn refused_without_a_file(urls: [&str; 2], remedy: &str) {
    let scratch = Scratch::new();
    for order in [&["run", "-w", "1", "k", "true"][..], &["list"], &["steal", "k"]] {
        for url in urls {
            let mut command = scratch.leasehold(order);
            let refused = done(command.env("LEASEHOLD_STORE", url));
            assert!(refused.code == 64 && refused.err.contains(remedy), "{refused:?}");
            assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
        }
    }
}

/// A script may fill it from a variable that is not set on this machine. The user's own file would not exclude other machines.
#[test]
fn an_empty_variable_is_refused() {
    let scratch = Scratch::new();
    for arguments in [&["run", "k", "true"][..], &["list"], &["status", "k"]] {
        let refused = done(scratch.leasehold(arguments).env("LEASEHOLD_STORE", ""));
        assert_eq!(refused.code, 64, "{refused:?}");
        assert!(refused.err.contains("LEASEHOLD_STORE is empty; set it"), "{refused:?}");
    }
    assert_eq!(
        done(scratch.leasehold(&["run", "--store", &scratch.url(), "k", "true"]).env("LEASEHOLD_STORE", "")).code,
        0
    );
}

/// SQLite would make a file of this name.
#[test]
fn a_path_that_names_a_folder_gives_64_and_makes_no_file() {
    refused_without_a_file(["sqlite:folder/", "sqlite:folder/."], "name a file in it");
}

/// The library refuses such a URL. If the command line took it, no program could share leases with it.
#[test]
fn a_url_within_a_url_gives_64_and_makes_no_file() {
    refused_without_a_file(["sqlite:sqlite:leases.db", "sqlite:file:leases.db"], "write the path alone");
}

/// Otherwise root would make the folder that is named for users who have none.
#[test]
fn a_home_that_is_not_there_is_not_made() {
    let scratch = Scratch::new();
    let home = scratch.0.join("nowhere");
    let mut command = scratch.leasehold(&["run", "k", "true"]);
    command.env_remove("LEASEHOLD_STORE").env_remove("XDG_STATE_HOME").env("HOME", &home);
    let refused = done(&mut command);
    assert!(refused.code == 69 && !home.exists(), "{refused:?}");
    assert!(
        ["HOME names no folder that this user can reach", "--store", "XDG_STATE_HOME"]
            .iter()
            .all(|part| refused.err.contains(part)),
        "{refused:?}"
    );
    let state = scratch.0.join("state");
    let named = done(command.env("XDG_STATE_HOME", &state));
    assert!(named.code == 0 && state.exists() && !home.exists(), "{named:?}");
}

#[test]
fn a_store_that_is_named_goes_before_the_environment() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    assert_eq!(scratch.done(&["run", "-n", "k", "true"]).code, 1);
    let elsewhere =
        scratch.done(&["run", "--store", "sqlite:other.db", "-n", "k", "sh", "-c", "echo $LEASEHOLD_STORE"]);
    assert_eq!(elsewhere.out, format!("sqlite:{}\n", scratch.0.join("other.db").display()), "{elsewhere:?}");
    drop(holder);
}

/// Else the command would use another file than its lease is in.
#[test]
fn a_command_that_changes_its_folder_finds_the_same_store() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.0.join("below")).unwrap();
    for url in ["sqlite:other.db", "sqlite:./other.db?prefix=jobs", "sqlite://other.db"] {
        let script = "cd below; leasehold run -n k true; echo $?; ls";
        let done = scratch.done(&["run", "--store", url, "k", "sh", "-c", script]);
        assert_eq!((&*done.out, &*done.err), ("1\n", ""), "{url}");
    }
}

/// What follows a question mark is no part of the path in a URL: such a folder can only be named by a relative path.
#[test]
fn a_folder_with_a_question_mark_can_be_worked_in() {
    let scratch = Scratch::new();
    let folder = scratch.0.join("why?");
    fs::create_dir(&folder).unwrap();
    let mut command =
        scratch.leasehold(&["run", "--store", "sqlite:other.db", "k", "leasehold", "run", "-n", "k", "true"]);
    assert_eq!(done(command.current_dir(&folder)).code, 1);
    assert!(folder.join("other.db").exists());
}

#[test]
fn who_only_looks_makes_no_store() {
    let scratch = Scratch::new();
    for arguments in [&["list"][..], &["list", "--json"], &["status", "k"], &["status", "--json", "k"]] {
        let done = scratch.done(arguments);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.err.contains("leases.db: there is no such file yet") && done.err.lines().count() == 1, "{done:?}");
    }
    assert_eq!(scratch.done(&["list", "--json"]).out, "[]\n");
    let watch = scratch.done(&["watch"]);
    assert_eq!(watch.out.lines().count(), 1, "the head alone");
    assert!(watch.err.contains("leases.db: there is no such file yet"), "{watch:?}");
    assert_eq!(scratch.done(&["status", ""]).code, 64);
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
    let mut command = scratch.leasehold(&["list"]);
    let own = done(command.env_remove("LEASEHOLD_STORE").env("XDG_STATE_HOME", scratch.0.join("state")));
    assert_eq!(own.code, 0, "{own:?}");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0, "nor a folder");
}

/// The names and bytes of all files in the folder.
fn contents(scratch: &Scratch) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap());
    let mut contents: Vec<_> = files
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap_or_default()))
        .collect();
    contents.sort();
    contents
}

#[test]
fn who_only_looks_changes_nothing_in_the_database_of_another_program() {
    for (journal, is_open) in [("DELETE", false), ("DELETE", true), ("WAL", false), ("WAL", true)] {
        let scratch = Scratch::new();
        let mut other = Connection::open(scratch.file()).unwrap();
        let set: String = other.query_row(&format!("PRAGMA journal_mode = {journal}"), [], |row| row.get(0)).unwrap();
        assert_eq!(set.to_uppercase(), journal);
        other.execute_batch("CREATE TABLE diary (line); INSERT INTO diary VALUES ('dear diary')").unwrap();
        // Somebody who writes keeps nobody from looking.
        let writes = is_open.then(|| other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap());
        if !is_open {
            drop(Connection::open(scratch.file()).unwrap());
        }
        let before = contents(&scratch);
        for arguments in [&["list"][..], &["list", "--json"], &["status", "k"], &["watch"]] {
            let done = scratch.done(arguments);
            assert_eq!(done.code, 0, "{journal}, {is_open}: {done:?}");
            assert!(
                done.err.contains("leases.db: nobody has used the tables leasehold_*") && done.err.lines().count() == 1,
                "{journal}, {is_open}: {done:?}"
            );
            let after = contents(&scratch);
            // The index of a log that is in use notes its readers.
            let stays = |(name, _): &&(String, Vec<u8>)| !name.ends_with("-shm");
            assert!(before.iter().filter(stays).eq(after.iter().filter(stays)), "{journal}, {is_open}, {arguments:?}");
            assert_eq!(before.len(), after.len());
        }
        drop(writes);
    }
}

#[test]
fn who_only_looks_does_not_wait_for_who_writes() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let mut other = Connection::open(scratch.file()).unwrap();
    other.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    let writes = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let list = scratch.done(&["list"]);
    assert!(list.code == 0 && list.out.contains(&format!("pid {}", holder.pid())), "{list:?}");
    drop(writes);
}
