//! A separate PostgreSQL for tests and benchmarks, on a socket in a temporary folder.

#![cfg_attr(
    not(test),
    expect(clippy::print_stderr, reason = "a benchmark prints why it was skipped")
)]

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A running server. It ends, and its folder is removed, when this process ends for any reason.
pub(crate) struct Scratch {
    folder: PathBuf,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    server: Child,
    /// The watcher ends the server when this end of its pipe is closed.
    _janitor: Child,
}

impl Scratch {
    /// Starts a server. Prints a report of the skip and returns `None` if PostgreSQL is not
    /// installed.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("SKIPPED {test}: PostgreSQL is not installed (./setup --tests installs it)");
            return None;
        };
        let user = user();
        if user.is_none() && is_root() {
            eprintln!(
                "SKIPPED {test}: root may not start PostgreSQL, and no user postgres is there"
            );
            return None;
        }
        let folder = tempfile::Builder::new().prefix("underload-pg-").tempdir().ok()?.keep();
        if let Some((user, group)) = user {
            chown(&folder, Some(user), Some(group)).ok()?;
        }
        let janitor = Command::new("sh")
            .args(["-c", JANITOR, "janitor"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .spawn()
            .ok()?;
        let made = as_user(Command::new(programs.join("initdb")), user)
            .args(["--auth=trust", "--username=underload", "--encoding=UTF8", "--locale=C"])
            .arg("--no-sync")
            .arg(folder.join("data"))
            .stdout(Stdio::null())
            .status();
        assert!(made.is_ok_and(|status| status.success()), "{test}: initdb");
        let server = launch(&programs, &folder, user);
        let scratch = Self { folder, programs, user, server, _janitor: janitor };
        scratch.wait_until_ready();
        Some(scratch)
    }

    /// The address of a new, empty database.
    pub(crate) fn database(&self, name: &str) -> String {
        let made = self.admin().batch_execute(&format!("CREATE DATABASE {name}"));
        made.unwrap_or_else(|error| panic!("{name}: {error}"));
        self.address(name)
    }

    pub(crate) fn address(&self, database: &str) -> String {
        let folder = self.folder.to_string_lossy().replace('/', "%2F");
        format!("postgres://underload@/{database}?host={folder}")
    }

    /// Kills the server as a failing machine would, and restarts it.
    pub(crate) fn kill_and_restart(&mut self) {
        let killed = self.server.kill().and_then(|()| self.server.wait());
        killed.unwrap_or_else(|error| panic!("kill: {error}"));
        // The server's children notice that some milliseconds later; all must have ended before
        // another server starts.
        sleep(Duration::from_millis(300));
        self.server = launch(&self.programs, &self.folder, self.user);
        self.wait_until_ready();
    }

    fn admin(&self) -> postgres::Client {
        let client = postgres::Client::connect(&self.address("postgres"), postgres::NoTls);
        client.unwrap_or_else(|error| panic!("{error}"))
    }

    fn wait_until_ready(&self) {
        let start = Instant::now();
        loop {
            let client = postgres::Client::connect(&self.address("postgres"), postgres::NoTls);
            match client {
                Ok(_) => return,
                Err(_) if start.elapsed() < PATIENCE => sleep(Duration::from_millis(50)),
                Err(error) => {
                    let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                    panic!("{error}\n{log}");
                }
            }
        }
    }
}

fn launch(programs: &Path, folder: &Path, user: Option<(u32, u32)>) -> Child {
    let mut command = as_user(Command::new(programs.join("postgres")), user);
    command.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    let log = fs::File::options().create(true).append(true).open(folder.join("log"));
    let log = log.unwrap_or_else(|error| panic!("{error}"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().unwrap_or_else(|error| panic!("postgres: {error}"))
}

fn as_user(mut command: Command, user: Option<(u32, u32)>) -> Command {
    if let Some((user, group)) = user {
        command.uid(user).gid(group).current_dir("/");
    }
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|facts| {
        use std::os::unix::fs::MetadataExt as _;
        facts.uid() == 0
    })
}

/// The user and group that PostgreSQL runs as; it refuses to run as root.
fn user() -> Option<(u32, u32)> {
    let users = is_root().then(|| fs::read_to_string("/etc/passwd").ok())??;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Returns the folder with the programs of the newest installed version of the server.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    versions.sort();
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    versions.extend(std::env::split_paths(&on_path));
    versions.into_iter().rev().find(|folder| folder.join("initdb").is_file())
}

/// Waits until the process that started it has ended, then ends the server and removes its folder.
const JANITOR: &str = "cat > /dev/null
pid=$(head -n 1 \"$1/data/postmaster.pid\" 2> /dev/null)
[ -z \"$pid\" ] || kill -INT \"$pid\" 2> /dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -e \"$1/data/postmaster.pid\" ] || break
    sleep 0.2
done
rm -rf \"$1\"";
/// The server writes its log as late as possible, so that a commit that did not wait for the sync
/// is lost in the tests.
const SETTINGS: [&str; 7] = [
    "listen_addresses=", "fsync=on", "shared_buffers=64MB", "max_connections=60",
    "wal_writer_delay=10s", "wal_writer_flush_after=1GB", "autovacuum_naptime=5s",
];
const PATIENCE: Duration = Duration::from_mins(1);
