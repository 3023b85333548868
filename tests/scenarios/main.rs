//! Scenarios in simulated time, by the names of the systems that they come from.
#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]
#![allow(missing_docs, reason = "the names of the tests say it")]

mod chaos;
mod close;
mod contract;
mod crossings;
mod doubles;
mod fairness;
mod faults;
mod histories;
mod input;
mod locks;
mod loss;
mod moments;
mod oracle;
mod slow;
mod takeover;
mod world;
