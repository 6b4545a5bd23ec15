//! Real browsers inside the lab: pages and films that a browser loads, and calls between two
//! browsers.
//!
//! Each flow has separate browsers. They start before the trial, so that their start does not
//! disturb the measurement, and a thread controls them ([`control`]). Their profiles are in memory
//! that ends with their processes, which end with the namespaces at the latest: also a killed run
//! leaves neither.

mod caddy;
mod calls;
mod control;
mod film;
mod films;
mod loading;
mod page;
mod pages;
mod server;
mod website;

use underload_browser::{Chromium, MISSING};
use underload_emu::machine::Ends;
use underload_scenario::{BrowserFlow, Flow, FlowKind, PageProtocol, Phases, Variant};

use super::plan::longest;
use super::task::Task;
use crate::error::Result;
use calls::Call;
use films::Films;
use pages::Pages;

/// Returns which program this machine lacks for a variant's flows; `None` if it has all of them.
pub(super) fn problem(variant: &Variant) -> Option<String> {
    variant.flows.iter().find_map(|flow| match &flow.kind {
        FlowKind::Browser(traffic) => Some(format!("flow.{}: {}", flow.name, missing(traffic)?)),
        _ => None,
    })
}

fn missing(traffic: &BrowserFlow) -> Option<&'static str> {
    if Chromium::find().is_none() {
        return Some(MISSING);
    }
    if matches!(traffic, BrowserFlow::Film { .. }) && films::dash_js().is_none() {
        return Some(films::MISSING);
    }
    let needs_caddy = traffic.site().is_some_and(|site| site.protocol == PageProtocol::Http3);
    (needs_caddy && !caddy::is_installed()).then_some(caddy::MISSING)
}

/// Starts the browsers of a flow, each with an empty page, and their server.
pub(super) fn start<'a>(
    ends: &Ends,
    flow: &'a Flow,
    traffic: &BrowserFlow,
    phases: &Phases,
) -> Result<Box<dyn Task + 'a>> {
    let name = flow.name.as_str();
    Ok(match traffic {
        BrowserFlow::Pages { site, loads, pause, fetches_script } => {
            let plan = (*loads, *pause, *fetches_script);
            Box::new(Pages::start(ends, (name, site), plan, longest(phases))?)
        }
        BrowserFlow::Film { site, player, buffer } => {
            Box::new(Films::start(ends, (name, site), *player, *buffer)?)
        }
        BrowserFlow::Call { direction, max_rate } => {
            Box::new(Call::start(ends, name, *direction, *max_rate)?)
        }
    })
}
