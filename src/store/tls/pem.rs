//! Files in PEM.

use std::{format, string::String, vec::Vec};

use crate::machine::StoreError;

/// Reads a file. It may be missing for a moment while somebody replaces it under a running program. `named` says who names it.
pub(in crate::store) fn pem(file: &str, named: &str) -> Result<Vec<u8>, StoreError> {
    let failed = |what: String| StoreError::transient(format!("{file:?}, {named}, {what}"));
    let text = std::fs::read(file).map_err(|why| failed(format!("cannot be read ({why})")))?;
    // The library's error would name neither the file nor what is wrong with it.
    let begins = b"-----BEGIN ";
    let is_pem = text.windows(begins.len()).any(|part| part == begins);
    if is_pem { Ok(text) } else { Err(failed("is no PEM file".into())) }
}
