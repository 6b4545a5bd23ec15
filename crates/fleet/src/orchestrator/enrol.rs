//! Enrolment of devices and servers, and opening sessions.

use std::sync::PoisonError;

use data_encoding::HEXLOWER_PERMISSIVE;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use super::lines::{join, line_of};
use super::{
    Answer, Kind, Orchestrator, Rejection, Stop, answer, check_forgotten, line_setting, reject,
};
use crate::device::{Attributes, DeviceId, is_within};
use crate::message::{Enrol, Enrolled, OpenSession, ServerAddress, Session};
use crate::removal::Removed;
use crate::request::{FRESH_MS, SESSION_MS, open_session};
use crate::store::{Code, CodeFor, Device, Result, Server, StoreError, Tx};

const TEXT_MAX: usize = 256;
/// The y coordinates of the points of order 1, 2, 4 and 8, also in encodings above the prime.
const SMALL_ORDER: [&str; 7] = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
];
const SERVER_NAME_MAX: usize = 64;
/// Longest code, in bytes.
const CODE_MAX: usize = 128;

/// Returns the SHA-256 of a code without hyphens and spaces, in upper case.
pub(super) fn hash_of(code: &str) -> [u8; 32] {
    let is_part = |letter: &char| !letter.is_whitespace() && *letter != '-';
    let plain: String = code.chars().filter(is_part).collect::<String>().to_ascii_uppercase();
    let digest = ring::digest::digest(&ring::digest::SHA256, plain.as_bytes());
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?.try_into().ok()
}

/// Whether anyone can make valid signatures for a key, because its point has a small order.
fn has_small_order(key: &[u8; 32]) -> bool {
    let mut y = *key;
    // The highest bit is the sign of x.
    y[31] &= 0x7f;
    SMALL_ORDER.contains(&&*HEXLOWER_PERMISSIVE.encode(&y))
}

fn is_signed(public_key: &[u8; 32], text: &str, signature: &[u8; 64]) -> bool {
    UnparsedPublicKey::new(&ED25519, &public_key[..]).verify(text.as_bytes(), signature).is_ok()
}

/// Attributes of a line: the operator's, and where they are empty the device's.
fn merged(operator: &Attributes, device: &Attributes) -> Attributes {
    let text = |first: &String, second: &String| {
        if first.is_empty() { second.clone() } else { first.clone() }
    };
    let rate = |first: u64, second: u64| if first == 0 { second } else { first };
    Attributes {
        model: text(&operator.model, &device.model),
        firmware: text(&operator.firmware, &device.firmware),
        tier_up_bit_per_s: rate(operator.tier_up_bit_per_s, device.tier_up_bit_per_s),
        tier_down_bit_per_s: rate(operator.tier_down_bit_per_s, device.tier_down_bit_per_s),
        segment: text(&operator.segment, &device.segment),
        region: text(&operator.region, &device.region),
        configured: text(&operator.configured, &device.configured),
        measured: text(&operator.measured, &device.measured),
    }
}

/// The attributes of a line that an operator wrote, and the number of changes that its device may
/// still make to the others. Stored for each device as a setting.
#[derive(Debug, Serialize, Deserialize)]
struct LineRecord {
    /// `None` for a device without a stored record.
    operator: Option<Attributes>,
    changes_left: u64,
    /// The day of the latest change, days since 1970.
    day: u64,
}

impl Default for LineRecord {
    fn default() -> Self {
        Self { operator: None, changes_left: CHANGES_MAX, day: 0 }
    }
}

/// Changes that a device may make at once; each day allows one more. A store keeps separate sums
/// for each kind of line, for years.
const CHANGES_MAX: u64 = 4;
const DAY_MS: u64 = 86_400_000;

impl LineRecord {
    fn read(tx: Tx<'_>, device: DeviceId) -> Result<Self> {
        let name = line_setting(device);
        let Some(bytes) = tx.setting(&name)? else { return Ok(Self::default()) };
        serde_json::from_slice(&bytes)
            .map_err(|error| StoreError::broken(name.as_str()).because(error))
    }

    fn write(&self, tx: Tx<'_>, device: DeviceId) -> Result<()> {
        let name = line_setting(device);
        let bytes = serde_json::to_vec(self)
            .map_err(|error| StoreError::broken(name.as_str()).because(error))?;
        tx.put_setting(&name, &bytes)
    }

    /// Uses up one change. Returns false if the device has none left.
    fn change(&mut self, today: u64) -> bool {
        let earned = today.saturating_sub(self.day);
        self.changes_left = self.changes_left.saturating_add(earned).min(CHANGES_MAX);
        // A stored day after tomorrow is from a clock that was ahead and has been set back.
        self.day = if self.day > today + 1 { today } else { self.day.max(today) };
        let may_change = self.changes_left > 0;
        self.changes_left = self.changes_left.saturating_sub(1);
        may_change
    }
}

/// Returns the attributes that an operator wrote with the code of a device.
pub(super) fn of_operator(tx: Tx<'_>, device: DeviceId) -> Result<Attributes> {
    Ok(LineRecord::read(tx, device)?.operator.unwrap_or_default())
}

/// Whether the device claims the segment of its line, and no operator wrote it.
pub(super) fn is_segment_claimed(tx: Tx<'_>, device: &Device) -> Result<bool> {
    if let Some(line) = line_of(tx, device)? {
        return Ok(!line.has_recorded("segment"));
    }
    let operator = LineRecord::read(tx, device.id)?.operator;
    Ok(operator.is_some_and(|operator| operator.segment.is_empty()))
}

/// Returns the attributes of a line at `now_ms`, after its device reported `reported`. Attributes
/// that an operator wrote are the operator's; others stay if the device has used up its changes.
pub(super) fn changed_attributes(
    tx: Tx<'_>,
    now_ms: u64,
    device: &Device,
    reported: Option<&Attributes>,
) -> Result<Attributes> {
    let line = line_of(tx, device)?;
    let recorded =
        |it: &Attributes| line.as_ref().map_or(it.clone(), |line| line.attributes_at(now_ms, it));
    let known = recorded(&device.attributes);
    let updated = reported.map_or(known.clone(), |it| recorded(&updated(&known, it)));
    if updated == known {
        return Ok(known);
    }
    let mut record = LineRecord::read(tx, device.id)?;
    // The attributes of a recorded line replace those of its code.
    let of_code = record.operator.as_ref().filter(|_| line.is_none());
    let changed = of_code.map_or_else(|| updated.clone(), |it| merged(it, &updated));
    if changed == known || !record.change(now_ms / DAY_MS) {
        return Ok(known);
    }
    record.write(tx, device.id)?;
    Ok(changed)
}

/// Attributes after a report: firmware and measurements change, others are only filled in.
fn updated(known: &Attributes, reported: &Attributes) -> Attributes {
    let newer = |known: &String, reported: &String| {
        if reported.is_empty() { known.clone() } else { reported.clone() }
    };
    let filled = merged(known, reported);
    Attributes {
        firmware: newer(&known.firmware, &reported.firmware),
        measured: newer(&known.measured, &reported.measured),
        ..filled
    }
}

pub(super) fn acceptable(attributes: &Attributes) -> Result<(), Rejection> {
    if attributes.is_acceptable() {
        return Ok(());
    }
    reject(Kind::BadRequest, "bad-attributes", Attributes::LIMITS)
}

pub(super) fn acceptable_address(address: &ServerAddress) -> Result<(), Rejection> {
    let ServerAddress { name, address, fingerprint } = address;
    let is_text = |text: &String| is_within(text, TEXT_MAX) && !text.chars().any(char::is_control);
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let digits = fingerprint.strip_prefix("sha256:").unwrap_or_default();
    let checks = [
        (
            [name, address, fingerprint].into_iter().all(is_text),
            "a text is longer than 256 characters or contains control characters",
        ),
        (
            !name.is_empty() && is_within(name, SERVER_NAME_MAX),
            "a server's name has 1 to 64 characters",
        ),
        (port.is_some_and(|port| port > 0), "a server's address is HOST:PORT"),
        (
            digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "a fingerprint is `sha256:` and 64 hexadecimal digits",
        ),
    ];
    match checks.into_iter().find(|(is_valid, _)| !is_valid) {
        Some((_, message)) => reject(Kind::BadRequest, "bad-address", message),
        None => Ok(()),
    }
}

impl Orchestrator {
    /// Enrols a device or a server with a code.
    pub fn enrol(&self, tx: Tx<'_>, now_ms: u64, request: &Enrol) -> Answer<Enrolled> {
        answer(|| {
            acceptable(&request.attributes)?;
            let bad = |message| Rejection::new(Kind::BadRequest, "bad-key", message);
            let key: [u8; 32] =
                hex(&request.public_key).ok_or_else(|| bad("a key is 64 hexadecimal digits"))?;
            if has_small_order(&key) {
                return Err(bad("anyone can sign for this key: make a random one").into());
            }
            let proof: [u8; 64] =
                hex(&request.proof).ok_or_else(|| bad("a proof is 128 hexadecimal digits"))?;
            if request.code.len() > CODE_MAX || !is_signed(&key, &request.code, &proof) {
                let message = "the code is not signed by this key";
                return reject(Kind::Unauthorized, "bad-proof", message);
            }
            let device = DeviceId::of_key(&key);
            let code = usable(tx.code(&hash_of(&request.code))?, device, now_ms)?;
            let is_again = code.used_by.is_some();
            let enrolled_ms = match (code.makes, &request.server) {
                (CodeFor::Device, None) => {
                    Some(enrol_device(tx, now_ms, key, &code, request, is_again)?)
                }
                (CodeFor::Server, Some(address)) => {
                    enrol_server(tx, key, address, is_again)?;
                    None
                }
                (CodeFor::Device, Some(_)) => {
                    let message = "this code enrols a device, not a server";
                    return reject(Kind::Forbidden, "for-a-device", message);
                }
                (CodeFor::Server, None) => {
                    let message = "this code enrols a server, not a device";
                    return reject(Kind::Forbidden, "for-a-server", message);
                }
            };
            if !is_again {
                tx.put_code(&Code { used_by: Some(device), ..code })?;
            }
            let lease_key = data_encoding::HEXLOWER.encode(&self.lease_key());
            Ok(Enrolled { device, lease_key, enrolled_ms })
        })
    }

    /// Opens a session for a device or a server that proves its key.
    pub fn open_session(&self, tx: Tx<'_>, now_ms: u64, request: &OpenSession) -> Answer<Session> {
        answer(|| {
            if now_ms.abs_diff(request.at_ms) > FRESH_MS {
                let message = format!("your clock is over five minutes off: the time is {now_ms}");
                return reject(Kind::Unauthorized, "stale", message);
            }
            let Some(sender) = sender(tx, request.device)? else {
                check_forgotten(tx, request.device)?;
                let message = "no such device or server";
                return reject(Kind::Unauthorized, "not-enrolled", message);
            };
            let text = OpenSession::signed(request.device, request.at_ms);
            let signature = hex(&request.signature);
            if !signature.is_some_and(|signature| is_signed(&sender.key, &text, &signature)) {
                let message = "not signed by the key that enrolled";
                return reject(Kind::Unauthorized, "bad-signature", message);
            }
            // Only the owner of the key learns of the removal.
            if let Some(removed) = sender.removed {
                return Err(Rejection::gone(removed).into());
            }
            if !self.is_later(request) {
                let message = "a request of this time or a later one was answered before";
                return reject(Kind::Unauthorized, "stale", message);
            }
            let expires_ms = now_ms + SESSION_MS;
            let opened = open_session(&self.fleet_secret, request.device, expires_ms);
            let key = data_encoding::HEXLOWER.encode(&opened.key);
            Ok(Session { session: opened.session, key, expires_ms, now_ms })
        })
    }
}

impl Orchestrator {
    /// Whether a request for a session is later than those of its sender that were answered, so that
    /// whoever saw one learns no key by sending it again.
    fn is_later(&self, request: &OpenSession) -> bool {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let last_ms = opened.entry(request.device).or_default();
        let is_later = request.at_ms > *last_ms;
        *last_ms = request.at_ms.max(*last_ms);
        is_later
    }
}

fn enrol_device(
    tx: Tx<'_>,
    now_ms: u64,
    public_key: [u8; 32],
    code: &Code,
    request: &Enrol,
    is_again: bool,
) -> Result<u64, Stop> {
    let id = DeviceId::of_key(&public_key);
    let mut attributes = merged(&code.attributes, &request.attributes);
    let mut line = tx.lines(&[&code.line])?.pop().flatten();
    match &mut line {
        Some(line) => {
            line.fill(&code.attributes);
            attributes = line.attributes_at(now_ms, &attributes);
        }
        None if code.line.is_empty() => {}
        None => return reject(Kind::Forbidden, "code-unknown", "no such line any more"),
    }
    if tx.servers()?.iter().any(|server| server.device == id) {
        return reject(Kind::Conflict, "key-taken", "this key is of a server");
    }
    let mut device = match tx.device(id)? {
        // A used code does not enrol a removed device again.
        Some(device) if device.is_removed && is_again => {
            return Err(Rejection::gone(device.enrolment()).into());
        }
        Some(device) if is_again => return Ok(device.enrolled_ms),
        // A removal before this instant does not end this enrolment.
        Some(device) => Device {
            attributes,
            enrolled_ms: now_ms,
            is_removed: false,
            is_retired: false,
            ..device
        },
        None => Device::new(id, public_key, attributes, now_ms),
    };
    let mut record = LineRecord::read(tx, id)?;
    if record.operator.as_ref() != Some(&code.attributes) {
        record.operator = Some(code.attributes.clone());
        record.write(tx, id)?;
    }
    if let Some(line) = &mut line {
        join(tx, line, &mut device)?;
    }
    tx.put_device(&device)?;
    Ok(device.enrolled_ms)
}

struct Sender {
    key: [u8; 32],
    removed: Option<Removed>,
}

fn sender(tx: Tx<'_>, id: DeviceId) -> Result<Option<Sender>, Stop> {
    if let Some(device) = tx.device(id)? {
        let removed = device.is_removed.then(|| device.enrolment());
        return Ok(Some(Sender { key: device.public_key, removed }));
    }
    let server = tx.servers()?.into_iter().find(|server| server.device == id);
    Ok(server.map(|server| Sender {
        key: server.public_key,
        removed: server.is_removed.then(|| server.enrolment()),
    }))
}

/// Returns the code if this key may use it.
fn usable(code: Option<Code>, by: DeviceId, now_ms: u64) -> Result<Code, Rejection> {
    let denied = |name, message: &str| reject(Kind::Forbidden, name, message);
    let Some(code) = code else { return denied("code-unknown", "no such code") };
    if code.used_by == Some(by) {
        return Ok(code);
    }
    if code.used_by.is_some() {
        return denied("code-used", "the code was used by another key");
    }
    if now_ms >= code.expires_ms {
        return denied("code-expired", "the code is not valid any more");
    }
    Ok(code)
}

fn enrol_server(
    tx: Tx<'_>,
    public_key: [u8; 32],
    address: &ServerAddress,
    is_again: bool,
) -> Result<(), Stop> {
    acceptable_address(address)?;
    let device = DeviceId::of_key(&public_key);
    let servers = tx.servers()?;
    if tx.device(device)?.is_some() {
        return reject(Kind::Conflict, "key-taken", "this key is of a device");
    }
    let old = servers.iter().find(|server| server.device == device);
    if old.is_some_and(|old| old.address.name != address.name) {
        let message = "this key belongs to a server with another name";
        return reject(Kind::Conflict, "another-name", message);
    }
    let of_name = servers.iter().find(|server| server.address.name == address.name);
    let server = match of_name {
        Some(server) if server.device == device && is_again => return Ok(()),
        // A new key of the same server, as after a new disk: its reservations stay.
        Some(server) if server.device == device || server.is_removed => Server {
            device,
            public_key,
            address: address.clone(),
            is_removed: false,
            heard_ms: 0,
            ..server.clone()
        },
        Some(_) => {
            let message = "there is a server of that name; remove it first";
            return reject(Kind::Conflict, "name-taken", message);
        }
        None => Server::new(address.clone(), device, public_key),
    };
    Ok(tx.put_server(&server)?)
}
