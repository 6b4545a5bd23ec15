//! Who becomes a device or a server, and proves to be one.

use data_encoding::HEXLOWER_PERMISSIVE;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use super::{Kind, Orchestrator, Rejection, Stop, line_setting};
use crate::device::{Attributes, DeviceId, is_within};
use crate::message::{Enrol, Enrolled, OpenSession, ServerAddress, Session};
use crate::removal::Removed;
use crate::request::{FRESH_MS, SESSION_MS, open_session};
use crate::store::{Code, CodeFor, Device, Server, StoreError, Transaction};

const TEXT_MAX: usize = 256;
const SERVER_NAME_MAX: usize = 64;

/// SHA-256 of a code as people may write it: hyphens, spaces and case do not matter.
pub(super) fn hash_of(code: &str) -> [u8; 32] {
    let is_part = |letter: &char| !letter.is_whitespace() && *letter != '-';
    let plain: String = code.chars().filter(is_part).collect::<String>().to_ascii_uppercase();
    let digest = ring::digest::digest(&ring::digest::SHA256, plain.as_bytes());
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

/// Bytes of a code at most.
const CODE_MAX: usize = 128;

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?.try_into().ok()
}

fn is_signed(public_key: &[u8; 32], text: &str, signature: &[u8; 64]) -> bool {
    UnparsedPublicKey::new(&ED25519, &public_key[..]).verify(text.as_bytes(), signature).is_ok()
}

/// What is known of a line: what the operator said, and for the rest what the device says.
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
/// still make to the others. Each device that enrols has one, as a setting of the store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
struct LineRecord {
    /// `None` if the device enrolled before this was stored.
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

/// Changes that a device may make at once; one more with each day. A store keeps separate sums for
/// each kind of line, for years.
const CHANGES_MAX: u64 = 4;
const DAY_MS: u64 = 86_400_000;

impl LineRecord {
    fn read(tx: &mut dyn Transaction, device: DeviceId) -> Result<Self, StoreError> {
        let name = line_setting(device);
        let Some(bytes) = tx.setting(&name)? else { return Ok(Self::default()) };
        serde_json::from_slice(&bytes)
            .map_err(|error| StoreError::broken(name.as_str()).because(error))
    }

    fn write(&self, tx: &mut dyn Transaction, device: DeviceId) -> Result<(), StoreError> {
        let name = line_setting(device);
        let bytes = serde_json::to_vec(self)
            .map_err(|error| StoreError::broken(name.as_str()).because(error))?;
        tx.put_setting(&name, &bytes)
    }

    /// Takes one change. Returns false if the device has none left.
    fn change(&mut self, today: u64) -> bool {
        let earned = today.saturating_sub(self.day);
        self.changes_left = self.changes_left.saturating_add(earned).min(CHANGES_MAX);
        // A day later than tomorrow is of a clock that was ahead and has been set back.
        self.day = if self.day > today + 1 { today } else { self.day.max(today) };
        let may_change = self.changes_left > 0;
        self.changes_left = self.changes_left.saturating_sub(1);
        may_change
    }
}

/// Whether the segment of a line is a claim of its device, and not an operator's word.
pub(super) fn is_segment_claimed(
    tx: &mut dyn Transaction,
    device: DeviceId,
) -> Result<bool, StoreError> {
    let operator = LineRecord::read(tx, device)?.operator;
    Ok(operator.is_some_and(|operator| operator.segment.is_empty()))
}

/// Returns the attributes of a line once its device has reported `told`. Attributes that an
/// operator wrote stay, and so do all if the device has changed some too often lately.
pub(super) fn reported(
    tx: &mut dyn Transaction,
    now_ms: u64,
    device: &Device,
    told: &Attributes,
) -> Result<Attributes, StoreError> {
    let known = &device.attributes;
    let told = updated(known, told);
    if told == *known {
        return Ok(told);
    }
    let mut record = LineRecord::read(tx, device.id)?;
    let changed = record.operator.as_ref().map_or_else(|| told.clone(), |it| merged(it, &told));
    if changed == *known || !record.change(now_ms / DAY_MS) {
        return Ok(known.clone());
    }
    record.write(tx, device.id)?;
    Ok(changed)
}

/// What a device says later: firmware and what it measured change, the rest is filled in once.
fn updated(known: &Attributes, told: &Attributes) -> Attributes {
    let newer = |known: &String, told: &String| {
        if told.is_empty() { known.clone() } else { told.clone() }
    };
    let filled = merged(known, told);
    Attributes {
        firmware: newer(&known.firmware, &told.firmware),
        measured: newer(&known.measured, &told.measured),
        ..filled
    }
}

/// Refuses attributes that no line has.
pub(super) fn acceptable(attributes: &Attributes) -> Result<(), Rejection> {
    if attributes.is_acceptable() {
        return Ok(());
    }
    Err(Rejection::new(Kind::BadRequest, "bad-attributes", Attributes::LIMITS))
}

/// Refuses an address that cannot be one.
pub(super) fn acceptable_address(address: &ServerAddress) -> Result<(), Rejection> {
    let bad = |message: &str| Err(Rejection::new(Kind::BadRequest, "bad-address", message));
    let texts = [&address.name, &address.address, &address.fingerprint];
    let is_text = |text: &str| is_within(text, TEXT_MAX) && !text.chars().any(char::is_control);
    if !texts.into_iter().all(|text| is_text(text)) {
        return bad("a text is longer than 256 characters or holds control characters");
    }
    if address.name.is_empty() || !is_within(&address.name, SERVER_NAME_MAX) {
        return bad("a server's name has 1 to 64 characters");
    }
    let port = address.address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none_or(|port| port == 0) {
        return bad("a server's address is HOST:PORT");
    }
    let digits = address.fingerprint.strip_prefix("sha256:").unwrap_or_default();
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return bad("a fingerprint is `sha256:` and 64 hexadecimal digits");
    }
    Ok(())
}

impl Orchestrator {
    pub(super) fn enrol_or_stop(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        it: &Enrol,
    ) -> Result<Enrolled, Stop> {
        acceptable(&it.attributes)?;
        let bad = |message| Rejection::new(Kind::BadRequest, "bad-key", message);
        let key: [u8; 32] =
            hex(&it.public_key).ok_or_else(|| bad("a key is 64 hexadecimal digits"))?;
        let proof: [u8; 64] =
            hex(&it.proof).ok_or_else(|| bad("a proof is 128 hexadecimal digits"))?;
        if it.code.len() > CODE_MAX || !is_signed(&key, &it.code, &proof) {
            let message = "the code is not signed by this key";
            return Err(Rejection::new(Kind::Unauthorized, "bad-proof", message).into());
        }
        let device = DeviceId::of_key(&key);
        let code = usable(tx.code(&hash_of(&it.code))?, device, now_ms)?;
        let is_again = code.used_by.is_some();
        let enrolled_ms = match (code.makes, &it.server) {
            (CodeFor::Device, None) => Some(enrol_device(tx, now_ms, key, &code, it, is_again)?),
            (CodeFor::Server, Some(address)) => {
                enrol_server(tx, key, address, is_again)?;
                None
            }
            (CodeFor::Device, Some(_)) => {
                let message = "this code makes a device, not a server";
                return Err(Rejection::new(Kind::Forbidden, "for-a-device", message).into());
            }
            (CodeFor::Server, None) => {
                let message = "this code makes a server, not a device";
                return Err(Rejection::new(Kind::Forbidden, "for-a-server", message).into());
            }
        };
        if !is_again {
            tx.put_code(&Code { used_by: Some(device), ..code })?;
        }
        let lease_key = data_encoding::HEXLOWER.encode(&self.lease_key());
        Ok(Enrolled { device, lease_key, enrolled_ms })
    }

    pub(super) fn open_session_or_stop(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        it: &OpenSession,
    ) -> Result<Session, Stop> {
        let denied = |code, message: &str| Rejection::new(Kind::Unauthorized, code, message);
        if now_ms.abs_diff(it.at_ms) > FRESH_MS {
            let message = format!("the time is more than five minutes off: it is {now_ms}");
            return Err(denied("stale", &message).into());
        }
        let Some(known) = known(tx, it.device)? else {
            return Err(denied("not-enrolled", "no such device or server").into());
        };
        let text = OpenSession::signed(it.device, it.at_ms);
        let signature = hex(&it.signature);
        if !signature.is_some_and(|signature| is_signed(&known.key, &text, &signature)) {
            return Err(denied("bad-signature", "not signed by the key that enrolled").into());
        }
        // Told to nobody else than who has the key.
        if let Some(removed) = known.removed {
            return Err(Rejection::gone(removed).into());
        }
        let expires_ms = now_ms + SESSION_MS;
        let opened = open_session(&self.fleet_secret, it.device, expires_ms);
        let key = data_encoding::HEXLOWER.encode(&opened.key);
        Ok(Session { session: opened.session, key, expires_ms, now_ms })
    }
}

fn enrol_device(
    tx: &mut dyn Transaction,
    now_ms: u64,
    public_key: [u8; 32],
    code: &Code,
    it: &Enrol,
    is_again: bool,
) -> Result<u64, Stop> {
    let id = DeviceId::of_key(&public_key);
    let attributes = merged(&code.attributes, &it.attributes);
    if tx.servers()?.iter().any(|server| server.device == id) {
        let message = "this key is of a server";
        return Err(Rejection::new(Kind::Conflict, "key-taken", message).into());
    }
    let device = match tx.device(id)? {
        // A code does not make a device again that was removed since.
        Some(device) if device.is_removed && is_again => {
            return Err(Rejection::gone(device.enrolment()).into());
        }
        Some(device) if is_again => return Ok(device.enrolled_ms),
        // A removal before this instant is of another enrolment.
        Some(device) => Device { attributes, enrolled_ms: now_ms, is_removed: false, ..device },
        None => Device {
            id,
            public_key,
            attributes,
            enrolled_ms: now_ms,
            seen_ms: now_ms,
            is_removed: false,
            epoch: 0,
            request: 0,
            waiting: 0,
            dropped: 0,
            schedules: Vec::new(),
            settle_ms: u64::MAX,
            made: 0,
        },
    };
    let mut record = LineRecord::read(tx, id)?;
    if record.operator.as_ref() != Some(&code.attributes) {
        record.operator = Some(code.attributes.clone());
        record.write(tx, id)?;
    }
    tx.put_device(&device)?;
    Ok(device.enrolled_ms)
}

struct Known {
    key: [u8; 32],
    removed: Option<Removed>,
}

fn known(tx: &mut dyn Transaction, id: DeviceId) -> Result<Option<Known>, Stop> {
    if let Some(device) = tx.device(id)? {
        let removed = device.is_removed.then(|| device.enrolment());
        return Ok(Some(Known { key: device.public_key, removed }));
    }
    let server = tx.servers()?.into_iter().find(|server| server.device == id);
    Ok(server.map(|server| Known {
        key: server.public_key,
        removed: server.is_removed.then(|| server.enrolment()),
    }))
}

/// A code that this key may use.
fn usable(code: Option<Code>, by: DeviceId, now_ms: u64) -> Result<Code, Rejection> {
    let denied = |name, message: &str| Err(Rejection::new(Kind::Forbidden, name, message));
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
    tx: &mut dyn Transaction,
    public_key: [u8; 32],
    address: &ServerAddress,
    is_again: bool,
) -> Result<(), Stop> {
    acceptable_address(address)?;
    let device = DeviceId::of_key(&public_key);
    let servers = tx.servers()?;
    if tx.device(device)?.is_some() {
        let message = "this key is of a device";
        return Err(Rejection::new(Kind::Conflict, "key-taken", message).into());
    }
    let old = servers.iter().find(|server| server.device == device);
    if old.is_some_and(|old| old.address.name != address.name) {
        let message = "this key is of a server of another name";
        return Err(Rejection::new(Kind::Conflict, "another-name", message).into());
    }
    let of_name = servers.iter().find(|server| server.address.name == address.name);
    let server = match of_name {
        Some(server) if server.device == device && is_again => return Ok(()),
        // A new key of the same server, as after a new disk: what was reserved stays so.
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
            return Err(Rejection::new(Kind::Conflict, "name-taken", message).into());
        }
        None => Server {
            address: address.clone(),
            device,
            public_key,
            is_removed: false,
            up_bit_per_s: 0,
            down_bit_per_s: 0,
            reserved_up_bit_per_s: 0,
            reserved_down_bit_per_s: 0,
            carried_up_bit_per_s: 0,
            carried_down_bit_per_s: 0,
            sessions: 0,
            heard_ms: 0,
        },
    };
    Ok(tx.put_server(&server)?)
}
