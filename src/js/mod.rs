//! The wasm side of the npm package: thin classes that only the hand-written face, `index.mjs`, calls.
//!
//! Only plain values cross the border: strings, numbers of milliseconds, promises. Each method clones what it needs and returns a promise,
//! so that no object is borrowed while one waits, and calls on one object may overlap. A promise rejects with a string: the code of a
//! `LeaseError` and its message.

mod failure;
mod lease;
mod locks;
mod manager;
mod memory;
mod options;
mod several;
mod status;

pub use lease::JsLease;
pub use manager::JsLeaseManager;
