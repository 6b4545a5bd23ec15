//! People install from a folder that `packaging/site` made. Each test serves such a folder on
//! loopback, in a network and with mounts of its own, where home and prefix are empty.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "refusals and times are read by people, too")]

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

const PROGRAM: &str = env!("CARGO_BIN_EXE_underload");
/// The variable that tells a test program that it is in namespaces of its own.
const INSIDE: &str = "UNDERLOAD_TEST_INSIDE";
/// The only directories that the installed programs and the script are found in.
const PATH: &str = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whether the caller is in namespaces of its own: a network with loopback alone, and mounts in
/// which `/usr/local` is empty. Elsewhere runs the test again there, or reports a skip.
fn is_apart(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let apart = || {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"]);
        let script = "ip link set lo up && mount -t tmpfs none /usr/local && exec \"$@\"";
        command.args(["--mount-proc", "sh", "-c", script, "sh"]);
        command
    };
    let allowed = apart().arg("true").output().expect("unshare of util-linux");
    if !allowed.status.success() {
        eprintln!("SKIPPED {test}: no namespaces: {}", said(&allowed));
        return false;
    }
    let mut again = apart();
    again.arg(std::env::current_exe().expect("this program"));
    let output = again.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").output();
    let output = output.expect("unshare of util-linux");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output);
    assert!(output.status.success(), "{printed}");
    printed
        .lines()
        .filter(|line| line.starts_with("    ") || line.starts_with("SKIPPED "))
        .for_each(|line| eprintln!("{line}"));
    false
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_installed(program: &str) -> bool {
    std::env::split_paths(PATH).any(|folder| folder.join(program).is_file())
}

/// What the server does to archives.
#[derive(Clone, Copy)]
enum Fault {
    None,
    /// Closes the connection after half of the bytes.
    Cut,
    /// Sends half of the bytes and then nothing.
    Stall,
}

/// A folder that `packaging/site` made, behind a web server.
struct Site {
    folder: tempfile::TempDir,
    url: String,
    fault: Arc<Mutex<Fault>>,
}

impl Site {
    /// Serves what `packaging/site` makes of the programs, with these variables.
    fn new(programs: &Path, variables: &[(&str, &Path)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let folder = tempfile::tempdir().expect("a folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/site");
        let mut site = Command::new(script);
        site.arg(programs).arg(folder.path().join("site")).envs(variables.iter().copied());
        let site = site.env("UNDERLOAD_SITE", &url).env("UNDERLOAD_GZIP", "1").output();
        let site = site.expect("packaging/site starts");
        assert!(site.status.success(), "{}", said(&site));
        let fault = Arc::new(Mutex::new(Fault::None));
        let (served, faults) = (folder.path().join("site"), Arc::clone(&fault));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (served, fault) = (served.clone(), *faults.lock().expect("no panic"));
                thread::spawn(move || answer(stream, &served, fault));
            }
        });
        Self { folder, url, fault }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("site").join(name)
    }

    fn set(&self, fault: Fault) {
        *self.fault.lock().expect("no panic") = fault;
    }
}

/// Answers one request for a file. What the client thinks of it is the client's matter.
fn answer(mut stream: TcpStream, folder: &Path, fault: Fault) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    let name = lines.next()?.split(' ').nth(1)?.trim_start_matches('/').to_owned();
    lines.find(String::is_empty)?;
    let Ok(content) = fs::read(folder.join(&name)) else {
        return stream.write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n").ok();
    };
    let length = content.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let is_faulty = name.ends_with(".tar.gz") && !matches!(fault, Fault::None);
    stream.write_all(&content[..if is_faulty { length / 2 } else { length }]).ok()?;
    if is_faulty && matches!(fault, Fault::Stall) {
        let _ = stream.read(&mut [0]);
    }
    Some(())
}

/// Returns a folder with this program under the name of the whole one.
fn programs(content: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join(format!("underload-{ARCH}-linux"));
    fs::write(&program, content).expect("written");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("its mode");
    folder
}

/// Returns a script that prints a version, with 100 kB that do not compress.
fn made_up() -> Vec<u8> {
    let mut noise = vec![0; 100_000];
    fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut noise)).expect("bytes");
    [b"#!/bin/sh\necho underload 0.1.0\nexit\n", noise.as_slice()].concat()
}

/// Makes a key pair and returns the file of the private one; `None` without OpenSSH.
fn key(folder: &Path, name: &str) -> Option<PathBuf> {
    let file = folder.join(name);
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file);
    is_installed("ssh-keygen").then(|| command.status().expect("ssh-keygen"))?;
    Some(file)
}

/// The directories of a person who installs.
struct Person {
    folder: tempfile::TempDir,
}

impl Person {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["home", "tmp"] {
            fs::create_dir(folder.path().join(name)).expect("made");
        }
        Self { folder }
    }

    fn sh(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env_clear().env("PATH", PATH);
        let at = self.folder.path();
        command.env("HOME", at.join("home")).env("TMPDIR", at.join("tmp")).current_dir(at);
        command
    }

    /// Installs as the page says, with these variables.
    fn install(&self, site: &Site, variables: &[(&str, &str)]) -> Output {
        let mut command = self.sh(&format!("curl -fsS {}/install.sh | sh", site.url));
        command.envs(variables.iter().copied()).output().expect("a shell")
    }

    /// Returns the files and directories of this person and of `/usr/local`.
    fn files(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut left = vec![self.folder.path().to_owned(), PathBuf::from("/usr/local")];
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                left.extend(path.is_dir().then(|| path.clone()));
                found.insert(path);
            }
        }
        found
    }
}

/// Returns the rest of the line that begins with this word.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(word)).map(str::trim)
}

/// Ends the server with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn three_commands_lead_from_nothing_to_a_measured_line() {
    if !is_apart("three_commands_lead_from_nothing_to_a_measured_line") {
        return;
    }
    let person = Person::new();
    let keys = tempfile::tempdir().expect("a folder");
    let small = keys.path().join("underload");
    let is_stripped = Command::new("strip").arg("-o").arg(&small).arg(PROGRAM).status();
    let program =
        if is_stripped.is_ok_and(|it| it.success()) { &small } else { Path::new(PROGRAM) };
    let programs = programs(&fs::read(program).expect("the program"));
    let key = key(keys.path(), "key");
    let variables: Vec<_> = key.iter().map(|key| ("UNDERLOAD_KEY", key.as_path())).collect();
    let site = Site::new(programs.path(), &variables);
    let before = person.files();

    let start = Instant::now();
    let installed = person.install(&site, &[]);
    assert!(installed.status.success(), "{}", said(&installed));
    let printed = String::from_utf8_lossy(&installed.stdout);
    assert!(printed.contains("is installed: /usr/local/bin/underload\n"), "{printed}");
    let checked = after(&printed, "checked").expect("how it was checked");
    assert_eq!(checked.contains(", signed by ssh-ed25519 "), key.is_some(), "{checked}");
    let installed_s = start.elapsed().as_secs_f64();

    let mut server = person.sh("exec underload serve --port 0 --bind 127.0.0.1");
    let mut server = Server(server.stdout(Stdio::piped()).spawn().expect("a shell"));
    let mut listening = String::new();
    let lines = server.0.stdout.take().expect("piped");
    BufReader::new(lines).read_line(&mut listening).expect("a line");
    let words: Vec<&str> = listening.split_whitespace().collect();
    let [_, address, _, _, fingerprint] = words[..] else { panic!("{listening}") };
    let served_s = start.elapsed().as_secs_f64();

    let measure = format!(
        "underload measure {address} --trust {fingerprint} --up --duration 1s --idle 500ms --out line"
    );
    let measured = person.sh(&measure).output().expect("a shell");
    // On a busy machine every step may be invalid, and yet all of it was measured and recorded.
    let is_judged = measured.status.success() || said(&measured).contains("no step is valid");
    assert!(is_judged, "{}", said(&measured));
    for file in ["run.json", "samples.parquet", "report.html"] {
        assert!(person.folder.path().join("line").join(file).is_file(), "{file}");
    }
    let measured_s = start.elapsed().as_secs_f64();
    eprintln!("    s: installed {installed_s:.1}, served {served_s:.1}, measured {measured_s:.1}");

    let undo = after(&printed, "undo").expect("how to undo it");
    assert!(person.sh(undo).status().expect("a shell").success(), "{undo}");
    let left: Vec<PathBuf> = person.files().difference(&before).cloned().collect();
    let own = [person.folder.path().join("line"), person.folder.path().join("home")];
    let is_installed = |it: &&PathBuf| !own.iter().any(|own| it.starts_with(own));
    let left: Vec<&PathBuf> = left.iter().filter(is_installed).collect();
    assert_eq!(left, [Path::new("/usr/local/bin")]);
}

/// Puts a program into a directory that is searched first, and returns the new `PATH`.
fn shadow(person: &Person, name: &str, script: &str) -> String {
    let folder = person.folder.path().join(format!("shadow-{name}"));
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join(name), format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).expect("its mode");
    format!("{}:{PATH}", folder.display())
}

/// Installs, and checks that this is refused in one sentence that contains `why`, and that nothing
/// is left behind.
fn refused(person: &Person, site: &Site, variables: &[(&str, &str)], why: &str) {
    let before = person.files();
    let output = person.install(site, variables);
    let told = said(&output);
    assert!(!output.status.success(), "{why}: {}", String::from_utf8_lossy(&output.stdout));
    assert!(output.stdout.is_empty() && told.lines().count() == 1, "{why}: {told}");
    assert!(told.starts_with("install.sh: ") && told.contains(why), "{why}: {told}");
    assert_eq!(person.files(), before, "{why}");
    eprintln!("    {}", told.trim_end());
}

#[test]
fn a_damaged_download_a_full_disk_or_another_machine_is_refused_and_leaves_nothing() {
    let test = "a_damaged_download_a_full_disk_or_another_machine_is_refused_and_leaves_nothing";
    if !is_apart(test) {
        return;
    }
    let (person, programs) = (Person::new(), programs(&made_up()));
    let site = Site::new(programs.path(), &[]);
    let archive = site.file(&format!("underload-{ARCH}-linux.tar.gz"));
    let whole = fs::read(&archive).expect("an archive");
    let sums = fs::read_to_string(site.file("SHA256SUMS")).expect("checksums");

    let kind = shadow(&person, "uname", r#"[ "$1" = -s ] && echo Linux || echo riscv64"#);
    refused(
        &person,
        &site,
        &[("PATH", &kind)],
        "no program for riscv64; there are x86_64, aarch64 and",
    );
    let system = shadow(&person, "uname", "echo Darwin");
    refused(&person, &site, &[("PATH", &system)], "no program for Darwin; build it from source");
    let armv7 = shadow(&person, "uname", r#"[ "$1" = -s ] && echo Linux || echo armv7l"#);
    refused(&person, &site, &[("PATH", &armv7)], "has no underload for armv7: SHA256SUMS does not");

    for (fault, why) in [(Fault::Cut, "curl: (18)"), (Fault::Stall, "curl: (28)")] {
        site.set(fault);
        refused(&person, &site, &[("UNDERLOAD_PATIENCE", "1")], why);
    }
    site.set(Fault::None);
    let elsewhere = format!("{}/elsewhere", site.url);
    refused(&person, &site, &[("UNDERLOAD_URL", &elsewhere)], "elsewhere/SHA256SUMS could not be");

    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&archive, damaged).expect("written");
    refused(&person, &site, &[], "it is damaged or was replaced");
    fs::write(&archive, &whole).expect("written");
    let own = sums.lines().find(|line| line.ends_with(".tar.gz")).expect("a checksum");
    let wrong = sums.replace(&own[..8], "01234567");
    fs::write(site.file("SHA256SUMS"), wrong).expect("written");
    refused(&person, &site, &[], "another SHA-256 than SHA256SUMS has");
    fs::write(site.file("SHA256SUMS"), &sums).expect("written");

    let disk = person.folder.path().join("disk");
    fs::create_dir(&disk).expect("made");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&disk);
    assert!(mount.status().expect("mount").success());
    let disk = disk.display().to_string();
    refused(
        &person,
        &site,
        &[("PREFIX", &format!("{disk}/new"))],
        "no permission, or the disk is full",
    );
    refused(&person, &site, &[("TMPDIR", &disk)], &format!("into {disk}"));
    refused(&person, &site, &[("PREFIX", "/proc/none")], "/proc/none/bin cannot be made");

    assert!(
        person.install(&site, &[]).status.success(),
        "the premise: only the faults were refused"
    );
}

#[test]
fn checksums_of_another_signer_are_refused() {
    if !is_apart("checksums_of_another_signer_are_refused") {
        return;
    }
    let (person, programs) = (Person::new(), programs(&made_up()));
    let keys = tempfile::tempdir().expect("a folder");
    let (Some(ours), Some(_)) = (key(keys.path(), "ours"), key(keys.path(), "theirs")) else {
        eprintln!("SKIPPED checksums_of_another_signer_are_refused: ssh-keygen is missing");
        return;
    };
    let site = Site::new(programs.path(), &[("UNDERLOAD_KEY", &ours)]);
    let public = |name| fs::read_to_string(keys.path().join(name)).expect("a public key");
    let unsigned = "SHA256SUMS is not signed by the expected key";
    refused(&person, &site, &[("UNDERLOAD_KEY", &public("theirs.pub"))], unsigned);
    let sums = fs::read_to_string(site.file("SHA256SUMS")).expect("checksums");
    fs::write(site.file("SHA256SUMS"), sums.clone() + "\n").expect("written");
    refused(&person, &site, &[], unsigned);
    fs::write(site.file("SHA256SUMS"), sums).expect("written");
    let signed = person.install(&site, &[("UNDERLOAD_KEY", &public("ours.pub"))]);
    assert!(signed.status.success(), "{}", said(&signed));
    fs::remove_file(site.file("SHA256SUMS.sig")).expect("removed");
    let again = Person::new();
    refused(&again, &site, &[], "SHA256SUMS.sig could not be downloaded");
}

/// The script runs where a router has BusyBox alone.
#[test]
fn busybox_suffices_for_installing() {
    if !is_apart("busybox_suffices_for_installing") {
        return;
    }
    let person = Person::new();
    let applets = person.folder.path().join("applets");
    fs::create_dir(&applets).expect("made");
    let made = Command::new("busybox").args(["--install", "-s"]).arg(&applets).output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("SKIPPED busybox_suffices_for_installing: busybox is missing (busybox-static)");
        return;
    }
    let programs = programs(&made_up());
    let site = Site::new(programs.path(), &[]);
    let mut command = person.sh(&format!("wget -qO- {}/install.sh | sh", site.url));
    let output = command.env("PATH", &applets).output().expect("a shell");
    assert!(output.status.success(), "{}", said(&output));
    let program = Command::new("/usr/local/bin/underload").output().expect("it is installed");
    assert_eq!(program.stdout, b"underload 0.1.0\n");
}

/// Makes a Debian package that contains one file.
fn debian_package(programs: &Path) {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "mkdir -p DEBIAN usr/bin && echo true >usr/bin/underload && printf 'Package: underload\\n\
                  Version: 0.1.0-1\\nArchitecture: all\\nMaintainer: nobody\\nDescription: none\\n' \
                  >DEBIAN/control && dpkg-deb --build --root-owner-group . \"$0\" >/dev/null";
    let mut build = Command::new("sh");
    build.args(["-c", script]).arg(programs.join("underload_0.1.0-1_all.deb"));
    assert!(build.current_dir(folder.path()).status().expect("dpkg-deb").success());
}

#[test]
fn apt_reads_the_folder_and_notices_another_list() {
    if !is_apart("apt_reads_the_folder_and_notices_another_list") {
        return;
    }
    if let Some(missing) = ["apt-get", "dpkg-deb", "gpg"].iter().find(|it| !is_installed(it)) {
        eprintln!("SKIPPED apt_reads_the_folder_and_notices_another_list: {missing} is missing");
        return;
    }
    let (person, programs) = (Person::new(), programs(&made_up()));
    debian_package(programs.path());
    let at = person.folder.path();
    let gpg =
        "mkdir -m 700 gpg && gpg --homedir gpg --batch --passphrase '' --quick-gen-key underload";
    let made = person.sh(gpg).output().expect("a shell");
    assert!(made.status.success(), "{}", said(&made));
    let variables = [("UNDERLOAD_GPG", Path::new("underload")), ("GNUPGHOME", &at.join("gpg"))];
    let site = Site::new(programs.path(), &variables);
    let signer = site.file("apt/underload.gpg");
    let list = format!("deb [signed-by={}] {}/apt ./\n", signer.display(), site.url);
    fs::write(at.join("sources.list"), list).expect("written");
    let apt = "mkdir -p state/lists/partial cache/archives/partial && touch status && apt() {
                   apt-get -o Dir::State=$PWD/state -o Dir::State::status=$PWD/status \
                       -o Dir::Cache=$PWD/cache -o Dir::Etc::sourcelist=$PWD/sources.list \
                       -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root \"$@\"
               } && apt --error-on=any update && apt download underload";
    let output = person.sh(apt).output().expect("a shell");
    assert!(output.status.success(), "{}", said(&output));
    let [downloaded, made] = [at, programs.path()]
        .map(|folder| fs::read(folder.join("underload_0.1.0-1_all.deb")).expect("a package"));
    assert!(downloaded == made, "the package is the same");

    let packages = fs::read_to_string(site.file("apt/Packages")).expect("a list");
    for name in ["apt/Packages", "apt/Packages.gz"] {
        fs::remove_file(site.file(name)).expect("removed");
    }
    fs::write(site.file("apt/Packages"), packages.replace("Package: ", "package: "))
        .expect("written");
    fs::remove_dir_all(at.join("state")).expect("removed");
    let output = person.sh(apt).output().expect("a shell");
    assert!(
        !output.status.success() && said(&output).contains("Hash Sum mismatch"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_feed_for_opkg_has_its_packages_sizes_and_checksums() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = folder.path().join(format!("underload-measuring-{ARCH}-linux"));
    fs::write(&made, "#!/bin/sh\n").expect("written");
    let site = Site::new(folder.path(), &[]);
    let feed = site.file(&format!("openwrt/{ARCH}"));
    let script = "set -e
        sum=$(sed -n 's/^SHA256sum: //p' Packages) size=$(sed -n 's/^Size: //p' Packages)
        file=$(sed -n 's/^Filename: //p' Packages)
        test \"$(sha256sum <$file)\" = \"$sum  -\" && test $(wc -c <$file) = $size
        gzip -dc Packages.gz | cmp - Packages
        tar -xzOf $file ./control.tar.gz | tar -xzO ./control | cmp -n 20 - Packages
        tar -xzOf $file ./data.tar.gz | tar -tz";
    let listed =
        Command::new("sh").args(["-c", script]).current_dir(feed).output().expect("a shell");
    assert!(listed.status.success(), "{}", said(&listed));
    let listed = String::from_utf8_lossy(&listed.stdout);
    for file in ["./usr/bin/underload", "./etc/init.d/underload", "./etc/config/underload"] {
        assert!(listed.lines().any(|line| line == file), "{listed}");
    }
}
