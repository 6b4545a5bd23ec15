//! HTTP/3 by the program `caddy`, which passes requests on to a page's server.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use underload_emu::machine::{Namespace, Process, SERVER_V4};
use underload_service::Identity;

use super::server::key_hash;
use crate::error::{Doing as _, RunError};

/// A running `caddy`, which ends when this is dropped.
pub(super) struct Caddy {
    pub address: SocketAddr,
    /// SHA-256 of its public key in base64, as browsers name keys.
    pub key: String,
    _process: Process,
}

/// The message to a user without the program.
pub(super) const MISSING: &str = "protocol: no caddy, which serves HTTP/3 (apt install caddy)";
/// A busy machine starts `caddy` within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns whether the program is installed.
pub(super) fn is_installed() -> bool {
    program().arg("version").stdin(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Returns the command of the program, which otherwise makes folders in the user's home.
fn program() -> Command {
    let mut command = Command::new("caddy");
    command.env("HOME", "/dev/null").env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Caddy {
    /// Starts the program before the server at `upstream`, with a new key.
    pub(super) fn start(namespace: &Namespace, upstream: SocketAddr) -> Result<Self, RunError> {
        let identity = Identity::generate().of_world()?;
        let [certificate, private_key] = identity.to_pem();
        let free = namespace.open(|| TcpListener::bind((SERVER_V4, 0)));
        let address = free.and_then(|it| it.local_addr()).doing("finding a port for caddy")?;
        let proxy = json!({ "handler": "reverse_proxy", "upstreams": [{ "dial": upstream }] });
        let config = json!({
            "admin": { "disabled": true, "config": { "persist": false } },
            "logging": { "logs": { "default": { "level": "ERROR" } } },
            "apps": {
                "tls": { "certificates": {
                    "load_pem": [{ "certificate": certificate, "key": private_key }],
                } },
                "http": { "servers": { "page": {
                    "listen": [address],
                    // HTTP/1.1 is for the readiness check below.
                    "protocols": ["h1", "h3"],
                    "automatic_https": { "disable": true },
                    // A browser names no host by its address.
                    "tls_connection_policies": [{ "default_sni": "underload" }],
                    "routes": [{ "handle": [proxy] }],
                } } },
            },
        });
        let mut command = program();
        command.args(["run", "--config", "-"]).stdin(Stdio::piped());
        let mut process = namespace.spawn(command).doing("starting caddy")?;
        if let Some(mut input) = process.child().stdin.take() {
            // Fails only if the program has ended, which is reported below.
            let _ = input.write_all(config.to_string().as_bytes());
        }
        let start = Instant::now();
        while namespace.open(|| TcpStream::connect(address)).is_err() {
            let has_ended = process.wait_for(Duration::from_millis(50)).of_world()?.is_some();
            if has_ended || start.elapsed() > PATIENCE {
                return Err(format!("caddy does not serve HTTP/3 on {address}")).of_world();
            }
        }
        Ok(Self { address, key: key_hash(&identity)?, _process: process })
    }
}
