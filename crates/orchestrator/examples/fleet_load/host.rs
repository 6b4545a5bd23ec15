//! An orchestrator in another process, and its use of the machine.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use data_encoding::HEXLOWER;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, version};
use underload_orchestrator::http::{Config, Core, Limits, Tell, serve as serve_core, system_clock};
use underload_orchestrator::store::SqlStore;

pub struct Host {
    child: Child,
    pub address: SocketAddr,
    pub certificate: CertificateDer<'static>,
}

/// Resources that a process has used.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub processor_s: f64,
    pub memory_mib: f64,
}

/// Results that the keeper folds per transaction.
const ROLLED_UP: usize = 2_000;
const KEEPER_PAUSE: Duration = Duration::from_secs(1);
/// Unit of processor time in `/proc`: hundredths of a second.
const TICKS: f64 = 100.0;
const PAGE_MIB: f64 = 4_096.0 / 1_048_576.0;

impl Host {
    /// Starts `serve` or `serve-bare` on a folder.
    pub fn start(what: &str, directory: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("its own path")?;
        let mut child = Command::new(program)
            .arg(what)
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a server")?;
        let output = child.stdout.take().context("it is piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let (address, certificate) =
            line.trim().split_once(' ').ok_or_else(|| anyhow!("the server said `{line}`"))?;
        let certificate = HEXLOWER.decode(certificate.as_bytes())?;
        Ok(Self { child, address: address.parse()?, certificate: certificate.into() })
    }

    pub fn used(&self) -> anyhow::Result<Used> {
        used_by(self.child.id())
    }

    /// Stops the server cleanly.
    pub fn stop(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

/// Reads the resources that a process has used.
pub fn used_by(process: u32) -> anyhow::Result<Used> {
    let of = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}"));
    let (stat, statm) = (of("stat")?, of("statm")?);
    // After the name, which may have any characters, user and system time are the fields 12 and 13.
    let fields = stat.rsplit_once(')').context("a name")?.1.split_whitespace();
    let ticks: Vec<f64> = fields.skip(11).take(2).filter_map(|it| it.parse().ok()).collect();
    let pages: f64 = statm.split(' ').nth(1).context("a second field")?.parse()?;
    let processor_s = ticks.iter().sum::<f64>() / TICKS;
    Ok(Used { processor_s, memory_mib: pages * PAGE_MIB })
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a certificate for loopback, and its TLS configuration.
pub fn identity() -> anyhow::Result<(Arc<ServerConfig>, CertificateDer<'static>)> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    Ok((Arc::new(config), made.cert.der().clone()))
}

/// Prints the address for the other process, and waits until the other process closes the pipe.
pub fn until_told(address: SocketAddr, certificate: &CertificateDer<'_>) -> anyhow::Result<()> {
    println!("{address} {}", HEXLOWER.encode(certificate));
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// An orchestrator with SQLite, and its keeper.
pub fn serve(directory: &Path) -> anyhow::Result<()> {
    let store = SqlStore::sqlite(directory)?;
    let mut keeper = store.keeper()?;
    let limits = Limits::default();
    let tell: Tell = std::sync::Arc::new(|words| eprintln!("{words}"));
    let core = Core::start(vec![Box::new(store)], system_clock(), &limits, &tell)?;
    let (tls, certificate) = identity()?;
    let listen = "127.0.0.1:0".parse()?;
    let running = serve_core(core, Config { listen, tls: Some(tls), limits, pages: None })?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                match keeper.roll_up(ROLLED_UP) {
                    Ok(done) if done.has_more => {}
                    _ => std::thread::sleep(KEEPER_PAUSE),
                }
            }
        });
        let told = until_told(running.address(), &certificate);
        is_over.store(true, Ordering::Relaxed);
        told
    })?;
    running.stop();
    Ok(())
}
