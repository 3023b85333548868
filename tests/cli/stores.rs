//! Which store it is, if nobody says.

use std::{fs, os::unix::fs::PermissionsExt};

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
    assert_eq!(scratch.done(&["watch"]).out.lines().count(), 1, "the head alone");
    assert_eq!(scratch.done(&["status", ""]).code, 64);
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
    let mut command = scratch.leasehold(&["list"]);
    let own = done(command.env_remove("LEASEHOLD_STORE").env("XDG_STATE_HOME", scratch.0.join("state")));
    assert_eq!(own.code, 0, "{own:?}");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0, "nor a folder");
}
