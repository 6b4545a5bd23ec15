//! The hops that are probed beside a measurement, to find where the load adds delay.

use std::net::SocketAddr;
use std::time::Duration;

use underload_measure::LocalRates;
use underload_probe::RunClock;
use underload_probe::control::SERVER_PORT;
use underload_probe::network::with_port;
use underload_probe::route::{EchoTarget, HopProbes, Route, RouteHop, RouteProber};
use underload_record::schema::PathHop;

use crate::Request;
use crate::error::{BadSetting, LineError, Setting};
use crate::request::shortened;
use crate::target::{Family, resolve};

/// Longest time that it takes to find the hops.
pub(crate) const FINDING_MAX: Duration = Duration::from_secs(3);

/// The hops to probe, nearest first, and the far end at last.
pub(crate) struct ProbedRoute {
    targets: Vec<EchoTarget>,
    /// The only network interface that echoes use; `None` for the interfaces of the routes.
    device: Option<String>,
}

impl ProbedRoute {
    /// Finds the hops towards the far end at `reflector`, within [`FINDING_MAX`].
    ///
    /// # Errors
    /// Returns an error if this user may not send echoes, or there is no route.
    pub(crate) fn find(
        request: &Request,
        peer: Option<SocketAddr>,
        reflector: SocketAddr,
    ) -> Result<Self, LineError> {
        let far_end = with_port(reflector, 0);
        let route = Route::discover(far_end, request.interface.as_deref())?;
        let peer = peer.map(|address| RouteHop {
            hop: PathHop::Peer,
            address: Some(address),
            distance: None,
        });
        let near = peer.into_iter().chain(route.near);
        let mut targets: Vec<EchoTarget> = near.map(|hop| target(request, hop)).collect();
        targets.push(EchoTarget {
            hop: PathHop::FarEnd,
            address: Some(far_end),
            shown: request.shown_host(),
            distance: route.far_distance,
        });
        Ok(Self { targets, device: request.interface.clone() })
    }

    pub(crate) fn start(&self, clock: RunClock) -> Result<RouteProber, LineError> {
        let (targets, device) = (self.targets.clone(), self.device.as_deref());
        RouteProber::start(targets, device, clock).map_err(LineError::Echoes)
    }
}

/// Adds to a step where its load adds delay, from the echoes of all hops, the far end's at last.
pub(crate) fn located(
    step: underload_measure::Step,
    echoes: &[HopProbes],
    alone: &LocalRates,
) -> underload_measure::Step {
    match echoes.split_last() {
        Some((far, near)) => step.with_location(near, far, alone),
        None => step,
    }
}

/// Resolves the name of a peer.
///
/// # Errors
/// Returns an error if it has no address.
pub(crate) fn peer_address(host: &str) -> Result<SocketAddr, LineError> {
    let target = resolve(host, SERVER_PORT, Family::Any)
        .map_err(|error| BadSetting { setting: Setting::Peer, source: error.into() })?;
    // Targets have at least one address.
    Ok(with_port(target.addresses[0], 0))
}

/// The record shows a provider's address without its last part, as it does the server's.
pub(crate) fn target(request: &Request, hop: RouteHop) -> EchoTarget {
    let shown = hop.address.map(|address| address.ip().to_string()).unwrap_or_default();
    let is_shortened = hop.hop == PathHop::Provider && !request.keep_address;
    EchoTarget {
        hop: hop.hop,
        address: hop.address,
        shown: if is_shortened { shortened(&shown) } else { shown },
        distance: hop.distance,
    }
}
