//! What is wrong with the command line is noticed before the store is touched.

use std::fs;

use crate::harness::Scratch;

#[test]
fn a_lease_a_key_or_an_info_that_is_invalid_gives_64_and_leaves_the_store_alone() {
    let scratch = Scratch::new();
    let (key, info) = ("k".repeat(1_025), "i".repeat(5_000));
    for arguments in [
        &["run", "--lease", "0.5", "k", "true"][..],
        &["run", "--lease", "100000", "k", "true"],
        &["run", "", "true"],
        &["run", &key, "true"],
        &["run", "--info", &info, "k", "true"],
        &["elect", "--lease", "0.5", "k", "true"],
        &["elect", "", "true"],
        &["steal", "--lease", "0.5", "k"],
        &["steal", ""],
        &["status", ""],
    ] {
        let done = scratch.done(arguments);
        assert_eq!(done.code, 64, "{done:?}");
        assert_eq!(done.err.lines().count(), 1, "{done:?}");
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0, "{done:?}");
    }
}

/// It is wrong whether or not a server answers.
#[test]
#[cfg(feature = "store-redis")]
fn an_invalid_key_gives_64_though_no_server_answers() {
    let scratch = Scratch::new();
    for arguments in [&["run", "", "true"][..], &["run", "--lease", "0.5", "k", "true"], &["status", ""]] {
        let mut command = scratch.leasehold(arguments);
        let done = crate::harness::done(command.env("LEASEHOLD_STORE", "redis://127.0.0.1:1"));
        assert_eq!(done.code, 64, "{done:?}");
    }
}
