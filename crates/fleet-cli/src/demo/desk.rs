//! The operator of the demo, who makes codes, applies and stops plans, and removes a device, by the
//! same requests and token as any operator.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};
use underload_agent::Trust;
use underload_agent::client::Client;
use underload_fleet::device::{Attributes, DeviceId};
use underload_orchestrator::service::first_token;
use underload_terminal::home;

pub(super) struct Desk {
    client: Client,
    token: String,
}

impl Desk {
    /// Connects to an orchestrator on loopback with the token in its `state` directory.
    pub(super) fn open(orchestrator: SocketAddr, state: &Path) -> anyhow::Result<Self> {
        let token = home::secret_line(&first_token(state)).context("the operator's token")?;
        let address = format!("http://{orchestrator}").parse()?;
        let client = Client::new(vec![address], Trust::Authorities)?;
        Ok(Self { client, token })
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Makes a code for each device or server.
    pub(super) fn codes(
        &mut self,
        makes: &str,
        attributes: &[Attributes],
    ) -> anyhow::Result<Vec<String>> {
        let message = json!({ "makes": makes, "attributes": attributes, "valid_days": 1 });
        let made = self.ask("codes", &message)?;
        serde_json::from_value(made["codes"].clone()).context("codes")
    }

    pub(super) fn apply(&mut self, plan: &str) -> anyhow::Result<()> {
        self.ask("plans", &json!({ "text": plan })).map(drop)
    }

    pub(super) fn stop(&mut self, plan: &str) -> anyhow::Result<()> {
        self.ask("plans/stop", &json!({ "name": plan })).map(drop)
    }

    pub(super) fn remove(&mut self, device: DeviceId) -> anyhow::Result<()> {
        self.ask("devices/remove", &json!({ "device": device })).map(drop)
    }

    fn ask(&mut self, what: &str, message: &Value) -> anyhow::Result<Value> {
        let path = format!("/v1/operator/{what}");
        Ok(self.client.ask_as_operator(0, &self.token, &path, message)?)
    }
}
