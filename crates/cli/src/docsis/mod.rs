//! `underload docsis`: decodes, encodes and checks cable modem configuration files.

mod files;
mod picture;
mod recommend;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use underload_docsis::check::{Finding, Rule, Severity, check, check_with_classes};
use underload_docsis::classes::CmtsSupport;
use underload_docsis::mic::Secret;
use underload_docsis::modem::Modem;
use underload_docsis::qos::{Direction, ServiceFlow};
use underload_docsis::{Config, Limits, text};
use underload_terminal::console::{count, note, print, print_as, warning, write_file};
use underload_terminal::exit::{OrBadInput, refuse};
use underload_terminal::help::choices;

use crate::replay::output::refuse_input;

/// Longest accepted file with the secret.
const SECRET_BYTES_MAX: u64 = 4096;

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
    /// Encodes text as a configuration file, with MICs, end marker and pads.
    Encode(Encode),
    /// Checks a configuration file: structure, MICs, and settings that contradict each other.
    Check(Check),
    /// Prints the buffer that a modem would give each upstream flow, or that it rejects the file.
    Modem(Try),
    /// Recommends buffer or AQM settings for an upstream or downstream, with their predicted effect.
    Recommend(recommend::Arguments),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// TOML, which decodes to the same bytes.
    Toml,
    /// The `Main { ... }` form of the open `docsis` encoder, without MICs and pads.
    Main,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload docsis decode cm.bin
  underload docsis decode cm.bin --form main --out cm.txt
  underload docsis decode cm.bin --json | jq '.tlvs[] | select(.name == \"UpstreamServiceFlow\")'")]
struct Decode {
    /// The configuration file to read.
    file: PathBuf,
    /// Form of the text.
    #[arg(long, value_enum, default_value_t = Form::Toml)]
    form: Form,
    /// Prints one JSON document instead, with the offset of every setting.
    #[arg(long, conflicts_with = "form")]
    json: bool,
    /// Writes to this file instead of the terminal.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Decoded text that was not changed since needs no secret: it contains the MICs.

Examples:
  underload docsis encode cm.toml --out cm.bin --secret-file secret"
)]
struct Encode {
    /// The text, in either form.
    file: PathBuf,
    /// The configuration file to write.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// A file with the secret of the CMTS MIC.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Writes the file even with errors, or without a CMTS MIC if the secret is missing.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 no errors (even with warnings and notes), 1 errors.
Without --secret-file, the CMTS MIC is not checked.

Examples:
  underload docsis check cm.bin --secret-file secret
  underload docsis check --rules")]
struct Check {
    /// The configuration file to read.
    #[arg(required_unless_present = "rules")]
    file: Option<PathBuf>,
    /// A file with the secret of the CMTS MIC.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// A text whose service flows are the CMTS's service classes, by ServiceClassName.
    #[arg(long, value_name = "FILE")]
    service_classes: Option<PathBuf>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
    /// Lists the rules instead.
    #[arg(long)]
    rules: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 every flow gets a buffer, 1 a flow is rejected or no flow exists.

Examples:
  underload docsis modem cm.bin
  underload docsis modem cm.bin --block 1KiB --limit 24KiB
  underload docsis modem cm.bin --cmts minimal --service-classes classes.toml"
)]
struct Try {
    /// The configuration file to read.
    file: PathBuf,
    /// Granularity of the modem's buffers, such as 1KiB.
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = files::size)]
    block: u64,
    /// Largest buffer that the modem has for a flow.
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = files::size)]
    limit: u64,
    /// A text whose service flows are the CMTS's service classes, by ServiceClassName.
    #[arg(long, value_name = "FILE")]
    service_classes: Option<PathBuf>,
    /// How far the CMTS supports Buffer Control of modems.
    #[arg(long, value_parser = choices(CMTS), default_value = CmtsSupport::Dynamic.name())]
    cmts: CmtsSupport,
    /// The modem's software predates Buffer Control, so the modem ignores it.
    #[arg(long, conflicts_with = "pcmm")]
    old_modem: bool,
    /// A text with the service flows that PCMM creates, or changes by their references; needs a CMTS
    /// with `dynamic` support.
    #[arg(long, value_name = "FILE")]
    pcmm: Option<PathBuf>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// The levels of CM-GL-Buffer-V01, section 6.3.1.
const CMTS: [(CmtsSupport, &str, &str); 4] = [
    (CmtsSupport::None, CmtsSupport::None.name(), "Buffer Control does not reach the modem"),
    (CmtsSupport::Minimal, CmtsSupport::Minimal.name(), "Buffer Control of the file reaches it"),
    (CmtsSupport::Scalable, CmtsSupport::Scalable.name(), "That of service classes, too"),
    (CmtsSupport::Dynamic, CmtsSupport::Dynamic.name(), "That of flows of PCMM, too"),
];

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
        if let Some(out) = &self.out {
            refuse_input(out, &self.file)?;
        }
        let bytes = files::read(&self.file, Limits::default().bytes)?;
        let (config, defects) = Config::decode_lenient(&bytes, &Limits::default())
            .with_context(|| self.file.display().to_string())
            .or_bad_input()?;
        for defect in &defects {
            warning!("{}: {defect}", self.file.display());
        }
        if !defects.is_empty() {
            refuse!("{}: {}", self.file.display(), count(defects.len(), "defect"));
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
            Some(path) => write_file(path, text.as_bytes()),
            None => print(&text),
        }
    }
}

impl Encode {
    fn run(&self) -> anyhow::Result<()> {
        refuse_input(&self.out, &self.file)?;
        let name = self.file.display().to_string();
        let text = files::read_text(&self.file)?;
        let mut config = text::read(&text).with_context(|| name.clone()).or_bad_input()?;
        let secret = secret(self.secret_file.as_deref())?;
        self.seal(&mut config, secret.as_ref()).with_context(|| name.clone()).or_bad_input()?;
        let bytes = config.encode()?;
        let findings = check(&bytes, secret.as_ref());
        let errors: Vec<_> = findings.iter().filter(|f| f.severity == Severity::Error).collect();
        for error in &errors {
            warning!("{error}");
        }
        if !errors.is_empty() && !self.force {
            let errors = count(errors.len(), "error");
            refuse!("{name}: {errors}; nothing was written; --force writes the file");
        }
        write_file(&self.out, &bytes)?;
        note!("{}: {} bytes", self.out.display(), bytes.len());
        Ok(())
    }

    /// Computes the MICs. Without a secret the MICs of the text stay, if they are correct.
    fn seal(&self, config: &mut Config, secret: Option<&Secret>) -> anyhow::Result<()> {
        let is_correct = config.has_correct_cm_mic();
        if secret.is_none() && is_correct == Some(true) && config.has_cmts_mic() {
            return Ok(());
        }
        if secret.is_none() && !self.force {
            let reason = match is_correct {
                Some(false) => "the settings were changed, so the CMTS MIC must be computed again",
                _ => "the CMTS MIC must be computed",
            };
            bail!(
                "{reason}, which needs the secret: give --secret-file; \
                 --force writes the file without a CMTS MIC"
            )
        }
        Ok(config.seal(secret)?)
    }
}

impl Check {
    fn run(&self) -> anyhow::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| !self.rules) else { return rules() };
        let bytes = files::read(file, Limits::default().bytes)?;
        let secret = secret(self.secret_file.as_deref())?;
        let classes = text_of_flows(self.service_classes.as_deref())?;
        let findings = check_with_classes(&bytes, secret.as_ref(), &classes);
        let lines = || findings.iter().map(|finding| finding.to_string() + "\n").collect();
        print_as(self.json, &findings, lines)?;
        let number =
            |severity| findings.iter().filter(|f: &&Finding| f.severity == severity).count();
        let counts = [Severity::Error, Severity::Warning, Severity::Note]
            .map(|severity| count(number(severity), &severity.to_string()))
            .join(", ");
        let summary = format!("{}: {counts}", file.display());
        if number(Severity::Error) > 0 {
            bail!(summary);
        }
        note!("{summary}");
        Ok(())
    }
}

/// Reads a text of service classes or flows; returns an empty configuration without a file.
fn text_of_flows(file: Option<&Path>) -> anyhow::Result<Config> {
    let Some(path) = file else { return Ok(Config::default()) };
    let flows = text::read(&files::read_text(path)?);
    flows.with_context(|| path.display().to_string()).or_bad_input()
}

fn rules() -> anyhow::Result<()> {
    let line = |rule: &Rule| format!("{rule} {:<8}{}\n", rule.severity(), rule.summary());
    print(&Rule::ALL.iter().map(line).collect::<String>())
}

impl Try {
    fn run(&self) -> anyhow::Result<()> {
        if self.pcmm.is_some() && self.cmts != CmtsSupport::Dynamic {
            refuse!("--pcmm: expected --cmts dynamic; such a CMTS does not support PCMM");
        }
        let bytes = files::read(&self.file, Limits::default().bytes)?;
        let config = Config::decode(&bytes)
            .with_context(|| self.file.display().to_string())
            .or_bad_input()?;
        let [classes, changes] =
            [&self.service_classes, &self.pcmm].map(|file| text_of_flows(file.as_deref()));
        let (classes, changes) = (classes?, changes?);
        let controlled = |support: CmtsSupport| {
            let flows = support.registered(&config, &classes, &changes);
            let flows = flows.settings_of_type(Direction::Upstream.flow_code());
            flows.filter_map(ServiceFlow::from_tlv).filter(|flow| flow.buffer.is_some()).count()
        };
        // A setting that the modem ignores has the effect of one that does not reach it.
        let support = if self.old_modem { CmtsSupport::None } else { self.cmts };
        let lost = controlled(CmtsSupport::Dynamic) - controlled(support);
        if lost > 0 {
            let (flows, name) = (count(lost, "flow"), support.name());
            if self.old_modem {
                note!("Buffer Control of {flows} has no effect: the modem's software is too old");
            } else {
                note!(
                    "Buffer Control of {flows} does not reach the modem: the CMTS's support is {name}"
                );
            }
        }
        let config = support.registered(&config, &classes, &changes);
        let modem = Modem::new(self.block, self.limit).or_bad_input()?;
        let buffers = modem.buffers(&config);
        let head = (!buffers.is_empty()).then(|| FLOW_HEAD.to_owned());
        let lines = head.into_iter().chain(buffers.iter().map(ToString::to_string));
        print_as(self.json, &buffers, || lines.map(|line| line + "\n").collect())?;
        if buffers.is_empty() {
            bail!("{}: no upstream service flow (24) that could get a buffer", self.file.display());
        }
        let rejected = buffers.iter().filter(|buffer| buffer.rejected.is_some()).count();
        if rejected > 0 {
            let flows = count(rejected, "flow");
            bail!("{}: the modem rejects the file ({flows})", self.file.display());
        }
        Ok(())
    }
}

/// The head of the flows' rows.
const FLOW_HEAD: &str = "upstream flow   buffer (bytes)   drains in (ms)";

/// Reads the secret; `None` without a file.
fn secret(file: Option<&Path>) -> anyhow::Result<Option<Secret>> {
    let Some(path) = file else { return Ok(None) };
    let bytes = underload_disk::read_private(path, SECRET_BYTES_MAX);
    let secret = Secret::new(&bytes.with_context(|| path.display().to_string()).or_bad_input()?);
    if secret.is_empty() {
        refuse!("{}: the secret is empty", path.display());
    }
    Ok(Some(secret))
}
