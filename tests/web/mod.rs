//! What the web adapters do in a real browser, whatever the context.

mod attached;
mod desk;
mod executor;
mod fence;
mod foresight;
mod guide;
mod indexed_db;
mod leases;
mod manners;
mod platform;
mod sessions;
mod signals;

/// The class of `globalThis`.
pub(crate) fn context() -> String {
    let shown = String::from(js_sys::global().to_string());
    shown.trim_matches(['[', ']']).replace("object ", "")
}
