//! `underload docsis`: cable modem configuration files, read, written, checked and tried out.

mod files;
mod recommend;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use underload_docsis::check::{Finding, Rule, Severity, check};
use underload_docsis::mic::Secret;
use underload_docsis::modem::{Modem, drain_time_us};
use underload_docsis::qos::{Direction, ServiceFlow};
use underload_docsis::{Config, Limits, text};
use underload_terminal::console::{count, note, warning};
use underload_terminal::exit::OrBadInput;

/// Bytes of a file with that secret at most.
const SECRET_BYTES_MAX: u64 = 4096;
/// Where the secret of the CMTS MIC comes from if no file is named.
const SECRET_VARIABLE: &str = "UNDERLOAD_DOCSIS_SECRET";

/// The command line of `underload docsis`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload docsis decode cm.bin
  underload docsis check cm.bin --secret-file secret
  underload docsis recommend --rate 10mbit --aqm docsis-pie")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows a configuration file as text, every setting with its name, unit and meaning.
    Decode(Decode),
    /// Makes a configuration file from text: settings, MICs, end marker and pads.
    Encode(Encode),
    /// Checks a configuration file: structure, MICs, and settings that contradict each other.
    Check(Check),
    /// Tells which buffer a modem would give each upstream flow, or that it rejects the file.
    Modem(Try),
    /// Recommends buffer or AQM settings for an upstream, with their predicted effect.
    Recommend(recommend::Arguments),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// TOML, which carries every byte.
    Toml,
    /// The `Main { ... }` form of the open `docsis` encoder, without MICs and pads.
    Main,
}

/// The command line of `underload docsis decode`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload docsis decode cm.bin
  underload docsis decode cm.bin --form main --out cm.txt
  underload docsis decode cm.bin --json | jq '.tlvs[] | select(.name == \"UpstreamServiceFlow\")'")]
struct Decode {
    /// The configuration file.
    file: PathBuf,
    /// The text form.
    #[arg(long, value_enum, default_value_t = Form::Toml)]
    form: Form,
    /// Prints one JSON document instead, with the offset of every setting.
    #[arg(long, conflicts_with = "form")]
    json: bool,
    /// Reads on past duplicates and values that do not fit, which stay as bytes.
    #[arg(long)]
    lenient: bool,
    /// Writes to this file instead of the terminal.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The command line of `underload docsis encode`.
#[derive(Debug, Args)]
#[command(after_help = "The secret that the CMTS shares comes from --secret-file, or else from the
environment variable UNDERLOAD_DOCSIS_SECRET; it is never an argument. Text that still has the
MICs of the file it came from needs no secret as long as nothing was changed.

Examples:
  underload docsis encode cm.toml --out cm.bin --secret-file secret
  UNDERLOAD_DOCSIS_SECRET=... underload docsis encode cm.txt --out cm.bin")]
struct Encode {
    /// The text, in either form.
    file: PathBuf,
    /// The configuration file to write.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// A file that holds the secret of the CMTS MIC.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Writes the MICs that stand in the text, whether they fit or not.
    #[arg(long)]
    keep_mics: bool,
    /// Writes the file though it breaks rules, or though there is no secret for its CMTS MIC.
    #[arg(long)]
    force: bool,
}

/// The command line of `underload docsis check`.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 no errors (warnings and notes may be there), 1 errors.
Without a secret, from --secret-file or UNDERLOAD_DOCSIS_SECRET, the CMTS MIC is not checked.

Examples:
  underload docsis check cm.bin --secret-file secret
  underload docsis check --rules")]
struct Check {
    /// The configuration file.
    #[arg(required_unless_present = "rules")]
    file: Option<PathBuf>,
    /// A file that holds the secret of the CMTS MIC.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
    /// Lists the rules instead.
    #[arg(long)]
    rules: bool,
}

/// The command line of `underload docsis modem`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 every flow gets a buffer, 1 a flow gets none or there is no flow.

Examples:
  underload docsis modem cm.bin
  underload docsis modem cm.bin --block 1KiB --limit 24KiB"
)]
struct Try {
    /// The configuration file.
    file: PathBuf,
    /// Granularity of the modem's buffers.
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = files::size)]
    block: u64,
    /// All the buffer that the modem has for a flow.
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = files::size)]
    limit: u64,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// Does what was asked for.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.action {
        Action::Decode(decode) => decode.run(),
        Action::Encode(encode) => encode.run(),
        Action::Check(check) => check.run(),
        Action::Modem(modem) => modem.run(),
        Action::Recommend(arguments) => recommend::run(arguments),
    }
}

impl Decode {
    fn run(&self) -> anyhow::Result<()> {
        let bytes = files::read(&self.file, Limits::default().bytes)?;
        let (config, defects) = Config::decode_lenient(&bytes, &Limits::default())
            .with_context(|| self.file.display().to_string())
            .or_bad_input()?;
        for defect in &defects {
            warning!("{}: {defect}", self.file.display());
        }
        if !defects.is_empty() && !self.lenient {
            let message =
                format!("{}; --lenient reads on past them", count(defects.len(), "defect"));
            return Err(anyhow!("{}: {message}", self.file.display())).or_bad_input();
        }
        let text = if self.json {
            serde_json::to_string_pretty(&config.describe())? + "\n"
        } else {
            match self.form {
                Form::Toml => text::to_toml(&config),
                Form::Main => text::to_main(&config),
            }
        };
        match &self.out {
            Some(path) => files::write(path, text.as_bytes()),
            None => print(&text),
        }
    }
}

impl Encode {
    fn run(&self) -> anyhow::Result<()> {
        let name = self.file.display().to_string();
        let text = files::read_text(&self.file)?;
        let mut config = text::read(&text).with_context(|| name.clone()).or_bad_input()?;
        let secret = secret(self.secret_file.as_deref())?;
        if !self.keep_mics {
            self.seal(&mut config, secret.as_ref()).with_context(|| name.clone()).or_bad_input()?;
        }
        let bytes = config.encode()?;
        let findings = check(&bytes, secret.as_ref());
        let errors: Vec<_> = findings.iter().filter(|f| f.severity == Severity::Error).collect();
        for error in &errors {
            warning!("{error}");
        }
        if !errors.is_empty() && !self.force {
            let message = {
                let errors = count(errors.len(), "error");
                format!("{errors}; nothing written; --force writes it")
            };
            return Err(anyhow!("{name}: {message}")).or_bad_input();
        }
        files::write(&self.out, &bytes)?;
        note!("{}: {} bytes", self.out.display(), bytes.len());
        Ok(())
    }

    /// Makes the MICs, unless those in the text still fit and there is no secret to make others.
    fn seal(&self, config: &mut Config, secret: Option<&Secret>) -> anyhow::Result<()> {
        let fits = config.has_correct_cm_mic();
        match secret {
            None if fits == Some(true) && config.has_cmts_mic() => Ok(()),
            None if self.force => Ok(config.seal(None)?),
            None => {
                let why = match fits {
                    Some(false) => "the settings were changed since the MICs were made",
                    _ => "the CMTS MIC has to be made",
                };
                bail!(
                    "{why}, which takes the secret: give --secret-file or {SECRET_VARIABLE}; \
                     --force writes the file without a CMTS MIC"
                )
            }
            secret => Ok(config.seal(secret)?),
        }
    }
}

impl Check {
    fn run(&self) -> anyhow::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| !self.rules) else { return rules() };
        let bytes = files::read(file, Limits::default().bytes)?;
        let secret = secret(self.secret_file.as_deref())?;
        let findings = check(&bytes, secret.as_ref());
        if self.json {
            print(&(serde_json::to_string_pretty(&findings)? + "\n"))?;
        } else {
            let mut text = String::new();
            for finding in &findings {
                writeln!(text, "{finding}")?;
            }
            print(&text)?;
        }
        let number =
            |severity| findings.iter().filter(|f: &&Finding| f.severity == severity).count();
        let (errors, warnings, notes) =
            (number(Severity::Error), number(Severity::Warning), number(Severity::Note));
        let told = [(errors, "error"), (warnings, "warning"), (notes, "note")];
        let told = told.map(|(number, word)| count(number, word)).join(", ");
        let summary = format!("{}: {told}", file.display());
        if errors > 0 {
            bail!(summary);
        }
        note!("{summary}");
        Ok(())
    }
}

fn rules() -> anyhow::Result<()> {
    let mut text = String::new();
    for rule in Rule::ALL {
        writeln!(text, "{rule} {:<8}{}", rule.severity(), rule.summary())?;
    }
    print(&text)
}

/// How a modem treats one service flow.
#[derive(Debug, Serialize)]
struct Outcome {
    /// `None`: the flow has none, so it is rejected.
    reference: Option<u16>,
    buffer_bytes: Option<u64>,
    drain_ms: Option<f64>,
    rejected: Option<String>,
}

impl Try {
    fn run(&self) -> anyhow::Result<()> {
        let bytes = files::read(&self.file, Limits::default().bytes)?;
        let config = Config::decode(&bytes)
            .with_context(|| self.file.display().to_string())
            .or_bad_input()?;
        let modem = Modem::new(self.block, self.limit).or_bad_input()?;
        let default_ms = config.default_target_ms();
        let flows = config.of(Direction::Upstream.flow_code()).map(ServiceFlow::from_tlv);
        let outcomes: Vec<Outcome> = flows
            .map(|flow| flow.map_or_else(nameless, |flow| outcome(&modem, &flow, default_ms)))
            .collect();
        if self.json {
            print(&(serde_json::to_string_pretty(&outcomes)? + "\n"))?;
        } else if !outcomes.is_empty() {
            print(&table(&outcomes))?;
        }
        if outcomes.is_empty() {
            bail!("{}: no upstream service flow (24) that could get a buffer", self.file.display());
        }
        let rejected = outcomes.iter().filter(|outcome| outcome.rejected.is_some()).count();
        if rejected > 0 {
            let flows = count(rejected, "flow");
            bail!("{}: the modem rejects the file ({flows})", self.file.display());
        }
        Ok(())
    }
}

fn nameless() -> Outcome {
    let rejected = Some("ServiceFlowReference (1) is missing".to_owned());
    Outcome { reference: None, buffer_bytes: None, drain_ms: None, rejected }
}

fn outcome(modem: &Modem, flow: &ServiceFlow, default_ms: Option<u16>) -> Outcome {
    let selected = modem.select(flow, default_ms);
    let buffer_bytes = selected.ok();
    let drain_us = buffer_bytes
        .zip(flow.rates.drain_bit_per_s())
        .and_then(|(b, bit_per_s)| drain_time_us(b, bit_per_s));
    Outcome {
        reference: Some(flow.reference),
        buffer_bytes,
        drain_ms: drain_us.map(|us| us as f64 / 1000.0),
        rejected: selected.err().map(|rejection| rejection.to_string()),
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from("upstream flow   buffer (bytes)   drains in (ms)\n");
    for outcome in outcomes {
        let reference = outcome.reference.map_or("-".to_owned(), |number| number.to_string());
        let _ = match (&outcome.rejected, outcome.buffer_bytes, outcome.drain_ms) {
            (Some(why), ..) => writeln!(text, "{reference:>13}   rejected: {why}"),
            (None, Some(bytes), Some(ms)) => {
                writeln!(text, "{reference:>13}   {bytes:14}   {ms:14.1}")
            }
            (None, bytes, _) => {
                writeln!(text, "{reference:>13}   {:14}   no rate limit", bytes.unwrap_or_default())
            }
        };
    }
    text
}

fn print(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// The secret from the named file, or else from the environment.
fn secret(file: Option<&Path>) -> anyhow::Result<Option<Secret>> {
    let (bytes, source) = match (file, std::env::var_os(SECRET_VARIABLE)) {
        (Some(path), _) => {
            let shown = path.display().to_string();
            let bytes = underload_disk::read_private(path, SECRET_BYTES_MAX);
            (bytes.with_context(|| shown.clone()).or_bad_input()?, shown)
        }
        (None, Some(value)) => (value.into_encoded_bytes(), SECRET_VARIABLE.to_owned()),
        (None, None) => return Ok(None),
    };
    let secret = Secret::new(&bytes);
    if secret.is_empty() {
        return Err(anyhow!("{source}: the secret is empty")).or_bad_input();
    }
    Ok(Some(secret))
}
