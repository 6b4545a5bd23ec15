//! Naming a connection's congestion control, and saying what there is instead.

use std::io;

use socket2::SockRef;

use super::LoadError;

/// Congestion controls that the kernel has, separated by spaces; those of `tcp_allowed` where only
/// these may be used. Modules that are not loaded are not in the list.
pub fn available_congestion_controls() -> String {
    let read = |name: &str| {
        let path = format!("/proc/sys/net/ipv4/tcp_{name}_congestion_control");
        std::fs::read_to_string(path).map(|text| text.trim().to_owned())
    };
    match (read("available"), read("allowed")) {
        (Ok(available), Ok(allowed)) if available != allowed => {
            format!("{available} (without privileges: {allowed})")
        }
        (Ok(available), _) => available,
        (Err(_), _) => "unknown, the kernel does not tell".to_owned(),
    }
}

/// Sets a TCP socket's congestion control. Connecting may change it back to the route's.
///
/// # Errors
/// [`LoadError::CongestionControl`] with what is available, [`LoadError::Parameter`] for a name
/// that cannot be one.
pub fn set_congestion_control(socket: &SockRef<'_>, name: &str) -> Result<(), LoadError> {
    if !is_name(name) {
        return Err(LoadError::Parameter {
            name: "congestion control",
            value: format!("{name:?}"),
            accepted: "1 to 15 letters, digits, '_' or '-'",
        });
    }
    let refused = |source: io::Error| LoadError::CongestionControl {
        name: name.to_owned(),
        available: available_congestion_controls(),
        source,
    };
    socket.set_tcp_congestion(name.as_bytes()).map_err(refused)
}

/// What a TCP socket's congestion control is.
pub(super) fn congestion_control_of(socket: &SockRef<'_>) -> io::Result<String> {
    let name = socket.tcp_congestion()?;
    let end = name.iter().position(|octet| *octet == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// The kernel keeps 16 octets for a name, the last of them zero.
pub(super) const NAME_MAX: usize = 15;

pub(super) fn is_name(name: &str) -> bool {
    let allowed = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_' || octet == b'-';
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};

    #[test]
    fn an_unknown_name_is_answered_with_what_there_is() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let error = set_congestion_control(&SockRef::from(&socket), "no-such-thing").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no-such-thing") && text.contains("reno"), "{text}");
        let error = set_congestion_control(&SockRef::from(&socket), "a b").unwrap_err();
        assert!(matches!(error, LoadError::Parameter { .. }));
        set_congestion_control(&SockRef::from(&socket), "reno").unwrap();
        let name = socket.tcp_congestion().unwrap();
        assert!(name.starts_with(b"reno"));
    }
}
