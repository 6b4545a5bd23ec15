//! How much of the time some task waited for a processor.

/// The kernel's count of microseconds in which some task waited, since boot; `None` where it does not
/// keep one (pressure stall information, Documentation/accounting/psi.rst).
pub(super) fn waited_us() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/pressure/cpu").ok()?)
}

fn parse(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_the_some_line_is_read() {
        let text = "some avg10=1.53 avg60=0.87 avg300=0.73 total=70384\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(parse(text), Some(70_384));
        assert_eq!(parse("none of this"), None);
    }
}
