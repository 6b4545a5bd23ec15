//! The congestion controls by name. Each is an entry of one table in this file, from which follow
//! the names that parsers accept and errors list, the requirements on TCP, the constructors and the
//! table in `docs/transports.md`.

use underload_aqm::time::{Span, Time};

use super::{
    Ack, Bbr, C2tcp, CongestionControl, Cubic, Dctcp, EcnUse, Ledbat, Loss, OwnControl, PacketRate,
    Prague, Reno, Setup, SlowStartExit, Steered, Vegas, Vivace, Westwood, Window,
};

/// Declares [`Algorithm`] and [`Controller`] from the table.
macro_rules! algorithms {
    ($d:tt $($kind:ident {
        name: $name:literal,
        source: $source:literal,
        slow_start_exit: $slow_start_exit:ident,
        ecn: $ecn:expr,
        new: |$setup:ident| $new:expr,
    })*) => {
        /// The congestion controls by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Algorithm {
            $(#[doc = concat!("[`", stringify!($kind), "`]: ", $source, ".")] $kind,)*
        }

        impl Algorithm {
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Returns the document that defines it.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$kind => $source,)* }
            }

            /// Returns the early exit from slow start in Linux: HyStart for CUBIC and its
            /// derivatives; the others end slow start with the first loss or mark, or have a
            /// different start-up.
            pub const fn slow_start_exit(self) -> SlowStartExit {
                match self { $(Self::$kind => SlowStartExit::$slow_start_exit,)* }
            }

            /// Returns the ECN mode that it requires, if any.
            pub const fn required_ecn(self) -> Option<EcnUse> {
                match self { $(Self::$kind => $ecn,)* }
            }
        }

        /// An algorithm, without dynamic dispatch per packet.
        #[derive(Debug)]
        pub enum Controller {
            $(#[doc = concat!("[`", stringify!($kind), "`]: ", $source, ".")] $kind($kind),)*
            /// A window that a caller controls.
            Steered(Steered),
            /// A custom congestion control.
            Own(Box<dyn CongestionControl>),
        }

        impl Controller {
            pub fn new(algorithm: Algorithm, setup: Setup) -> Self {
                match algorithm {
                    $(Algorithm::$kind => { let $setup = setup; Self::$kind($new) })*
                }
            }

            /// Creates a custom control at the start of a connection.
            pub fn own(control: &OwnControl, setup: Setup) -> Self {
                Self::Own((control.make)(setup))
            }
        }

        /// Calls a method of the algorithm.
        macro_rules! dispatch {
            ($d controller:expr, $d control:ident => $d call:expr) => {
                match $d controller {
                    $(Controller::$kind($d control) => $d call,)*
                    Controller::Steered($d control) => $d call,
                    Controller::Own($d control) => $d call,
                }
            };
        }
    };
}

impl Algorithm {
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Returns all names for errors and help: `reno, cubic, ...`.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Returns the ECN mode of a flow of this algorithm that is configured with `wish`.
    pub fn ecn(self, wish: EcnUse) -> EcnUse {
        self.required_ecn().unwrap_or(wish)
    }
}

algorithms! { $
    Reno {
        name: "reno",
        source: "RFC 5681",
        slow_start_exit: Loss,
        ecn: None,
        new: |setup| Reno::new(setup.slow_start_exit),
    }
    Cubic {
        name: "cubic",
        source: "RFC 9438 and Linux `tcp_cubic.c`",
        slow_start_exit: HyStart,
        ecn: None,
        new: |setup| Cubic::new(setup.slow_start_exit),
    }
    Bbr {
        name: "bbr",
        source: "version 1, Linux `tcp_bbr.c`",
        slow_start_exit: Loss,
        ecn: None,
        new: |setup| Bbr::new(setup),
    }
    Westwood {
        name: "westwood",
        source: "Westwood+, Linux `tcp_westwood.c`",
        slow_start_exit: Loss,
        ecn: None,
        new: |setup| Westwood::new(setup.slow_start_exit, setup.segment_bytes),
    }
    Dctcp {
        name: "dctcp",
        source: "RFC 8257",
        slow_start_exit: Loss,
        ecn: Some(EcnUse::Accurate),
        new: |_setup| Dctcp::default(),
    }
    Prague {
        name: "prague",
        source: "draft-briscoe-iccrg-prague-congestion-control, L4STeam's Linux",
        slow_start_exit: Loss,
        ecn: Some(EcnUse::L4s),
        new: |setup| Prague::new(&setup),
    }
    C2tcp {
        name: "c2tcp",
        source: "Abbasloo et al. 2018, the authors' patch for Linux",
        slow_start_exit: HyStart,
        ecn: None,
        new: |setup| C2tcp::new(setup.slow_start_exit),
    }
    Vivace {
        name: "vivace",
        source: "PCC Vivace, Dong et al. 2018",
        slow_start_exit: Loss,
        ecn: None,
        new: |setup| Vivace::new(setup),
    }
    Vegas {
        name: "vegas",
        source: "Brakmo et al. 1994, Linux `tcp_vegas.c`",
        slow_start_exit: Loss,
        ecn: None,
        new: |_setup| Vegas::default(),
    }
    Ledbat {
        name: "ledbat",
        source: "RFC 6817, with round trips",
        slow_start_exit: Loss,
        ecn: None,
        new: |_setup| Ledbat::default(),
    }
}

impl CongestionControl for Controller {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        dispatch!(self, control => control.on_ack(ack, window));
    }

    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        dispatch!(self, control => control.on_loss(loss, window));
    }

    fn on_reduction_end(&mut self, window: &mut Window) {
        dispatch!(self, control => control.on_reduction_end(window));
    }

    fn on_undo(&mut self) {
        dispatch!(self, control => control.on_undo());
    }

    fn on_restart(&mut self, now: Time, idle: Span, window: &mut Window) {
        dispatch!(self, control => control.on_restart(now, idle, window));
    }

    fn pacing(&self) -> Option<PacketRate> {
        dispatch!(self, control => control.pacing())
    }

    fn owns_window(&self) -> bool {
        dispatch!(self, control => control.owns_window())
    }

    fn is_restored_by_transport(&self) -> bool {
        dispatch!(self, control => control.is_restored_by_transport())
    }

    fn answers_loss_while_reducing(&self) -> bool {
        dispatch!(self, control => control.answers_loss_while_reducing())
    }

    fn holds_back(&self) -> bool {
        dispatch!(self, control => control.holds_back())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::tests::setup;

    fn controller(algorithm: Algorithm) -> Controller {
        let slow_start_exit = algorithm.slow_start_exit();
        Controller::new(algorithm, Setup { slow_start_exit, ..setup() })
    }

    #[test]
    fn every_name_selects_its_own_algorithm() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_name(algorithm.name()), Some(algorithm));
            assert!(Algorithm::names().split(", ").any(|name| name == algorithm.name()));
            let (kind, code) = (format!("{algorithm:?}"), format!("{:?}", controller(algorithm)));
            assert!(code.starts_with(&format!("{kind}({kind}")), "{kind}: {code}");
        }
        for wrong in ["", "Cubic", "cubic ", "reno, cubic"] {
            assert_eq!(Algorithm::from_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_page_of_transports_has_the_table() {
        let page = include_str!("../../../../docs/transports.md");
        let row = |algorithm: Algorithm| {
            let exit = match algorithm.slow_start_exit() {
                SlowStartExit::Loss => "-",
                SlowStartExit::HyStart => "HyStart",
                SlowStartExit::HyStartPlusPlus => "HyStart++",
            };
            let ecn = match algorithm.required_ecn() {
                None => "`ecn = true` for ECT(0), RFC 3168",
                Some(EcnUse::Off) => "never",
                Some(EcnUse::Classic) => "always ECT(0), RFC 3168",
                Some(EcnUse::Accurate) => "always ECT(0), marks counted",
                Some(EcnUse::L4s) => "always ECT(1), marks counted",
            };
            format!("| `{}` | {} | {exit} | {ecn} |\n", algorithm.name(), algorithm.source())
        };
        let rows: String = Algorithm::ALL.map(row).concat();
        assert!(page.contains(&format!("|---|---|---|---|\n{rows}\n")), "expected\n{rows}");
    }
}
