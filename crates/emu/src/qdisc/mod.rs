//! Linux's own queues between a client and a server, shaped and delayed by Linux as well.
//!
//! ```text
//!  client            near router                         far router            server
//!  ul0 ── to-client            to-server ── to-client             to-server ── ul0
//!         (down: wire)         (up: queue)  (down: queue)         (up: wire)
//! ```
//!
//! A queue sends at the link's rate (HTB without a burst, or the queue's own shaper), so it decides
//! when a packet's transmission begins. The wire behind it (netem) adds the transmission, the delay
//! and the losses. Routers forward IP packets, which frees a sender of its packets: in a queue of
//! the sender's own host, TCP would stop before the queue fills.
//!
//! [`Routers`] sets all of it up by `ip` and `tc`. [`Sampler`] reads the counters by one `tc` for
//! each router that runs as long as the trial: there are no counters of single packets, so a record
//! has no sojourn times.

mod plan;
mod report;
mod sampler;
mod statistics;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::machine::{Ends, LabConfig, LabError, Namespace, NamespaceError, Network};
pub use plan::{Hop, Shaping};
pub use report::QueuesReport;
pub use sampler::{Sampler, SamplerError};

/// Client, server and two routers. All of it ends when it is dropped or this process ends.
#[derive(Debug)]
pub struct Routers {
    ends: Arc<Ends>,
    near: Namespace,
    far: Namespace,
    tool: PathBuf,
}

impl Routers {
    /// Creates the path: `up` from the client to the server, `down` back. `tool` is the `tc` that
    /// [`underload_tc::run::find`] found. Needs [`crate::machine::privilege::enter`].
    ///
    /// # Errors
    /// Returns [`LabError`] if a value of `config` is out of range, or the kernel or a program
    /// refuses a command.
    pub fn create(config: &LabConfig, up: &Hop, down: &Hop, tool: &Path) -> Result<Self, LabError> {
        config.check()?;
        let ends = Ends::create()?;
        let (near, far) = (Namespace::create("near")?, Namespace::create("far")?);
        let networks = plan::Networks {
            client: ends.client().path(),
            far: far.path(),
            server: ends.server().path(),
        };
        near.configure(&plan::cables(&networks, config.mtu))?;
        far.configure(&plan::last_cable(&networks, config.mtu))?;
        ends.apply(config)?;
        ends.client().configure(&plan::end(true))?;
        ends.server().configure(&plan::end(false))?;
        for (router, is_near) in [(&near, true), (&far, false)] {
            router.set_parameter("net/ipv4/ip_forward", "1")?;
            router.set_parameter("net/ipv6/conf/all/forwarding", "1")?;
            router.configure(&plan::router(is_near))?;
        }
        let (to_client, to_server) = (plan::TO_CLIENT, plan::TO_SERVER);
        shape(tool, &near, &(up.queue(to_server) + &down.wire(to_client)))?;
        shape(tool, &far, &(down.queue(to_client) + &up.wire(to_server)))?;
        Ok(Self { ends: Arc::new(ends), near, far, tool: tool.to_owned() })
    }

    /// The client and the server, which exist at least as long as the value that is returned.
    pub fn ends(&self) -> Arc<Ends> {
        Arc::clone(&self.ends)
    }
}

/// Runs `tc` commands, one per line, up to the first error.
fn shape(tool: &Path, router: &Network, lines: &str) -> Result<(), NamespaceError> {
    let mut command = Command::new(tool);
    command.args(["-batch", "-"]);
    router.run(command, lines).map(drop)
}

/// Returns the options of the kernel that a queue of this kind needs, shaper and wire included.
pub fn kernel_options(kind: &str) -> Vec<String> {
    let mut options = vec!["VETH".to_owned(), "NET_SCH_HTB".to_owned(), "NET_SCH_NETEM".to_owned()];
    if !matches!(kind, "pfifo" | "bfifo" | "pfifo_head_drop") {
        options.push(format!("NET_SCH_{}", kind.to_uppercase()));
    }
    options
}
