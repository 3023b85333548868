//! What the URL of a database says: where it is, and how connections are encrypted.

use core::time::Duration;
use std::{format, vec::Vec};

use tokio_postgres::{
    Config,
    config::{Host, SslMode, SslNegotiation},
};

use super::{super::super::options::invalid, failed, tls};
use crate::{
    machine::StoreError,
    store::{tls::Certificates, url::prefix_remedy},
};

/// The parameters that name files with certificates, by the names that libpq has for them.
pub(super) const FILES: [&str; 3] = ["sslrootcert", "sslcert", "sslkey"];

const NO_TLS: &str = "the URL asks for an encrypted connection (sslmode), and the store has no TLS connector; enable leasehold's feature \
    store-postgres-tls, or give PostgresStoreBuilder::tls a connector, or PostgresStore::from_pool a pool that encrypts, or write \
    sslmode=disable where the network is trusted";
const UNUSED: &str =
    "sslrootcert, sslcert and sslkey in the URL are of no use without encryption; write sslmode=require beside them";
const VERIFIES: &str = "the URL asks for sslmode=verify-ca or verify-full, which tokio-postgres does not support; write \
    sslmode=require, and give PostgresStoreBuilder::tls a connector that verifies, or none";
const NAMED_TWICE: &str = "the URL names certificates, and PostgresStoreBuilder::tls gives a connector that has its own; leave out \
    sslrootcert, sslcert and sslkey, or the connector";
const UNCLEAR: &str = "it is unclear where the host begins in the URL of the database; percent-encode each @ as %40 and \
    each ? as %3F in the user, the password and the parameters";
const DIRECT: &str =
    "sslnegotiation=direct in the URL needs an encrypted connection; write sslmode=require in the URL, too";
const NO_HOST: &str = "the URL of the database is incomplete: it names no host; write it like \
    postgres://user:password@host/database, or with ?host= and the directory of the server's socket";
/// How the client begins to name an option that it does not know.
const OPTION: &str = "unknown option `";
const MODE_TWICE: &str = "the URL has the parameter sslmode twice; leave one out";

/// Where a database is.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) config: Config,
    /// How the store encrypts connections by itself. `None` if the application gave a connector, or if nothing is encrypted.
    pub(super) encryption: Option<Certificates>,
}

impl Address {
    /// The password is never part of a message.
    pub(super) fn read(url: &str, has_connector: bool) -> Result<Self, StoreError> {
        let (head, separator, mut parameters) = split(url)?;
        if parameters.iter().filter(|parameter| parameter.starts_with("sslmode=")).count() > 1 {
            return Err(invalid(MODE_TWICE));
        }
        let files = Certificates::taken(FILES, &mut parameters)?;
        let verifies = parameters.iter().any(|parameter| parameter.starts_with("sslmode=verify"));
        if verifies && (has_connector || !tls::ENCRYPTS) {
            return Err(invalid(if has_connector { VERIFIES } else { NO_TLS }));
        }
        if has_connector && files != Certificates::default() {
            return Err(invalid(NAMED_TWICE));
        }
        for parameter in &mut parameters {
            // The store verifies whenever it encrypts.
            if ["sslmode=verify-ca", "sslmode=verify-full"].contains(parameter) {
                *parameter = "sslmode=require";
            }
        }
        let config = parsed(&format!("{head}{}", parameters.join(separator)))?;
        let is_nowhere = |host: &Host| matches!(host, Host::Tcp(name) if name.is_empty());
        if config.get_hosts().iter().all(is_nowhere) && config.get_hostaddrs().is_empty() {
            return Err(invalid(NO_HOST));
        }
        let encrypts = config.get_ssl_mode() == SslMode::Require;
        if !encrypts && config.get_ssl_negotiation() == SslNegotiation::Direct {
            return Err(invalid(DIRECT));
        }
        if encrypts && !has_connector && !tls::ENCRYPTS {
            return Err(invalid(NO_TLS));
        }
        if !encrypts && files != Certificates::default() {
            return Err(invalid(UNUSED));
        }
        Ok(Self { config, encryption: (encrypts && !has_connector).then_some(files) })
    }
}

/// Splits a URL as the client does, into the part before the parameters, the separator of the parameters, and the parameters. The client
/// takes everything before the first `@` for the user and the password, even if that `@` is in a parameter.
fn split(url: &str) -> Result<(&str, &'static str, Vec<&str>), StoreError> {
    let Some((_, rest)) = url.split_once("://") else {
        // A list of options. A value in quotes may have spaces, so a list with quotes is left to the client as a whole, and cannot name
        // certificates.
        let is_plain = !url.contains(['\'', '\\']);
        return Ok(("", " ", if is_plain { url.split_whitespace().collect() } else { Vec::from([url]) }));
    };
    let (login, place) = rest.split_once('@').unwrap_or(("", rest));
    let (host, query) = place.split_once('?').unwrap_or((place, ""));
    // Otherwise a parameter might be taken for a part of the password, and what it asks for would be ignored.
    if login.split_once('?').is_some_and(|(_, after)| after.contains('=')) || host.contains('@') {
        return Err(invalid(UNCLEAR));
    }
    Ok((&url[..url.len() - query.len()], "&", if query.is_empty() { Vec::new() } else { query.split('&').collect() }))
}

fn parsed(url: &str) -> Result<Config, StoreError> {
    let mut config: Config = url.parse().map_err(|error| {
        let said = without_secrets(failed(&error).said);
        let remedy = if url.contains("prefix=") {
            prefix_remedy("PostgresStoreBuilder::prefix")
        } else if ["`signal", "`beacon"].iter().any(|option| said.contains(option)) {
            "for no signals write ?signals=off, and for beacons ?signals=beacons, in a URL for store::from_url or the command line, or call \
             PostgresStoreBuilder::without_signals or with_beacons"
                .into()
        } else if said.contains("sslmode") {
            "write sslmode=require for an encrypted connection, or sslmode=disable for an unencrypted one".into()
        } else if said.contains("target_session_attrs") {
            "write target_session_attrs=read-write to pass over read replicas".into()
        } else if url.rsplit_once('?').is_some_and(|(_, query)| query.contains('@')) {
            "percent-encode each @ as %40 and each ? as %3F in the user, the password and the parameters".into()
        } else {
            "write it like postgres://user@host/database".into()
        };
        invalid(format!("the URL of the database cannot be read: {said}; {remedy}"))
    })?;
    if config.get_application_name().is_none() {
        config.application_name("leasehold");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    Ok(config)
}

/// The client's complaint about a URL, without the option that it quotes unless that is a plain name. Anything else may be a part of the
/// password, if `//` is missing before the user, or if a character in the password is not percent-encoded.
fn without_secrets(said: String) -> String {
    let Some((before, (option, after))) =
        said.split_once(OPTION).and_then(|(before, rest)| Some((before, rest.rsplit_once('`')?)))
    else {
        return said;
    };
    if option.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_') {
        return said;
    }
    format!("{before}{OPTION}…`{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encryption_is_asked_for_by_the_url_alone() {
        for url in
            ["postgres://u@h/d", "postgres://u:se?cret@h/d", "postgres://u@h/d?sslmode=prefer", "host=h dbname=d"]
        {
            assert_eq!(Address::read(url, false).unwrap().encryption, None, "{url}");
        }
        for url in
            ["postgres://u@h/d?sslmode=require&sslrootcert=/a%20b.pem", "host=h sslmode=verify-full sslrootcert=c.pem"]
        {
            let read = Address::read(url, false);
            if !tls::ENCRYPTS {
                assert!(read.unwrap_err().message.contains("store-postgres-tls"), "{url}");
                continue;
            }
            let address = read.unwrap();
            assert!(address.encryption.unwrap().ca.is_some(), "{url}");
            assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
        }
        assert_eq!(Address::read("postgres://u@h/d?sslmode=require", true).unwrap().encryption, None);
    }

    #[test]
    fn a_host_may_be_an_address_or_the_directory_of_a_socket() {
        for url in [
            "postgres:///d?host=/run/postgresql",
            "postgres://%2Frun%2Fpostgresql/d",
            "postgres:///d?hostaddr=127.0.0.1",
        ] {
            assert!(Address::read(url, false).is_ok(), "{url}");
        }
    }

    /// The URL may be one for `from_url`, which reads them itself.
    #[test]
    fn what_is_only_for_the_urls_of_all_stores_is_refused_with_the_name_of_the_method() {
        for (parameter, remedy) in [
            ("prefix=jobs", "Builder::prefix"),
            ("signals=off", "without_signals"),
            ("signal=off", "?signals="),
            ("beacons=on", "with_beacons"),
        ] {
            let error = Address::read(&format!("postgres://u@h/d?{parameter}"), false).unwrap_err().message;
            assert!(error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn what_may_be_a_part_of_a_password_is_not_told() {
        for url in [
            "postgres:/u:Hunter2=@h/d",
            "postgres:u:Hunter2==@h/d",
            "postgres://h/d?password=x&Hunter2=y",
            "postgres://u:?Hunter2=",
            "user=u host=h pass`Hunter2`=x",
        ] {
            let error = Address::read(url, false).unwrap_err().message;
            assert!(error.contains("unknown option `…`") && !error.contains("Hunter2"), "{url}: {error}");
        }
        let error = Address::read("postgres://u@h/d?pasword=x", false).unwrap_err().message;
        assert!(error.contains("unknown option `pasword`"), "{error}");
    }

    /// The client takes everything before the first `@` for the user and the password.
    #[test]
    fn no_at_sign_hides_what_the_url_asks_for() {
        for url in [
            "postgres://h/d?sslmode=require&user=me@h",
            "postgres://h:5432/d?user=me@h&sslmode=require",
            "postgres://u:se?sslmode=require@h/d",
            "postgres://u:hunter2@ter2@h/d",
            "postgres://u:hunter2@te/r2@h/d?sslmode=require",
            "postgres://u:hunter2@te/r2?@h/d",
        ] {
            let error = Address::read(url, true).unwrap_err().message;
            assert!(error.contains("%40") && !error.contains("hunter2"), "{url}: {error}");
        }
        if tls::ENCRYPTS {
            let url = "postgres://u@h/d?sslmode=verify-full&sslrootcert=c.pem&application_name=a@b?";
            let address = Address::read(url, false).unwrap();
            assert!(address.encryption.unwrap().ca.is_some());
            assert_eq!(address.config.get_application_name(), Some("a@b?"));
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_its_remedy() {
        for (url, has_connector, remedy) in [
            ("postgres://u:hunter2@h/d?sslrootcert=c.pem", false, "sslmode=require beside them"),
            ("postgres://u:hunter2@h/d?sslmode=disable&sslrootcert=c.pem", false, "sslmode=require beside them"),
            ("postgres://u:hunter2@h/d?sslmode=require&sslrootcert=c.pem", true, "or the connector"),
            ("postgres://u:hunter2@h/d?sslmode=verify-full", true, "a connector that verifies"),
            ("postgres://u:hunter2@h/d?sslcert=c.pem", false, "sslcert= and sslkey="),
            ("postgres://u:hunter2@h/d?sslmode=always", false, "cannot be read"),
            ("postgres://u:hunter2@h/d?sslmode=allow", false, "write sslmode=require"),
            ("postgres://u:hunter2@h/d?sslmode=require&sslmode=disable", false, "twice"),
            ("postgres://u:hunter2@h/d?sslnegotiation=direct", false, "write sslmode=require"),
            ("host=h sslnegotiation=direct sslmode=prefer", false, "write sslmode=require"),
            ("postgres://", false, "names no host"),
            ("postgres:///d?user=u", false, "names no host"),
            ("postgres://u:hunter2@:5432/d", false, "names no host"),
            ("postgresql:///d?user=u&password=hunter2&host=", false, "names no host"),
        ] {
            let error = Address::read(url, has_connector).unwrap_err().message;
            assert!(error.contains(remedy) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
