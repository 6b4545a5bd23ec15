//! How browsers distribute a page's resources over connections.

use serde::{Deserialize, Serialize};

/// A browser of the DOCSIS buffer control guideline, section 7.2.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Browser {
    /// A connection for the HTML, nine more for its resources, all ten kept alive.
    InternetExplorer,
    /// Six connections at a time, a new one for each resource.
    #[default]
    Chrome,
    /// Six connections kept alive: the default settings of Firefox 6 (persistent, six per server),
    /// since the guideline does not describe its use of connections.
    Firefox,
}

impl Browser {
    /// Returns the maximum number of simultaneous connections.
    pub const fn connections(self) -> usize {
        match self {
            Self::InternetExplorer => 10,
            Self::Chrome | Self::Firefox => 6,
        }
    }

    /// Returns whether a connection serves more than one resource.
    pub const fn keeps_alive(self) -> bool {
        !matches!(self, Self::Chrome)
    }
}
