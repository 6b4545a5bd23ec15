//! Addresses of PostgreSQL databases.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use postgres::config::{Host, SslMode};
use postgres::error::SqlState;
use postgres::{Client, Config, NoTls};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;
use underload_fleet::store::StoreError;

#[derive(Clone)]
pub(super) struct Address {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    root_file: Option<String>,
}

impl Address {
    /// Parses an address. Errors do not contain its password.
    pub(super) fn new(url: &str) -> Result<Self, StoreError> {
        let broken =
            |what: String| StoreError::broken(format!("the address of the database: {what}"));
        let (url, root_file) = without(url, "sslrootcert");
        let (url, mode) = without(&url, "sslmode");
        let mut config: Config = url
            .parse()
            .map_err(|error| StoreError::broken("the address of the database").because(error))?;
        let is_secure = match mode.as_deref() {
            None | Some("disable") => false,
            Some("require" | "verify-full") => true,
            Some(other) => {
                let known = "disable, require or verify-full";
                return Err(broken(format!("sslmode {other:?}; expected {known}")));
            }
        };
        config.application_name("underload orchestrator");
        config.connect_timeout(PATIENCE).tcp_user_timeout(PATIENCE);
        config.ssl_mode(if is_secure { SslMode::Require } else { SslMode::Disable });
        if config.get_dbname().is_none() {
            return Err(broken("no database; expected postgres://HOST/DATABASE".to_owned()));
        }
        let tls = is_secure.then(|| tls(root_file.as_deref())).transpose().map_err(broken)?;
        Ok(Self { config, tls, root_file })
    }

    /// Runs `pg_dump`, which gets the address and password in its environment: other users of the
    /// machine can read command lines.
    pub(super) fn dump(&self, path: &Path) -> Result<(), StoreError> {
        let config = &self.config;
        let mut dump = Command::new("pg_dump");
        dump.args(["--format=custom", "--no-owner", "--file"]).arg(path);
        dump.envs(config.get_dbname().map(|name| ("PGDATABASE", name)));
        dump.envs(config.get_user().map(|name| ("PGUSER", name)));
        dump.envs(config.get_ports().first().map(|port| ("PGPORT", port.to_string())));
        let password = config.get_password().map(String::from_utf8_lossy);
        dump.envs(password.iter().map(|password| ("PGPASSWORD", &**password)));
        match config.get_hosts().first() {
            Some(Host::Tcp(host)) => dump.env("PGHOST", host),
            Some(Host::Unix(folder)) => dump.env("PGHOST", folder),
            None => &mut dump,
        };
        if self.tls.is_some() {
            dump.env("PGSSLMODE", "verify-full");
            dump.env("PGSSLROOTCERT", self.root_file.as_deref().unwrap_or("system"));
        }
        let done =
            dump.output().map_err(|error| StoreError::broken("running pg_dump").because(error))?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        Err(StoreError::temporary("pg_dump").because(said))
    }

    pub(super) fn connect(&self) -> Result<Client, StoreError> {
        let client = match &self.tls {
            Some(tls) => self.config.connect(tls.clone()),
            None => self.config.connect(NoTls),
        };
        client.map_err(failed)
    }
}

/// Converts an error of PostgreSQL by whether a retry may succeed.
pub(super) fn failed(error: postgres::Error) -> StoreError {
    let step = match error.as_db_error() {
        Some(said) => format!("PostgreSQL: {} ({})", said.message(), said.code().code()),
        None => "PostgreSQL".to_owned(),
    };
    // An error without a code: the connection was lost or could not be established. Classes of
    // codes: 08 connection, 25 transaction state (read-only after a failover), 40 transaction
    // rolled back, 53 resources such as the disk, 55 locked by another client, 57 shutdown by the
    // operator, 58 disk errors.
    let passes = ["08", "25", "40", "53", "55", "57", "58"];
    let is_temporary = error.code().is_none_or(|code| {
        passes.iter().any(|class| code.code().starts_with(class))
            || *code == SqlState::UNIQUE_VIOLATION
    });
    let failed = if is_temporary { StoreError::temporary(step) } else { StoreError::broken(step) };
    if error.as_db_error().is_some() { failed } else { failed.because(error) }
}

fn tls(root_file: Option<&str>) -> Result<MakeRustlsConnect, String> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = root_file {
        let failed = |error: &dyn std::fmt::Display| format!("sslrootcert={file}: {error}");
        let found = CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))?;
        for certificate in found {
            let certificate = certificate.map_err(|error| failed(&error))?;
            roots.add(certificate).map_err(|error| failed(&error))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err("no authorities to check the server's certificate against".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Removes a parameter from an address. Also returns the value of the parameter.
fn without(url: &str, name: &str) -> (String, Option<String>) {
    let Some((start, parameters)) = url.split_once('?') else { return (url.to_owned(), None) };
    let (mut rest, mut value) = (Vec::new(), None);
    for parameter in parameters.split('&') {
        match parameter.split_once('=') {
            Some((is, found)) if is == name => value = Some(found.replace("%2F", "/")),
            _ => rest.push(parameter),
        }
    }
    if rest.is_empty() {
        return (start.to_owned(), value);
    }
    (format!("{start}?{}", rest.join("&")), value)
}

/// Timeout of connecting, and of sent bytes without acknowledgement.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_whether_it_is_encrypted_and_what_is_wrong_with_it() {
        let mode = |url: &str| Address::new(url).map(|address| address.tls.is_some());
        assert!(matches!(mode("postgres://localhost/fleet"), Ok(false)));
        assert!(matches!(mode("postgres://localhost/fleet?sslmode=disable"), Ok(false)));
        for (url, says) in [
            ("postgres://localhost/fleet?sslmode=prefer", "disable, require or verify-full"),
            ("postgres://localhost/fleet?sslmode=require&sslrootcert=/none", "/none"),
            ("postgres://localhost", "no database"),
            ("postgres://:secret@localhost:x/fleet", "port"),
        ] {
            let error = mode(url).expect_err(url).in_full();
            assert!(error.contains(says) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
