//! Scenarios in simulated time, by the names of the systems that they come from.
#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]
#![allow(missing_docs, reason = "the names of the tests say it")]

mod alarm;
mod beyond;
mod changes;
mod chaos;
mod clients;
mod close;
mod contract;
mod crossings;
mod cv_lease;
mod doubles;
mod events;
mod fairness;
mod faults;
mod fence;
mod forms;
mod ghost;
mod gitea;
mod histories;
mod hold;
mod identity;
mod input;
mod life;
mod line;
mod linger;
mod locks;
mod loss;
mod luci;
mod matrix;
mod modes;
mod moments;
mod oracle;
mod parts;
mod redsync;
mod several;
mod slow;
mod suspension;
mod synapse;
mod takeover;
mod vault;
mod waymaker;
mod worker;
mod worker_lock;
mod world;
