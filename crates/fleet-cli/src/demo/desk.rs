//! The operator of the demo, who creates codes, applies and stops plans, and removes a device, by
//! the same requests and token as any operator.

use std::net::SocketAddr;
use std::path::Path;

use crate::service::first_token;
use anyhow::Context;
use underload_agent::Trust;
use underload_agent::client::Client;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::operator::{ApplyPlan, Message, NewCodes, RemoveDevice, StopPlan};
use underload_fleet::store::CodeFor;
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
        makes: CodeFor,
        attributes: &[Attributes],
    ) -> anyhow::Result<Vec<String>> {
        let attributes = attributes.to_vec();
        Ok(self.ask(&NewCodes { makes, attributes, lines: Vec::new(), valid_days: 1 })?.codes)
    }

    pub(super) fn apply(&mut self, plan: &str) -> anyhow::Result<()> {
        self.ask(&ApplyPlan { text: plan.to_owned() }).map(drop)
    }

    pub(super) fn stop(&mut self, plan: &str) -> anyhow::Result<()> {
        self.ask(&StopPlan { name: plan.to_owned() }).map(drop)
    }

    pub(super) fn remove(&mut self, device: DeviceId) -> anyhow::Result<()> {
        self.ask(&RemoveDevice { device }).map(drop)
    }

    fn ask<M: Message>(&mut self, message: &M) -> anyhow::Result<M::Answer> {
        Ok(self.client.ask_as_operator(&self.token, message)?)
    }
}
