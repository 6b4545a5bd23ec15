//! Namespaces and other people's programs, for the examples.

use std::io;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Socket, Type};

pub type Failure = Box<dyn std::error::Error>;

/// A network namespace; deleted when dropped.
pub struct Namespace {
    pub name: String,
}

/// A child process that ends with its owner.
pub struct Stopped(pub Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Namespace {
    pub fn new(name: String) -> Result<Self, Failure> {
        ip(&["netns", "add", &name])?;
        Ok(Self { name })
    }

    /// Runs `work` in a thread that entered this namespace; sockets that it makes stay here.
    pub fn enter<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.name))?;
        let body = move || {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            work()
        };
        let panicked = |_| io::Error::other("the thread in the namespace panicked");
        std::thread::spawn(body).join().map_err(panicked)?
    }

    /// A UDP socket of this namespace.
    pub fn udp(&self, address: &'static str) -> io::Result<UdpSocket> {
        self.enter(move || UdpSocket::bind(address))
    }

    /// A socket of this namespace, neither bound nor connected.
    #[allow(dead_code, reason = "one of two examples needs it")]
    pub fn socket(&self, domain: Domain, kind: Type) -> io::Result<Socket> {
        self.enter(move || Socket::new(domain, kind, None))
    }

    /// A command that runs in this namespace, its output caught.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.name]);
    }
}

pub fn ip(arguments: &[&str]) -> Result<(), Failure> {
    let output = Command::new("ip").args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), reason.trim()).into())
}

pub fn text_of(name: &str, output: io::Result<std::process::Output>) -> Option<String> {
    match output {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).ok(),
        Ok(output) => {
            eprintln!("SKIPPED {name}: {}", String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(error) => {
            eprintln!("SKIPPED {name}: {error}");
            None
        }
    }
}
