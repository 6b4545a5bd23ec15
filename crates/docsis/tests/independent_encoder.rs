//! Compares our bytes with those of the independent encoder `docsis`, for generated configurations.
//!
//! Run by hand, with the program on the path or named by `DOCSIS_ENCODER`:
//!
//! ```sh
//! cargo test -p underload-docsis --test independent_encoder -- --ignored --nocapture
//! ```
//!
//! The comparison excludes settings for which the two differ by design: an extended CMTS MIC
//! without an explicit digest (that encoder computes type 7 the old way only), type 59 (which it
//! does not count into the CMTS MIC), the CMTS MIC of files with type 64 (which it misreads), and
//! type 254, which begins a telephone adapter's file.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use underload_docsis::schema::{self, Field, Kind, Scope};
use underload_docsis::{Config, Tlv, text};

/// Configurations for each setting of the schema, each with that setting among random others.
const ROUNDS: u64 = 3;
/// The other program's decoder prints type 94 under the name of type 93: files with it are only
/// encoded.
const MISNAMED: u8 = 94;

/// The other program's CMTS MIC takes this type's length to have two bytes.
const MISREAD: u8 = 64;
/// The MICs, type 59, and type 254, which makes that decoder read an adapter's file.
const LEFT_OUT: [u8; 4] = [6, 7, 59, 254];

/// A small deterministic generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from `low` to `high`, often one of the ends.
    fn within(&mut self, low: u64, high: u64) -> u64 {
        match self.next() % 8 {
            0 => low,
            1 => high,
            _ => low + self.next() % (high - low + 1),
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    fn letters(&mut self, low: usize, high: usize) -> Vec<u8> {
        let count = self.within(low as u64, high.min(40) as u64) as usize;
        let alphabet = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_. ";
        (0..count).map(|_| alphabet[(self.next() % alphabet.len() as u64) as usize]).collect()
    }
}

fn leaf(random: &mut Random, kind: &Kind) -> Vec<u8> {
    match *kind {
        Kind::Number { width, low, high } => {
            let number = random.within(low.into(), high.into());
            number.to_be_bytes()[8 - width..].to_vec()
        }
        Kind::Text { low, high } => random.letters(low, high),
        Kind::TextNul { low, high } => {
            let mut name = random.letters(low, high);
            name.push(0);
            name
        }
        Kind::Hex { low, high } => {
            let count = random.within(low.max(1) as u64, high.min(low.max(1) + 20) as u64);
            random.bytes(count as usize)
        }
        Kind::List { width, low, high } => {
            let count = random.within(low as u64, high.min(15) as u64) as usize;
            random.bytes(width * count)
        }
        Kind::Ipv4 => random.bytes(4),
        Kind::Ipv4List | Kind::MacMask => random.bytes(12),
        Kind::Ipv6 => random.bytes(16),
        Kind::Ipv6List => random.bytes(32),
        Kind::Ipv6PrefixList => random.bytes(17 * 2),
        Kind::Ip => {
            let length = if random.next().is_multiple_of(2) { 4 } else { 16 };
            random.bytes(length)
        }
        Kind::TaggedIp => match random.next() % 2 {
            0 => [vec![1], random.bytes(4)].concat(),
            _ => [vec![2], random.bytes(16)].concat(),
        },
        Kind::Empty => Vec::new(),
        Kind::Transport | Kind::Mac => random.bytes(6),
        Kind::Oid | Kind::WriteControl | Kind::VarBind => snmp(random, kind),
        Kind::Aggregate(_) | Kind::Extension(_) => unreachable!("not a leaf"),
    }
}

fn snmp(random: &mut Random, kind: &Kind) -> Vec<u8> {
    let arcs = random.within(1, 8);
    let arcs: Vec<_> = (0..arcs).map(|_| random.within(0, 1 << 31).to_string()).collect();
    let oid = format!(".1.3.6.1.{}", arcs.join("."));
    let text = match kind {
        Kind::Oid => oid,
        Kind::WriteControl => format!("{oid} {}", random.next() % 2),
        _ => {
            let letters = random.letters(1, 40);
            let value = match random.next() % 7 {
                0 => format!("Integer {}", random.next() as i32),
                1 => format!("Gauge32 {}", random.next() as u32),
                2 => format!("Counter32 {}", random.next() as u32),
                3 => format!("TimeTicks {}", random.next() as u32),
                4 => format!("IPAddress 10.{}.0.1", random.next() % 256),
                5 => format!("ObjectID .1.3.6.1.{}", random.next() as u16),
                _ => format!("String {}", String::from_utf8_lossy(&letters)),
            };
            format!("{oid} {value}")
        }
    };
    underload_docsis::value::parse(kind, &text).expect("a generated binding")
}

/// A few settings of an aggregate, each at most once unless it repeats, short enough for it.
fn settings(random: &mut Random, scope: Scope, most: u64, depth: usize) -> Vec<Tlv> {
    let mut tlvs: Vec<Tlv> = Vec::new();
    if scope.is_empty() {
        let count = random.within(1, 6) as usize;
        return vec![Tlv::bytes(1, random.bytes(count))];
    }
    for _ in 0..random.within(1, most) {
        let field = &scope[(random.next() % scope.len() as u64) as usize];
        let taken = tlvs.iter().any(|tlv| tlv.code == field.code) && !field.repeats;
        if let Some(tlv) = setting(random, field, depth).filter(|_| !taken) {
            tlvs.push(tlv);
        }
    }
    tlvs
}

fn setting(random: &mut Random, field: &Field, depth: usize) -> Option<Tlv> {
    let tlv = match &field.kind {
        Kind::Aggregate(scope) => Tlv::nested(field.code, settings(random, scope, 8, depth + 1)),
        Kind::Extension(scope) => {
            let mut inner = settings(random, scope, 4, depth + 1);
            inner.retain(|tlv| !matches!(tlv.code, 6 | 8));
            inner.insert(0, Tlv::bytes(8, schema::GENERAL_VENDOR));
            Tlv::nested(field.code, inner)
        }
        kind => Tlv::bytes(field.code, leaf(random, kind)),
    };
    let whole = Config::new([Tlv::nested(1, [tlv.clone()])]);
    whole.encode().is_ok_and(|bytes| bytes.len() <= 250).then_some(tlv)
}

/// Returns the paths from the top level to every setting, except excluded ones.
fn ways() -> Vec<Vec<&'static Field>> {
    let mut ways = Vec::new();
    let mut open = vec![(Vec::new(), schema::top())];
    while let Some((outer, scope)) = open.pop() {
        for field in scope {
            let way = [outer.as_slice(), &[field]].concat();
            let inner = schema::inside(Some(field), Some(&schema::GENERAL_VENDOR));
            open.push((way.clone(), inner));
            ways.push(way);
        }
    }
    ways.retain(|way| {
        let types: Vec<u8> = way.iter().map(|field| field.code).collect();
        !LEFT_OUT.contains(&types[0]) && !types.starts_with(&[43, 6])
    });
    ways
}

/// Returns a setting inside the aggregates that contain it.
fn at_the_end_of(random: &mut Random, way: &[&'static Field]) -> Tlv {
    let (field, rest) = way.split_first().expect("a way has a field");
    match (rest.is_empty(), &field.kind) {
        (true, Kind::Aggregate(_) | Kind::Extension(_)) => setting(random, field, 1)
            .unwrap_or_else(|| Tlv::nested(field.code, [Tlv::bytes(200, [0, 1])])),
        (true, kind) => Tlv::bytes(field.code, leaf(random, kind)),
        (false, Kind::Extension(_)) if rest[0].code != schema::VENDOR_ID => {
            let vendor = Tlv::bytes(schema::VENDOR_ID, schema::GENERAL_VENDOR);
            Tlv::nested(field.code, [vendor, at_the_end_of(random, rest)])
        }
        (false, Kind::Extension(_)) => {
            Tlv::nested(field.code, [Tlv::bytes(schema::VENDOR_ID, schema::GENERAL_VENDOR)])
        }
        (false, _) => Tlv::nested(field.code, [at_the_end_of(random, rest)]),
    }
}

fn configuration(seed: u64, way: &[&'static Field]) -> Config {
    let mut random = Random(seed);
    let mut tlvs = vec![Tlv::u8(3, 1)];
    let wanted = at_the_end_of(&mut random, way);
    tlvs.extend(Config::new([wanted.clone()]).encode().is_ok().then_some(wanted));
    tlvs.extend(settings(&mut random, schema::top(), 12, 1));
    for code in [24, 25] {
        let flow = schema::find(schema::top(), code).expect("service flows have a schema");
        tlvs.extend(setting(&mut random, flow, 1));
    }
    tlvs.extend(settings(&mut random, schema::top(), 12, 1));
    tlvs.retain(|tlv| !LEFT_OUT.contains(&tlv.code));
    let mut config = Config::new(tlvs);
    config.seal(Some(&common::secret())).expect("a generated file can be sealed");
    config
}

fn codes(way: &[&'static Field]) -> String {
    let codes: Vec<_> = way.iter().map(|field| field.code.to_string()).collect();
    codes.join(".")
}

/// Returns the bytes that must be equal: all, or all but the CMTS MIC if the file has type 64. Its
/// length has two bytes in an adapter's file and one in a modem's, which misleads that encoder.
fn comparable(config: &Config, bytes: &[u8]) -> Vec<u8> {
    let mic = config.walk().into_iter().find(|node| node.tlv.code == 7 && node.path.depth() == 1);
    let mut bytes = bytes.to_vec();
    if let Some(mic) = mic.filter(|mic| config.has(MISREAD) && bytes.len() > mic.offset + 18) {
        bytes.drain(mic.offset + 2..mic.offset + 18);
    }
    bytes
}

fn encoder() -> PathBuf {
    let program = std::env::var_os("DOCSIS_ENCODER").unwrap_or_else(|| "docsis".into());
    let status = Command::new(&program).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.is_ok(), "no program {}: set DOCSIS_ENCODER", program.display());
    program.into()
}

fn run(program: &Path, arguments: &[&Path], mode: &str) -> String {
    let mut command = Command::new(program);
    let output =
        command.arg("-o").arg(mode).args(arguments).env("MIBDIRS", "/nonexistent").output();
    String::from_utf8_lossy(&output.expect("the encoder runs").stdout).into_owned()
}

/// Returns whether the encoder's text is parsed to the same bytes; the error names the first
/// difference.
fn read_alike(config: &Config, bytes: &[u8], theirs: &str) -> Result<(), String> {
    let mut read = text::from_main(theirs).map_err(|error| format!(": {error}\n{theirs}"))?;
    read.seal(Some(&common::secret())).unwrap();
    let read = read.encode().unwrap();
    if read == bytes {
        return Ok(());
    }
    let at = read.iter().zip(bytes).take_while(|(a, b)| a == b).count();
    let place = config.walk().into_iter().rev().find(|node| node.offset <= at);
    let path = place.map(|node| node.path.to_string());
    Err(format!(" differs at {path:?}\n{theirs}"))
}

#[test]
#[ignore = "needs the independent encoder `docsis`; run by hand"]
fn generated_files_are_the_same_bytes_in_both_directions() {
    let program = encoder();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("key"), "bufferbloat\n").unwrap();
    let (mut encoded, mut decoded, mut decodable, mut settings, mut bytes_total) = (0, 0, 0, 0, 0);
    let mut differences = Vec::new();
    let ways = ways();
    let configurations = ROUNDS * ways.len() as u64;
    let mut seen = BTreeSet::new();
    for seed in 0..configurations {
        let config = configuration(seed, &ways[seed as usize % ways.len()]);
        seen.extend(config.walk().into_iter().map(|node| node.path.codes()));
        let bytes = config.encode().unwrap();
        settings += config.walk().len();
        bytes_total += bytes.len();
        let main = text::to_main(&config);
        std::fs::write(path("in.txt"), &main).unwrap();
        let _ = std::fs::remove_file(path("out.bin"));
        run(&program, &[&path("in.txt"), &path("key"), &path("out.bin")], "-e");
        match std::fs::read(path("out.bin")) {
            Ok(theirs) if comparable(&config, &theirs) == comparable(&config, &bytes) => {
                encoded += 1;
            }
            Ok(_) => differences.push(format!("{seed}: encoded differently\n{main}")),
            Err(_) => differences.push(format!("{seed}: refused\n{main}")),
        }

        if config.has(MISNAMED) {
            continue;
        }
        decodable += 1;
        std::fs::write(path("ours.bin"), &bytes).unwrap();
        let theirs = run(&program, &[&path("ours.bin")], "-d");
        // A text that its own encoder cannot parse: it escapes neither quotation marks nor `\\`.
        let unescaped = |line: &str| line.matches('"').count() > 2 || line.contains('\\');
        if theirs.lines().any(|line| line.contains("TlvString") && unescaped(line)) {
            decodable -= 1;
            continue;
        }
        match read_alike(&config, &bytes, &theirs) {
            Ok(()) => decoded += 1,
            Err(difference) => differences.push(format!("{seed}: their text{difference}")),
        }
    }
    eprintln!(
        "{configurations} configurations, {settings} settings of {} of {} kinds, {bytes_total} \
         bytes: {encoded} encoded alike, {decoded} of {decodable} decoded alike, {} differences",
        ways.iter().filter(|way| seen.contains(&codes(way))).count(),
        ways.len(),
        differences.len()
    );
    for difference in differences.iter().take(20) {
        eprintln!("---- {difference}");
    }
    let unseen: Vec<_> = ways.iter().map(|way| codes(way)).filter(|c| !seen.contains(c)).collect();
    assert!(unseen.is_empty(), "not tried: {unseen:?}");
    assert!(settings > 20 * configurations as usize, "the configurations are too small");
    assert!(differences.is_empty());
}
