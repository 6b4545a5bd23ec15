//! A device whose rates follow its line.

use std::fmt::Write as _;

use underload_record::schema::PerDirection;
use underload_tc::printed::Device;

use super::error::ChangeError;
use super::session::{Session, sent_bytes};
use crate::auto::{Answer, Bounds, Decision, Follower, Reading};
use crate::plan::ifb_name;
use crate::request::Request;

/// A shaped line that is being followed.
#[derive(Debug)]
pub struct FollowedLine<'a> {
    session: &'a Session,
    device: Device,
    /// The request with the rates that are in force.
    request: Request,
    followed: PerDirection<Option<Followed>>,
}

/// A direction that is followed.
#[derive(Debug)]
struct Followed {
    /// The device that counts what the shaper sends.
    place: String,
    follower: Follower,
    last: Option<Decision>,
}

impl<'a> FollowedLine<'a> {
    /// Returns a line that is shaped as requested, to follow within these bounds.
    pub fn new(
        session: &'a Session,
        device: Device,
        request: Request,
        bounds: PerDirection<Option<Bounds>>,
    ) -> Self {
        let places = PerDirection::new(device.name.clone(), ifb_name(device.index));
        let followed = PerDirection::from_fn(|direction| {
            let follower = Follower::new(direction, bounds[direction]?);
            Some(Followed { place: places[direction].clone(), follower, last: None })
        });
        Self { session, device, request, followed }
    }

    /// Lets each direction's rule decide, and changes rates that differ by 1 % or more.
    ///
    /// # Errors
    /// Returns [`ChangeError`].
    pub fn decide(&mut self, time_ms: u64, answers: &[Answer]) -> Result<(), ChangeError> {
        let mut wanted = self.request.clone();
        for (direction, followed) in self.followed.as_mut() {
            let Some(followed) = followed else { continue };
            let sent_bytes = sent_bytes(&followed.place)?;
            let decision = followed.follower.decide(&Reading { time_ms, answers, sent_bytes });
            followed.last = Some(decision);
            let present = self.request.rates[direction].unwrap_or_default().bits_per_second();
            if decision.rate.bits_per_second().abs_diff(present) > present / 100 {
                wanted.rates[direction] = Some(decision.rate);
            }
        }
        if wanted != self.request {
            self.session.change_rates(&self.device, &self.request, &wanted)?;
            self.request = wanted;
        }
        Ok(())
    }

    /// Returns the present rates, and the reasons of the last decisions, in a line.
    pub fn report(&self) -> String {
        let mut text = self.device.name.clone();
        let mut separator = ":";
        for (direction, followed) in self.followed.iter() {
            let Some(followed) = followed else { continue };
            let mbit = followed.follower.rate().bits_per_second() as f64 / 1e6;
            let _ = write!(text, "{separator} {} {mbit:.2} Mbit/s", direction.name());
            if let Some(decision) = followed.last {
                let _ = write!(text, " ({})", decision.reason);
            }
            separator = ",";
        }
        text + "\n"
    }

    /// Checks that underload still shapes the device.
    ///
    /// # Errors
    /// Returns [`ChangeError::Ended`].
    pub fn check(&self) -> Result<(), ChangeError> {
        let error = || ChangeError::Ended { device: self.device.name.clone() };
        self.session.is_shaped(&self.device).then_some(()).ok_or_else(error)
    }
}
