//! Numbers for the record, and random ones.

use underload_aqm::rng::Rng;
use underload_record::schema::Metric;

/// A number for the record.
pub(super) fn metric(name: impl Into<String>, unit: &str, value: Option<f64>) -> Metric {
    Metric { name: name.into(), unit: unit.to_owned(), value }
}

/// `part` of `whole` in percent; `None` of nothing.
pub(super) fn percent(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// A number of the standard normal distribution (Box and Muller), within three deviations.
pub(super) fn normal(rng: &mut Rng) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(uniform(rng)));
    let angle = 2.0 * std::f64::consts::PI * uniform(rng);
    (radius * libm::cos(angle)).clamp(-3.0, 3.0)
}

/// A uniform number in (0, 1].
pub(in crate::application) fn uniform(rng: &mut Rng) -> f64 {
    (f64::from(rng.next_u32()) + 1.0) / 4_294_967_296.0
}
