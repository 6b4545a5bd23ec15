//! Metrics for the record, and random numbers.

use underload_aqm::rng::Rng;
use underload_record::schema::Metric;

pub fn metric(name: impl Into<String>, unit: &str, value: Option<f64>) -> Metric {
    Metric { name: name.into(), unit: unit.to_owned(), value }
}

/// Returns `part` of `whole` in percent; `None` if `whole` is 0.
pub(super) fn percent(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// Draws from the standard normal distribution (Box and Muller), clamped to three deviations.
pub(super) fn normal(rng: &mut Rng) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(uniform(rng)));
    let angle = 2.0 * std::f64::consts::PI * uniform(rng);
    (radius * libm::cos(angle)).clamp(-3.0, 3.0)
}

/// Draws a uniform number in (0, 1].
pub(in crate::application) fn uniform(rng: &mut Rng) -> f64 {
    (f64::from(rng.next_u32()) + 1.0) / 4_294_967_296.0
}
