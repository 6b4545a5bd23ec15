//! The pages: their addresses, rights and content.

use axum::http::Uri;
use maud::{Markup, html};
use underload_fleet::device::DeviceId;
use underload_fleet::store::Archive;

use super::options::{self, OfferedValues};
use super::problem::Problem;
use super::question::{Ask, Format};
use super::sheet::Sheet;
use super::{devices, overview, plans, rollouts, servers, study};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    Overview,
    Study,
    Devices,
    Device(DeviceId),
    Servers,
    Plans,
    Rollouts,
}

impl Page {
    /// The pages that the bar of every page names, with their paths and names.
    pub(super) const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Overview, "/overview", "Overview"),
        (Self::Study, "/study", "Study"),
        (Self::Devices, "/devices", "Devices"),
        (Self::Servers, "/servers", "Servers"),
        (Self::Plans, "/plans", "Plans"),
        (Self::Rollouts, "/rollouts", "Rollouts"),
    ];

    /// Parses the path of `uri` into a page and the format of its suffix, `.json` or `.csv`. The
    /// format is `None` without such a suffix. Returns `None` if no page has this path.
    pub(super) fn from_uri(uri: &Uri) -> Option<(Self, Option<Format>)> {
        let path = if uri.path() == "/" { Self::ALL[0].1 } else { uri.path() };
        let endings = [(".json", Format::Json), (".csv", Format::Csv)];
        let ended = endings.into_iter().find_map(|(ending, format)| {
            path.strip_suffix(ending).map(|path| (path, Some(format)))
        });
        let (path, format) = ended.unwrap_or((path, None));
        let page = match Self::ALL.iter().find(|(_, known, _)| *known == path) {
            Some((page, ..)) => *page,
            None => Self::Device(path.strip_prefix("/devices/")?.parse().ok()?),
        };
        Some((page, format))
    }

    pub(super) fn path(self) -> String {
        if let Self::Device(id) = self {
            return format!("/devices/{id}");
        }
        let found = Self::ALL.iter().find(|(page, ..)| *page == self);
        found.map_or("/", |(_, path, _)| path).to_owned()
    }

    /// Returns whether the page shows individual homes, which only operators may see.
    pub(super) const fn is_for_operators(self) -> bool {
        matches!(self, Self::Devices | Self::Device(_))
    }

    /// Returns whether the charts are of one plan.
    pub(super) const fn is_of_a_plan(self) -> bool {
        matches!(self, Self::Overview | Self::Study)
    }

    pub(super) fn sheet(self, archive: &mut dyn Archive, ask: &Ask) -> Result<Sheet, Problem> {
        match self {
            Self::Overview => overview::sheet(archive, ask),
            Self::Study => study::sheet(archive, ask),
            Self::Devices => devices::list(archive, ask),
            Self::Device(id) => devices::one(archive, ask, id),
            Self::Servers => servers::sheet(archive, ask),
            Self::Plans => plans::sheet(archive, ask),
            Self::Rollouts => rollouts::sheet(archive, ask),
        }
    }

    /// Returns the form of the filters; empty without filters.
    pub(super) fn filters(self, ask: &Ask, options: &OfferedValues) -> Result<Markup, Problem> {
        match self {
            Self::Overview => options.form(ask, "/", options::OVERVIEW),
            Self::Study => options.form(ask, "/study", options::STUDY),
            Self::Devices => options.form(ask, "/devices", options::DEVICES),
            Self::Device(_) | Self::Servers | Self::Plans | Self::Rollouts => Ok(html! {}),
        }
    }
}
