//! Places for connections that have not shown a session yet.

use std::time::Duration;

use underload_probe::network::{CustomerNetwork, Place, PlaceLimits, Places};

/// Connections that have not yet shown a session, from everywhere.
const STRANGERS_MAX: usize = 256;
/// The most connections without a session from one network.
pub(super) const STRANGERS_PER_NETWORK_MAX: usize = 16;
/// Time after which a new connection from the same network may replace one without a session.
const GRACE: Duration = Duration::from_secs(1);

/// Connections that have not shown a session yet.
pub(crate) type Strangers = Places<CustomerNetwork>;

pub(crate) type StrangerPlace = Place<CustomerNetwork>;

/// Returns an empty table of connections, with the limits of this module.
pub(crate) fn strangers() -> Strangers {
    Places::new(PlaceLimits {
        in_all: STRANGERS_MAX,
        per_network: STRANGERS_PER_NETWORK_MAX,
        grace: GRACE,
    })
}
