//! Choosing a connection's congestion control, and listing the available ones.

use std::io;

use socket2::{Domain, SockRef, Socket, Type};

use super::LoadError;

/// Returns the congestion controls that the kernel has loaded, separated by spaces. If programs
/// without privileges may use only some of them, lists these, too.
pub fn available_congestion_controls() -> String {
    match (kernel_list("available"), kernel_list("allowed")) {
        (Ok(available), Ok(allowed)) if available != allowed => {
            format!("{available} (without privileges: {allowed})")
        }
        (Ok(available), _) => available,
        (Err(_), _) => "unknown, the kernel does not report them".to_owned(),
    }
}

fn kernel_list(name: &str) -> io::Result<String> {
    let path = format!("/proc/sys/net/ipv4/tcp_{name}_congestion_control");
    Ok(std::fs::read_to_string(path)?.trim().to_owned())
}

/// Sets a TCP socket's congestion control. Connecting may change it back to the route's.
///
/// # Errors
/// Returns [`LoadError::CongestionControl`] if the kernel refuses it, [`LoadError::Parameter`] if
/// `name` is malformed.
pub fn set_congestion_control(socket: &SockRef<'_>, name: &str) -> Result<(), LoadError> {
    if !is_name(name) {
        return Err(LoadError::Parameter {
            name: "congestion control",
            value: format!("{name:?}"),
            accepted: "1 to 15 letters, digits, '_' or '-'",
        });
    }
    set_kernel_option(socket, name).map_err(|source| LoadError::CongestionControl {
        name: name.to_owned(),
        available: available_congestion_controls(),
        source,
    })
}

#[cfg(target_os = "linux")]
fn set_kernel_option(socket: &SockRef<'_>, name: &str) -> io::Result<()> {
    socket.set_tcp_congestion(name.as_bytes())
}

/// The congestion control of every connection on systems without a choice, such as macOS.
#[cfg(not(target_os = "linux"))]
const ONLY: &str = "cubic";

#[cfg(not(target_os = "linux"))]
fn set_kernel_option(_: &SockRef<'_>, name: &str) -> io::Result<()> {
    if name == ONLY { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// Refuses a congestion control that is not loaded. A stranger must not make this machine load a
/// kernel module, which naming an unknown congestion control does in a process with
/// `CAP_NET_ADMIN`. Without it the kernel itself enforces `tcp_allowed_congestion_control`.
///
/// # Errors
/// Returns the reason in words for the client, with the available congestion controls.
pub fn check_present(name: &str) -> Result<(), String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !may_load_modules(&status) {
        return Ok(());
    }
    let available = kernel_list("available").unwrap_or_default();
    if available.split_ascii_whitespace().any(|present| present == name) {
        return Ok(());
    }
    Err(format!("congestion control {name:?} is not loaded here: available are {available}"))
}

/// Returns true unless the effective capabilities are known to lack `CAP_NET_ADMIN`.
fn may_load_modules(status: &str) -> bool {
    const CAP_NET_ADMIN: u64 = 1 << 12;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    capabilities.is_none_or(|capabilities| capabilities & CAP_NET_ADMIN != 0)
}

/// Checks that TCP sockets of this machine support a congestion control.
///
/// # Errors
/// Returns the errors of [`set_congestion_control`]; [`LoadError::Socket`] if no socket can be
/// opened.
pub fn check_congestion_control(name: &str) -> Result<(), LoadError> {
    let opened = Socket::new(Domain::IPV4, Type::STREAM, None);
    let socket = opened.or_else(|_| Socket::new(Domain::IPV6, Type::STREAM, None));
    let (flow, step) = ("check".to_owned(), "opening a socket");
    let socket = socket.map_err(|source| LoadError::Socket { flow, step, source })?;
    set_congestion_control(&SockRef::from(&socket), name)
}

/// Returns the congestion control that a TCP socket uses.
///
/// # Errors
/// Returns the error of the system call.
pub fn congestion_control_of(socket: &SockRef<'_>) -> io::Result<String> {
    #[cfg(target_os = "linux")]
    let name = socket.tcp_congestion()?;
    #[cfg(not(target_os = "linux"))]
    let (name, _) = (ONLY.as_bytes(), socket);
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// The kernel stores 16 bytes for a name, the last of them zero.
pub(super) const NAME_MAX: usize = 15;

pub(super) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_name_only_loaded_congestion_controls() {
        assert!(may_load_modules("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(may_load_modules("CapEff:\t0000000000001000"));
        assert!(!may_load_modules("CapInh:\t0000000000001000\nCapEff:\t0000000000000400"));
        assert!(may_load_modules(""), "unknown capabilities");
        assert_eq!(check_present("reno"), Ok(()));
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let absent = check_present("no-such-thing");
        assert_eq!(absent.is_err(), may_load_modules(&status), "{absent:?}");
    }

    #[test]
    fn an_unknown_congestion_control_lists_the_available_ones() {
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
