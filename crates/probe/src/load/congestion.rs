//! Naming a connection's congestion control, and saying what there is instead.

use std::io;

use socket2::{Domain, SockRef, Socket, Type};

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
    choose(socket, name).map_err(refused)
}

#[cfg(target_os = "linux")]
fn choose(socket: &SockRef<'_>, name: &str) -> io::Result<()> {
    socket.set_tcp_congestion(name.as_bytes())
}

/// What every connection has where there is nothing to choose from, as macOS.
#[cfg(not(target_os = "linux"))]
const ONLY: &str = "cubic";

#[cfg(not(target_os = "linux"))]
fn choose(_: &SockRef<'_>, name: &str) -> io::Result<()> {
    if name == ONLY { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// A stranger may not make this machine load a kernel module, which naming an unknown congestion
/// control does where the process has `CAP_NET_ADMIN`. Elsewhere the kernel keeps to
/// `tcp_allowed_congestion_control` by itself.
///
/// # Errors
/// Refuses a congestion control that this machine's kernel does not have, naming those it has.
pub fn check_present(name: &str) -> Result<(), String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !may_load_modules(&status) {
        return Ok(());
    }
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = std::fs::read_to_string(path).unwrap_or_default();
    if available.split_ascii_whitespace().any(|present| present == name) {
        return Ok(());
    }
    let available = available.trim();
    Err(format!("congestion control {name:?} is not loaded here: available are {available}"))
}

/// True unless the effective capabilities are known to lack `CAP_NET_ADMIN`.
fn may_load_modules(status: &str) -> bool {
    const CAP_NET_ADMIN: u64 = 1 << 12;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    capabilities.is_none_or(|capabilities| capabilities & CAP_NET_ADMIN != 0)
}

/// Whether a TCP socket of this machine could have that congestion control.
///
/// # Errors
/// As [`set_congestion_control`]; [`LoadError::Socket`] where there is no socket to ask.
pub fn check_congestion_control(name: &str) -> Result<(), LoadError> {
    let opened = Socket::new(Domain::IPV4, Type::STREAM, None);
    let socket = opened.or_else(|_| Socket::new(Domain::IPV6, Type::STREAM, None));
    let (flow, step) = ("check".to_owned(), "opening a socket");
    let socket = socket.map_err(|source| LoadError::Socket { flow, step, source })?;
    set_congestion_control(&SockRef::from(&socket), name)
}

/// The congestion control that a TCP socket uses.
///
/// # Errors
/// What the system call said.
pub fn congestion_control_of(socket: &SockRef<'_>) -> io::Result<String> {
    #[cfg(target_os = "linux")]
    let name = socket.tcp_congestion()?;
    #[cfg(not(target_os = "linux"))]
    let (name, _) = (ONLY.as_bytes(), socket);
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// The kernel keeps 16 bytes for a name, the last of them zero.
pub(super) const NAME_MAX: usize = 15;

pub(super) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_names_only_what_is_loaded() {
        assert!(may_load_modules("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(may_load_modules("CapEff:\t0000000000001000"));
        assert!(!may_load_modules("CapInh:\t0000000000001000\nCapEff:\t0000000000000400"));
        assert!(may_load_modules(""), "who knows");
        assert_eq!(check_present("reno"), Ok(()));
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let absent = check_present("no-such-thing");
        assert_eq!(absent.is_err(), may_load_modules(&status), "{absent:?}");
    }

    #[test]
    fn an_unknown_name_is_answered_with_what_there_is() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let error = set_congestion_control(&SockRef::from(&socket), "no-such-thing").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no-such-thing") && text.contains("reno"), "{text}");
        let error = set_congestion_control(&SockRef::from(&socket), "a b").unwrap_err();
        assert!(matches!(error, LoadError::Parameter { .. }));
        set_congestion_control(&SockRef::from(&socket), "reno").unwrap();
        check_congestion_control("reno").unwrap();
        check_congestion_control("no-such-thing").unwrap_err();
        let name = socket.tcp_congestion().unwrap();
        assert!(name.starts_with(b"reno"));
    }
}
