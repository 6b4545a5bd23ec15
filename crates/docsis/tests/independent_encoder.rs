//! Our bytes against those of the independent encoder `docsis`, over generated configurations.
//!
//! Run by hand, with the program on the path or named by `DOCSIS_ENCODER`:
//!
//! ```sh
//! cargo test -p underload-docsis --test independent_encoder -- --ignored --nocapture
//! ```
//!
//! Left out of the comparison, because the two differ by design: an extended CMTS MIC without an
//! explicit digest (that encoder computes type 7 the old way only) and type 59 (which it does not
//! count into the CMTS MIC).

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use underload_docsis::schema::{self, Field, Kind, Scope};
use underload_docsis::{Config, Tlv, text};

const CONFIGURATIONS: u64 = 1000;
/// Its decoder prints type 94 under the name of type 93: such files are compared encoded only.
const MISNAMED: u8 = 94;

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

    /// A number from `low` to `high`; the ends come up often.
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

/// Settings for which that encoder allows less than the specification, and what it allows.
const NARROWER: [(&str, u32, u32); 8] = [
    ("DownstreamFrequency", 88_000_000, 1_008_000_000),
    ("CaReceive", 88_000_000, 860_000_000),
    ("MaxRateDown", 0, 1_334_880_000),
    ("MaxRateUp", 0, 183_900_000),
    ("GuaranteedUp", 0, 183_900_000),
    ("VlanID", 0, 4096),
    ("MatchingbyApplicationId", 0, 1),
    ("SNMPv3AccessViewMask", 1, 2),
];

/// A few settings of an aggregate, each at most once unless it repeats, short enough for it.
fn settings(random: &mut Random, scope: Scope, most: u64, depth: usize) -> Vec<Tlv> {
    let mut tlvs: Vec<Tlv> = Vec::new();
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
        kind => {
            let narrower = NARROWER.iter().find(|(name, ..)| *name == field.main_name);
            let value = match (narrower, kind) {
                (Some((_, low, high)), Kind::Number { width, .. }) => {
                    leaf(random, &Kind::Number { width: *width, low: *low, high: *high })
                }
                (Some((_, low, high)), _) => {
                    leaf(random, &Kind::Hex { low: *low as usize, high: *high as usize })
                }
                (None, kind) => leaf(random, kind),
            };
            Tlv::bytes(field.code, value)
        }
    };
    let whole = Config::new([Tlv::nested(1, [tlv.clone()])]);
    whole.encode().is_ok_and(|bytes| bytes.len() <= 250).then_some(tlv)
}

fn configuration(seed: u64) -> Config {
    let mut random = Random(seed);
    let mut tlvs = vec![Tlv::u8(3, 1)];
    tlvs.extend(settings(&mut random, schema::TOP, 12, 1));
    for code in [24, 25] {
        let flow = schema::find(schema::TOP, code).expect("service flows have a schema");
        tlvs.extend(setting(&mut random, flow, 1));
    }
    tlvs.extend(settings(&mut random, schema::TOP, 12, 1));
    tlvs.retain(|tlv| !matches!(tlv.code, 6 | 7 | 59));
    let mut config = Config::new(tlvs);
    config.seal(Some(&common::secret())).expect("a generated file can be sealed");
    config
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

#[test]
#[ignore = "needs the independent encoder `docsis`; run by hand"]
fn generated_files_are_the_same_bytes_in_both_directions() {
    let program = encoder();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("key"), "bufferbloat\n").unwrap();
    let (mut encoded, mut decoded, mut decodable, mut settings, mut bytes_total) = (0, 0, 0, 0, 0);
    let mut differences = Vec::new();
    for seed in 0..CONFIGURATIONS {
        let config = configuration(seed);
        let bytes = config.encode().unwrap();
        settings += config.walk().len();
        bytes_total += bytes.len();
        let main = text::to_main(&config);
        std::fs::write(path("in.txt"), &main).unwrap();
        let _ = std::fs::remove_file(path("out.bin"));
        run(&program, &[&path("in.txt"), &path("key"), &path("out.bin")], "-e");
        match std::fs::read(path("out.bin")) {
            Ok(theirs) if theirs == bytes => encoded += 1,
            Ok(_) => differences.push(format!("{seed}: encoded differently\n{main}")),
            Err(_) => differences.push(format!("{seed}: refused\n{main}")),
        }

        if config.has(MISNAMED) {
            continue;
        }
        decodable += 1;
        std::fs::write(path("ours.bin"), &bytes).unwrap();
        let theirs = run(&program, &[&path("ours.bin")], "-d");
        let read = text::from_main(&theirs).map(|mut config| {
            config.seal(Some(&common::secret())).unwrap();
            config.encode().unwrap()
        });
        match read {
            Ok(read) if read == bytes => decoded += 1,
            Ok(read) => {
                let at = read.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
                let place = config.walk().into_iter().rev().find(|node| node.offset <= at);
                let path = place.map(|node| node.path.to_string());
                differences.push(format!("{seed}: their text differs at {path:?}\n{theirs}"));
            }
            Err(error) => differences.push(format!("{seed}: their text: {error}\n{theirs}")),
        }
    }
    eprintln!(
        "{CONFIGURATIONS} configurations, {settings} settings, {bytes_total} bytes: {encoded} \
         encoded alike, {decoded} of {decodable} decoded alike, {} differences",
        differences.len()
    );
    for difference in differences.iter().take(20) {
        eprintln!("---- {difference}");
    }
    assert!(settings > 20 * CONFIGURATIONS as usize, "the configurations are too small");
    assert!(differences.is_empty());
}
