//! Measurement servers and their load.

use underload_fleet::admission::Rules;
use underload_fleet::store::{Archive, Server};

use super::problem::Problem;
use super::question::Ask;
use super::sheet::{Section, Sheet};
use super::table::{Cell, Table, count, number, words};

pub(super) fn sheet(archive: &mut dyn Archive, ask: &Ask) -> Result<Sheet, Problem> {
    let servers = archive.servers()?;
    Ok(Sheet {
        title: "Servers".to_owned(),
        sentences: vec![sentence(&servers, ask.now_ms)],
        sections: vec![Section::new("Load now", table(&servers, ask))],
    })
}

/// Returns whether the server's latest heartbeat is recent enough for it to get runs.
fn is_alive(server: &Server, now_ms: u64) -> bool {
    let timeout_ms = Rules::default().heartbeat_timeout.as_millis();
    server.heard_ms > 0 && now_ms.saturating_sub(server.heard_ms) <= timeout_ms
}

pub(super) fn sentence(servers: &[Server], now_ms: u64) -> String {
    let alive: Vec<&Server> = servers.iter().filter(|server| is_alive(server, now_ms)).collect();
    if servers.is_empty() {
        return "No server has enrolled yet, so no line can be measured.".to_owned();
    }
    let sum = |of: fn(&Server) -> u64| {
        alive.iter().map(|server| of(server)).fold(0, u64::saturating_add) as f64
    };
    let most = sum(|server| server.up_bit_per_s).max(sum(|server| server.down_bit_per_s));
    let (unit, name) = if most < 1e9 { (1e6, "Mbit/s") } else { (1e9, "Gbit/s") };
    let total = |of| underload_report::significant(sum(of) / unit);
    format!(
        "{} of {} servers answer; {} of {} {name} towards them are reserved, and {} of {} from \
         them.",
        alive.len(),
        servers.len(),
        total(|server| server.reserved_up_bit_per_s),
        total(|server| server.up_bit_per_s),
        total(|server| server.reserved_down_bit_per_s),
        total(|server| server.down_bit_per_s),
    )
}

pub(super) fn table(servers: &[Server], ask: &Ask) -> Table {
    let mbit = |rate: u64| Cell::Number(rate as f64 / 1e6);
    let share = |part: u64, whole: u64| match whole {
        0 => Cell::Nothing,
        whole => Cell::Share(part as f64 * 100.0 / whole as f64),
    };
    let state = |it: &Server| if is_alive(it, ask.now_ms) { "alive" } else { "silent" };
    Table::of(
        "servers",
        servers,
        &[
            (words("name", "Server"), &|it| Cell::text(&it.address.name)),
            (words("address", "Address"), &|it| Cell::text(&it.address.address)),
            (words("state", "State"), &|it| Cell::text(state(it))),
            (words("heard", "Last heartbeat, UTC"), &|it| Cell::When(it.heard_ms)),
            (count("sessions", "Sessions"), &|it| Cell::Count(u64::from(it.sessions))),
            (number("up_mbit_per_s", "Takes", "Mbit/s"), &|it| mbit(it.up_bit_per_s)),
            (number("up_reserved_percent", "reserved", "%"), &|it| {
                share(it.reserved_up_bit_per_s, it.up_bit_per_s)
            }),
            (number("up_carried_mbit_per_s", "carries", "Mbit/s"), &|it| {
                mbit(it.carried_up_bit_per_s)
            }),
            (number("down_mbit_per_s", "Sends", "Mbit/s"), &|it| mbit(it.down_bit_per_s)),
            (number("down_reserved_percent", "reserved", "%"), &|it| {
                share(it.reserved_down_bit_per_s, it.down_bit_per_s)
            }),
            (number("down_carried_mbit_per_s", "carries", "Mbit/s"), &|it| {
                mbit(it.carried_down_bit_per_s)
            }),
        ],
    )
}
