//! Scenarios in simulated time, by the names of the systems that they come from.
#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]
#![allow(missing_docs, reason = "the names of the tests say it")]

mod chaos;
mod clients;
mod close;
mod contract;
mod crossings;
mod cv_lease;
mod doubles;
mod fairness;
mod faults;
mod histories;
mod input;
mod locks;
mod loss;
mod luci;
mod matrix;
mod moments;
mod oracle;
mod slow;
mod synapse;
mod takeover;
mod worker_lock;
mod world;
