//! Random histories of sessions and operations against the rules, and random text against its reader.
//!
//! `PROPTEST_CASES` and `BOLERO_RANDOM_ITERATIONS` make them longer.
#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]
#![allow(missing_docs, reason = "the names of the tests say it")]

mod answers;
mod extras;
mod fifo;
mod forged;
mod ghost;
mod history;
mod partial;
mod reasons;
mod rules;
mod sessions;
mod shop;
mod text;
mod world;
