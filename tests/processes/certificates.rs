//! Certificates that the tests sign themselves.

use std::{path::Path, process::Command};

use crate::skipped::skip;

/// Whether openssl is there, which signs them. In CI it must be.
pub(crate) fn can_be_signed() -> bool {
    let found = Command::new("openssl").arg("version").output().is_ok_and(|told| told.status.success());
    if !found {
        skip("openssl, which makes the certificates, is missing");
    }
    found
}

/// Writes a certificate and its key, `NAME.pem` and `NAME.key`, into the folder.
pub(crate) fn sign(folder: &Path, name: &str, options: &[&str]) {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    command.args(["-subj", &format!("/CN={name}"), "-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")]);
    let told = command.args(options).current_dir(folder).output().expect("it was found");
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
}

/// The options by which an authority signs a certificate with these names.
pub(crate) fn leaf<'a>(pem: &'a str, key: &'a str, names: &'a str) -> [&'a str; 8] {
    ["-CA", pem, "-CAkey", key, "-addext", "basicConstraints=critical,CA:FALSE", "-addext", names]
}
