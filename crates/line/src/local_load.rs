//! Loads the local network alone, between this machine and a peer that runs `underload serve`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underload_measure::{LocalRates, goodput};
use underload_probe::RunClock;
use underload_probe::control::{Ask, ConnectOptions, SERVER_PORT, in_full};
use underload_probe::load::Token;
use underload_probe::measure::Measurement;
use underload_probe::preset::{Knobs, LoadDirections, Preset, session_duration};
use underload_record::schema::Direction;

use crate::connect::{FIRST_USE, connect, options, trust};
use crate::error::LineError;
use crate::target::{Family, resolve};
use crate::{Progress, Request};

/// Length of the load in each direction. The local network has short round trips, so that a load is
/// at its rate within a few tenths of a second.
const LOAD: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_millis(300);

/// Returns the rates that the local network carries; none without a peer that answers as a server.
pub(crate) fn measure(
    request: &Request,
    show: &mut dyn Progress,
    stop: &Arc<AtomicBool>,
) -> LocalRates {
    let Some(peer) = request.locate.as_ref().and_then(|it| it.peer.as_deref()) else {
        return LocalRates::default();
    };
    show.note(&format!("loading the local network alone, to {peer}"));
    match try_measure(request, peer, stop) {
        Ok(rates) => {
            let told = [("down", rates.down_mbit_s), ("up", rates.up_mbit_s)];
            let told = told.into_iter().filter_map(|(way, rate)| Some((way, rate?)));
            let told: Vec<String> =
                told.map(|(way, rate)| format!("{rate:.1} Mbit/s {way}")).collect();
            show.note(&format!("the local network alone carries {}", told.join(", ")));
            rates
        }
        Err(error) => {
            show.note(&format!(
                "the local network is not loaded alone, which needs `underload serve` on the \
                 peer: {}",
                in_full(&error)
            ));
            LocalRates::default()
        }
    }
}

fn try_measure(
    request: &Request,
    peer: &str,
    stop: &Arc<AtomicBool>,
) -> Result<LocalRates, LineError> {
    let knobs = Knobs {
        duration: Some(LOAD),
        idle: Some(IDLE),
        directions: LoadDirections::AsPreset,
        congestion_control: request.knobs.congestion_control.clone(),
        ..Knobs::default()
    };
    let steps = |token| Preset::Quick.steps(&knobs, token);
    let duration = session_duration(&steps(Token([0; 16])));
    let asked = ConnectOptions {
        trust: trust(FIRST_USE)?,
        token: None,
        ask: Ask { up_bit_per_s: None, down_bit_per_s: None, duration },
        ..options(request, duration, stop)?
    };
    let remote = connect(&resolve(peer, SERVER_PORT, Family::Any)?, &asked)?;
    let mut rates = LocalRates::default();
    for step in steps(remote.token()) {
        let measured = Measurement::run(
            &step.config,
            remote.endpoints(),
            RunClock::start(),
            &mut |_| {},
            stop,
        );
        let measured = measured.map_err(|source| LineError::Step {
            step: step.name.clone(),
            ended: None,
            source,
        })?;
        if measured.cancelled {
            break;
        }
        let mbit_s = |way| goodput(&measured, way).map(|rate| rate as f64 / 1e6);
        rates.down_mbit_s = rates.down_mbit_s.or(mbit_s(Direction::Down));
        rates.up_mbit_s = rates.up_mbit_s.or(mbit_s(Direction::Up));
    }
    Ok(rates)
}
