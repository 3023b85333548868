//! What the web adapters do in a real browser, whatever the context.

mod executor;
mod indexed_db;
mod leases;
mod manners;
mod platform;
mod signals;
