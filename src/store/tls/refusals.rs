//! What rustls says of a server's certificate.

/// Whether the server shows the certificate of an authority as its own, judged by rustls' error.
pub(in crate::store) fn is_of_an_authority(said: &str) -> bool {
    said.contains("CaUsedAsEndEntity")
}

/// What to do then.
pub(in crate::store) const SIGN_ANOTHER: &str =
    "let the authority sign one for the server, or make a self-signed one with basicConstraints=CA:FALSE";
