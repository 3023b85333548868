//! Scenarios in simulated time, by the names of the systems that they come from.
#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]
#![allow(missing_docs, reason = "the names of the tests say it")]

mod alarm;
mod beyond;
mod changes;
mod clients;
mod close;
mod contract;
mod crossings;
mod curious;
mod cv_lease;
mod events;
mod fairness;
mod faults;
mod fence;
mod forms;
mod gitea;
mod histories;
mod hold;
mod identity;
mod input;
mod life;
mod linger;
mod locks;
mod loss;
mod luci;
mod matrix;
mod modes;
mod moments;
mod narrow;
mod panics;
mod parts;
mod processes;
mod rare;
mod redsync;
mod said;
mod several;
mod short_lived;
mod signals;
mod slow;
mod support;
mod suspension;
mod synapse;
mod takeover;
mod waymaker;
mod worker_lock;
