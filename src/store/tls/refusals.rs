//! What rustls says of a server's certificate.

/// Whether the server shows the certificate of an authority as its own, judged by rustls' error.
pub(in crate::store) fn is_of_an_authority(said: &str) -> bool {
    said.contains("CaUsedAsEndEntity")
}

/// Whether this error of rustls says that the server refuses the certificate of this program.
pub(in crate::store) fn is_of_own(said: &str) -> bool {
    let alerts = [
        "UnknownCA",
        "BadCertificate",
        "CertificateExpired",
        "CertificateRevoked",
        "CertificateUnknown",
        "UnsupportedCertificate",
    ];
    said.split_once("fatal alert: ").is_some_and(|(_, alert)| alerts.iter().any(|known| alert.starts_with(known)))
}

/// What to do about the certificate of an authority.
pub(in crate::store) const SIGN_ANOTHER: &str =
    "let the authority sign one for the server, or make a self-signed one with basicConstraints=CA:FALSE";
