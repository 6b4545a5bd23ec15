//! How browsers spread a page's resources over connections.

use serde::{Deserialize, Serialize};

/// A browser of the DOCSIS buffer control guideline, section 7.2.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Browser {
    /// One connection for the HTML, nine more for what it names, all ten kept alive.
    InternetExplorer,
    /// Six connections at a time, a new one for each resource.
    #[default]
    Chrome,
    /// Six connections kept alive. The guideline does not say how Firefox 6 used its connections:
    /// these are that version's settings as shipped (persistent, six per server).
    Firefox,
}

impl Browser {
    /// Connections at a time.
    pub const fn connections(self) -> usize {
        match self {
            Self::InternetExplorer => 10,
            Self::Chrome | Self::Firefox => 6,
        }
    }

    /// Whether a connection serves more than one resource.
    pub const fn keeps_alive(self) -> bool {
        !matches!(self, Self::Chrome)
    }
}
