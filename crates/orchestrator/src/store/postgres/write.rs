//! Writes what a transaction has changed, each kind of row with one statement.

use underload_fleet::orchestrator::MADE_EPOCH;
use underload_fleet::store::{Device, HeldLease, StoreError};

use super::session::Session;
use super::transaction::{Cached, ResultRow, Table, oldest_seen, seen_columns};
use crate::store::seen::Rows;
use crate::store::{to_instant, to_json};

/// Everything but what was seen.
pub(super) fn rows(session: &mut Session, rows: &Cached) -> Result<(), StoreError> {
    devices(session, &changed(&rows.devices))?;
    leases(session, &rows.leases)?;
    servers(session, rows)?;
    results(session, &rows.results)?;
    let codes = changed(&rows.codes);
    if !codes.is_empty() {
        let hashes: Vec<&[u8]> = codes.iter().map(|code| &code.hash[..]).collect();
        let bodies = codes.iter().map(to_json).collect::<Result<Vec<_>, _>>()?;
        session.change(PUT_CODES, &[&hashes, &bodies])?;
    }
    let plans = changed(&rows.plans);
    if !plans.is_empty() {
        let names: Vec<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
        let bodies = plans.iter().map(to_json).collect::<Result<Vec<_>, _>>()?;
        session.change(PUT_PLANS, &[&names, &bodies])?;
    }
    for name in &rows.settings.changed {
        let value = rows.settings.rows.get(name).cloned().flatten();
        // Two that begin at once make a secret each: one of them must take the other's.
        let is_new = rows.new_settings.contains(name);
        let sql = if is_new { ADD_SETTING } else { CHANGE_SETTING };
        as_many(session.change(sql, &[name, &value])?, 1, "a setting was made")?;
    }
    for entry in &rows.log {
        let sql = "INSERT INTO log (at_ms, who, what) VALUES ($1, $2, $3)";
        session.change(sql, &[&(entry.at_ms as i64), &entry.who, &entry.what])?;
    }
    Ok(())
}

/// Rows of a table that are to be written.
fn changed<K: Ord, V>(table: &Table<K, V>) -> Vec<&V> {
    table.changed.iter().filter_map(|key| table.rows.get(key)?.as_ref()).collect()
}

fn devices(session: &mut Session, devices: &[&Device]) -> Result<(), StoreError> {
    if devices.is_empty() {
        return Ok(());
    }
    let texts = |text: fn(&Device) -> &str| -> Vec<&str> {
        devices.iter().map(|device| text(device)).collect()
    };
    let numbers = |number: fn(&Device) -> u64| -> Vec<i64> {
        devices.iter().map(|device| number(device) as i64).collect()
    };
    let settle = devices.iter().map(|device| to_instant(device.settle_ms));
    let settle: Vec<i64> = settle.collect();
    let ids: Vec<&[u8]> = devices.iter().map(|device| &device.id.0[..]).collect();
    let keys: Vec<&[u8]> = devices.iter().map(|device| &device.public_key[..]).collect();
    let tiers = devices.iter().map(|device| device.attributes.get("tier").unwrap_or_default());
    let tiers: Vec<String> = tiers.collect();
    let removed: Vec<bool> = devices.iter().map(|device| device.is_removed).collect();
    let schedules = devices.iter().map(|device| to_json(&device.schedules));
    let schedules = schedules.collect::<Result<Vec<_>, _>>()?;
    session.change(
        PUT_DEVICES,
        &[
            &ids,
            &keys,
            &texts(|device| &device.attributes.model),
            &texts(|device| &device.attributes.firmware),
            &tiers,
            &texts(|device| &device.attributes.segment),
            &texts(|device| &device.attributes.region),
            &texts(|device| &device.attributes.configured),
            &texts(|device| &device.attributes.measured),
            &numbers(|device| device.attributes.tier_up_bit_per_s),
            &numbers(|device| device.attributes.tier_down_bit_per_s),
            &numbers(|device| device.enrolled_ms),
            &numbers(|device| device.seen_ms),
            &removed,
            &numbers(|device| u64::from(device.epoch)),
            &numbers(|device| device.request),
            &numbers(|device| device.waiting),
            &numbers(|device| device.dropped),
            &settle,
            &numbers(|device| device.made),
            &schedules,
        ],
    )?;
    Ok(())
}

fn leases(session: &mut Session, table: &Table<u64, HeldLease>) -> Result<(), StoreError> {
    let ended = table.changed.iter().filter(|id| matches!(table.rows.get(id), Some(None)));
    let ended: Vec<i64> = ended.map(|id| *id as i64).collect();
    if !ended.is_empty() {
        session.change("DELETE FROM leases WHERE id = ANY($1)", &[&ended])?;
    }
    let held = changed(table);
    if held.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = held.iter().map(|lease| lease.id as i64).collect();
    let devices: Vec<&[u8]> = held.iter().map(|lease| &lease.device.0[..]).collect();
    let servers: Vec<&str> = held.iter().map(|lease| lease.server.as_str()).collect();
    let segments: Vec<Option<&str>> = held.iter().map(|lease| lease.segment.as_deref()).collect();
    let ends: Vec<i64> = held.iter().map(|lease| to_instant(lease.expires_ms)).collect();
    let bodies = held.iter().map(to_json).collect::<Result<Vec<_>, _>>()?;
    session.change(PUT_LEASES, &[&ids, &devices, &servers, &segments, &ends, &bodies])?;
    Ok(())
}

fn servers(session: &mut Session, rows: &Cached) -> Result<(), StoreError> {
    let (mut known, mut new) = ((vec![], vec![], vec![]), (vec![], vec![]));
    for server in changed(&rows.servers) {
        let (name, body) = (server.address.name.as_str(), to_json(server)?);
        match rows.stored_servers.get(name) {
            Some(stored) if *stored == body => {}
            Some(stored) => {
                known.0.push(name);
                known.1.push(stored.as_str());
                known.2.push(body);
            }
            None => {
                new.0.push(name);
                new.1.push(body);
            }
        }
    }
    if !known.0.is_empty() {
        let sql = "UPDATE servers s SET body = u.body
            FROM unnest($1::text[], $2::text[], $3::text[]) u (name, stored, body)
            WHERE s.name = u.name AND s.body = u.stored";
        let count = session.change(sql, &[&known.0, &known.1, &known.2])?;
        as_many(count, known.0.len(), "a server was changed")?;
    }
    if !new.0.is_empty() {
        let sql = "INSERT INTO servers (name, body) SELECT * FROM unnest($1::text[], $2::text[])
            ON CONFLICT DO NOTHING";
        as_many(session.change(sql, &[&new.0, &new.1])?, new.0.len(), "a server was added")?;
    }
    Ok(())
}

fn results(session: &mut Session, results: &[ResultRow]) -> Result<(), StoreError> {
    if results.is_empty() {
        return Ok(());
    }
    let devices: Vec<&[u8]> = results.iter().map(|row| &row.device.0[..]).collect();
    let days: Vec<i64> = results.iter().map(|row| row.day).collect();
    let plans: Vec<&str> = results.iter().map(|row| row.plan.as_str()).collect();
    let bodies: Vec<&[u8]> = results.iter().map(|row| &row.body[..]).collect();
    let sql = "INSERT INTO results (device, day, plan, body)
        SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::text[], $4::bytea[])";
    session.change(sql, &[&devices, &days, &plans, &bodies])?;
    Ok(())
}

/// Marks what was seen, and forgets what is older than the rows that are kept.
pub(super) fn seen(session: &mut Session, rows: &Rows) -> Result<(), StoreError> {
    for is_stored in [true, false] {
        let changed = rows.changed().filter(|(_, row)| row.stored.is_some() == is_stored);
        let changed: Vec<_> = changed.collect();
        if changed.is_empty() {
            continue;
        }
        let devices: Vec<&[u8]> = changed.iter().map(|(place, _)| &place.0.0[..]).collect();
        let epochs: Vec<i64> = changed.iter().map(|(place, _)| i64::from(place.1)).collect();
        let parts: Vec<i64> = changed.iter().map(|(place, _)| place.2 as i64).collect();
        let bits: Vec<&[u8]> = changed.iter().map(|(_, row)| &row.bits[..]).collect();
        let count = if is_stored {
            let stored: Vec<Option<&[u8]>> =
                changed.iter().map(|(_, row)| row.stored.as_deref()).collect();
            session.change(CHANGE_SEEN, &[&devices, &epochs, &parts, &bits, &stored])?
        } else {
            session.change(ADD_SEEN, &[&devices, &epochs, &parts, &bits])?
        };
        as_many(count, changed.len(), "results of a device were handed in")?;
    }
    let grown = rows.grown();
    if grown.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "DELETE FROM seen USING ({}) oldest
            WHERE seen.device = oldest.device AND (seen.epoch = {MADE_EPOCH}) = oldest.is_made
                AND (seen.epoch, seen.part) < (oldest.epoch, oldest.part)",
        oldest_seen()
    );
    let (devices, are_made) = seen_columns(&grown);
    session.change(&sql, &[&devices, &are_made]).map(drop)
}

/// Told where somebody else was first.
fn as_many(count: u64, meant: usize, what: &str) -> Result<(), StoreError> {
    if count == meant as u64 {
        return Ok(());
    }
    Err(StoreError::Temporary { what: format!("{what} by another orchestrator just now") })
}

const PUT_CODES: &str = "INSERT INTO codes (hash, body)
    SELECT * FROM unnest($1::bytea[], $2::text[])
    ON CONFLICT (hash) DO UPDATE SET body = excluded.body";
const PUT_PLANS: &str = "INSERT INTO plans (name, body)
    SELECT * FROM unnest($1::text[], $2::text[])
    ON CONFLICT (name) DO UPDATE SET body = excluded.body";
const ADD_SETTING: &str =
    "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const CHANGE_SETTING: &str = "UPDATE settings SET value = $2 WHERE name = $1";
const PUT_LEASES: &str = "INSERT INTO leases (id, device, server, segment, expires_ms, body)
    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::text[], $5::bigint[],
        $6::text[])
    ON CONFLICT (id) DO UPDATE SET device = excluded.device, server = excluded.server,
        segment = excluded.segment, expires_ms = excluded.expires_ms, body = excluded.body";
const CHANGE_SEEN: &str = "UPDATE seen s SET bits = u.bits
    FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[])
        u (device, epoch, part, bits, stored)
    WHERE s.device = u.device AND s.epoch = u.epoch AND s.part = u.part AND s.bits = u.stored";
const ADD_SEEN: &str = "INSERT INTO seen (device, epoch, part, bits)
    SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bytea[])
    ON CONFLICT DO NOTHING";
const PUT_DEVICES: &str = "INSERT INTO devices (id, public_key, model, firmware, tier, segment,
        region, configured, measured, tier_up_bit_per_s, tier_down_bit_per_s, enrolled_ms, seen_ms,
        is_removed, epoch, request, waiting, dropped, settle_ms, made, schedules)
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::text[],
        $7::text[], $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[],
        $13::bigint[], $14::boolean[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[],
        $19::bigint[], $20::bigint[], $21::text[])
    ON CONFLICT (id) DO UPDATE SET public_key = excluded.public_key, model = excluded.model,
        firmware = excluded.firmware, tier = excluded.tier, segment = excluded.segment,
        region = excluded.region, configured = excluded.configured, measured = excluded.measured,
        tier_up_bit_per_s = excluded.tier_up_bit_per_s,
        tier_down_bit_per_s = excluded.tier_down_bit_per_s, enrolled_ms = excluded.enrolled_ms,
        seen_ms = excluded.seen_ms, is_removed = excluded.is_removed, epoch = excluded.epoch,
        request = excluded.request, waiting = excluded.waiting, dropped = excluded.dropped,
        settle_ms = excluded.settle_ms, made = excluded.made, schedules = excluded.schedules";
