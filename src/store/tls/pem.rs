//! Files in PEM.

use std::{format, fs, vec::Vec};

use super::NO_FILE;
use crate::machine::StoreError;

/// What a file must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Part {
    Certificate,
    Key,
}

/// Reads a file. It may be missing for a moment while somebody replaces it under a running program. `named` says who names it.
pub(in crate::store) fn pem(file: &str, part: Part, named: &str) -> Result<Vec<u8>, StoreError> {
    let failed = |what: &str| StoreError::transient(format!("{file:?}, {named}, {what}"));
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return Err(failed(NO_FILE));
    }
    let text = fs::read(file).map_err(|why| failed(&format!("cannot be read ({why})")))?;
    match lacks(&text, part) {
        Some(what) => Err(failed(what)),
        None => Ok(text),
    }
}

/// What makes a text useless, if that can be seen here. The libraries' errors would name neither the file nor what is wrong with it.
fn lacks(text: &[u8], part: Part) -> Option<&'static str> {
    let has = |words: &str| text.windows(words.len()).any(|part| part == words.as_bytes());
    if !has("-----BEGIN ") {
        return Some("is no PEM file");
    }
    match part {
        Part::Certificate if !has("-----BEGIN CERTIFICATE-----") => {
            Some("holds no certificate, which would begin with -----BEGIN CERTIFICATE-----")
        }
        Part::Key if has("-----BEGIN ENCRYPTED PRIVATE KEY-----") || has("Proc-Type: 4,ENCRYPTED") => Some(
            "holds an encrypted key, and this program cannot ask for its password; name a file with the decrypted key, as openssl pkey writes it",
        ),
        Part::Key if !has("PRIVATE KEY-----") => Some("holds no private key"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the program would wait for a writer of the pipe, and nothing would end it.
    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_not_read() {
        let name = std::env::temp_dir().join(format!("leasehold-pipe-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&name).status().unwrap().success());
        let read = pem(name.to_str().unwrap(), Part::Certificate, "which a test names");
        fs::remove_file(&name).unwrap();
        assert!(read.unwrap_err().message.contains("a pipe"));
    }

    #[test]
    fn a_useless_file_is_told_apart_from_a_usable_one() {
        let told = |text: &str, part| lacks(text.as_bytes(), part).unwrap_or_default();
        for (text, part, what) in [
            ("", Part::Certificate, "no PEM"),
            ("\x30\x59", Part::Key, "no PEM"),
            ("-----BEGIN PRIVATE KEY-----", Part::Certificate, "no certificate"),
            ("-----BEGIN TRUSTED CERTIFICATE-----", Part::Certificate, "no certificate"),
            ("-----BEGIN CERTIFICATE-----", Part::Key, "no private key"),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----", Part::Key, "openssl pkey"),
            ("-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED", Part::Key, "openssl pkey"),
        ] {
            assert!(told(text, part).contains(what), "{text}: {}", told(text, part));
        }
        for begins in ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"] {
            assert_eq!(told(&format!("-----BEGIN {begins}-----"), Part::Key), "");
        }
        assert_eq!(told("# a comment\n-----BEGIN CERTIFICATE-----", Part::Certificate), "");
    }
}
