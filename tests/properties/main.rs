//! Random histories of operations against the rules of the record, and random text against its reader.
//!
//! `PROPTEST_CASES` and `BOLERO_RANDOM_ITERATIONS` make them longer.
#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]
#![allow(missing_docs, reason = "the names of the tests say it")]

mod answers;
mod extras;
mod fifo;
mod forged;
mod history;
mod reasons;
mod rules;
mod text;
mod world;
