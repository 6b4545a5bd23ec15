//! The BPF programs that lead a device's packets through TUN devices, and back to the device.
//!
//! They are attached as TCX links (Linux 6.6), which last as long as their descriptors: the kernel
//! detaches them when this process ends, however it does. Interface numbers are parts of the code,
//! so the programs are assembled here, without an object file.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::sys;

/// A direction of a device, with the numbers of `enum bpf_attach_type` in `linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Packets that the device receives.
    Ingress = 46,
    /// Packets that the device sends.
    Egress = 47,
}

/// A detour of a device's packets. Dropping it ends the detour.
#[derive(Debug)]
pub struct Detour {
    _links: [OwnedFd; 2],
    _headers: OwnedFd,
}

/// The devices of a detour, by their numbers.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub device: u32,
    pub hook: Hook,
    /// Whether the device's packets begin with an Ethernet header.
    pub has_ethernet: bool,
    /// The TUN device that the program sends packets to.
    pub away: u32,
    /// The TUN device from which packets return.
    pub back: u32,
    /// The mark by which the device's program knows packets that return; the program clears it.
    pub mark: u32,
}

impl Detour {
    /// Leads the packets of `route` away from now on. The program is the first of the device, so
    /// that programs of others see each packet once, when it has returned.
    ///
    /// # Errors
    /// `InvalidInput` if the kernel has no TCX links, `Unsupported` if it has no BPF.
    pub fn start(route: &Route) -> io::Result<Self> {
        let headers = sys::create_recent_map(KEY_BYTES, ADDRESSES_BYTES, HEADERS_MAX)?;
        let [away, back] = [away(route, &headers), back(route, &headers)]
            .map(|code| sys::load_program(&code.finish()));
        let back = sys::attach_program(&back?, route.back, Hook::Ingress as u32)?;
        // The way back comes first: what is led away can return from the first packet on.
        let away = sys::attach_program(&away?, route.device, route.hook as u32)?;
        Ok(Self { _links: [away, back], _headers: headers })
    }
}

/// Addresses of source and destination, IPv4 or IPv6.
const KEY_BYTES: u32 = 32;
/// Ethernet addresses of destination and source.
const ADDRESSES_BYTES: u32 = 12;
const ETHERNET_BYTES: i32 = 14;
/// Pairs of hosts whose Ethernet addresses are stored, the most recent ones; 1.8 MB.
const HEADERS_MAX: u32 = 16_384;

/// Positions on the stack of a program, from its end.
const KEY: i16 = -32;
const HEADER: i16 = -48;

/// Fields of `struct __sk_buff` in `linux/bpf.h`.
const MARK: i16 = 8;
const PROTOCOL: i16 = 16;
const VLAN_PRESENT: i16 = 20;

/// Functions of the kernel, by their numbers in `linux/bpf.h`.
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const STORE_BYTES: i32 = 9;
const REDIRECT: i32 = 23;
const LOAD_BYTES: i32 = 26;
const CHANGE_HEAD: i32 = 43;

/// Results of a program: the next program's turn, and the end of the packet.
const NEXT: i32 = -1;
const DROP: i32 = 2;

const IPV4: i32 = 0x0800_u16.to_be() as i32;
const IPV6: i32 = 0x86dd_u16.to_be() as i32;

/// Registers: 1 to 5 are arguments of functions, 0 is their result, 6 to 9 outlive calls.
const CONTEXT: u8 = 6;
const FRAME: u8 = 10;

/// Returns the program of the device. Only unicast of IPv4 and IPv6 without a VLAN tag leaves it.
fn away(route: &Route, headers: &OwnedFd) -> Code {
    let mut code = Code::default();
    code.copy(CONTEXT, 1);
    code.load(2, CONTEXT, MARK);
    code.jump_if(EQUAL, 2, route.mark as i32, Label::Returned);
    code.load(2, CONTEXT, VLAN_PRESENT);
    code.jump_if(NOT_EQUAL, 2, 0, Label::Refused);
    let header = if route.has_ethernet { ETHERNET_BYTES } else { 0 };
    code.load_addresses(header);
    if route.has_ethernet {
        code.load_bytes(0, HEADER, ADDRESSES_BYTES as i32);
        code.load_byte(2, FRAME, HEADER);
        // The lowest bit of the first byte of broadcast and multicast.
        code.jump_if(ANY_BIT, 2, 1, Label::Refused);
        code.map(headers);
        code.stack(3, HEADER);
        code.set(4, 0);
        code.call(MAP_UPDATE);
        code.jump_if(NOT_EQUAL, 0, 0, Label::Refused);
    }
    code.redirect(route.away, 0);
    code.place(Label::Returned);
    code.set(2, 0);
    code.store(CONTEXT, MARK, 2);
    code.place(Label::Refused);
    code.set(0, NEXT);
    code.end();
    code
}

/// Returns the program of the TUN device from which packets return.
fn back(route: &Route, headers: &OwnedFd) -> Code {
    const TO_INGRESS: i32 = 1;
    let mut code = Code::default();
    code.copy(CONTEXT, 1);
    code.load_addresses(0);
    if route.has_ethernet {
        code.map(headers);
        code.call(MAP_LOOKUP);
        code.jump_if(EQUAL, 0, 0, Label::Refused);
        for offset in [0, 4, 8] {
            code.load(2, 0, offset);
            code.store(FRAME, HEADER + offset, 2);
        }
        code.load(2, CONTEXT, PROTOCOL);
        code.store_half(FRAME, HEADER + ADDRESSES_BYTES as i16, 2);
        code.copy(1, CONTEXT);
        code.set(2, ETHERNET_BYTES);
        code.set(3, 0);
        code.call(CHANGE_HEAD);
        code.jump_if(NOT_EQUAL, 0, 0, Label::Refused);
        code.copy(1, CONTEXT);
        code.set(2, 0);
        code.stack(3, HEADER);
        code.set(4, ETHERNET_BYTES);
        code.set(5, 0);
        code.call(STORE_BYTES);
        code.jump_if(NOT_EQUAL, 0, 0, Label::Refused);
    }
    code.set(2, route.mark as i32);
    code.store(CONTEXT, MARK, 2);
    code.redirect(route.device, if route.hook == Hook::Ingress { TO_INGRESS } else { 0 });
    code.place(Label::Refused);
    code.set(0, DROP);
    code.end();
    code
}

/// A place that jumps lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Load,
    Returned,
    Refused,
}

/// Conditions of jumps: the register is the number, differs from it, or shares a bit with it.
const EQUAL: u8 = 0x10;
const NOT_EQUAL: u8 = 0x50;
const ANY_BIT: u8 = 0x40;

/// Instructions (RFC 9669) with jumps whose targets follow.
#[derive(Debug, Default)]
struct Code {
    instructions: Vec<[u8; 8]>,
    jumps: Vec<(usize, Label)>,
}

impl Code {
    fn push(&mut self, code: u8, [to, from]: [u8; 2], offset: i16, number: i32) {
        let registers =
            if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        let ([o0, o1], [n0, n1, n2, n3]) = (offset.to_ne_bytes(), number.to_ne_bytes());
        self.instructions.push([code, registers, o0, o1, n0, n1, n2, n3]);
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.push(0xbf, [to, from], 0, 0);
    }

    fn set(&mut self, to: u8, number: i32) {
        self.push(0xb7, [to, 0], 0, number);
    }

    /// Sets a register to an address on the stack.
    fn stack(&mut self, to: u8, position: i16) {
        self.copy(to, FRAME);
        self.push(0x07, [to, 0], 0, i32::from(position));
    }

    fn load(&mut self, to: u8, base: u8, offset: i16) {
        self.push(0x61, [to, base], offset, 0);
    }

    fn load_byte(&mut self, to: u8, base: u8, offset: i16) {
        self.push(0x71, [to, base], offset, 0);
    }

    fn store(&mut self, base: u8, offset: i16, from: u8) {
        self.push(0x63, [base, from], offset, 0);
    }

    fn store_half(&mut self, base: u8, offset: i16, from: u8) {
        self.push(0x6b, [base, from], offset, 0);
    }

    fn call(&mut self, function: i32) {
        self.push(0x85, [0, 0], 0, function);
    }

    fn end(&mut self) {
        self.push(0x95, [0, 0], 0, 0);
    }

    fn jump_if(&mut self, condition: u8, register: u8, number: i32, target: Label) {
        self.jumps.push((self.instructions.len(), target));
        self.push(0x05 | condition, [register, 0], 0, number);
    }

    fn place(&mut self, label: Label) {
        let here = self.instructions.len();
        for (jump, _) in self.jumps.extract_if(.., |(_, target)| *target == label) {
            let offset = (here - jump - 1) as i16;
            self.instructions[jump][2..4].copy_from_slice(&offset.to_ne_bytes());
        }
    }

    /// Sets the first two arguments to the map of headers and to the key.
    fn map(&mut self, headers: &OwnedFd) {
        const DESCRIPTOR: u8 = 1;
        self.push(0x18, [1, DESCRIPTOR], 0, headers.as_raw_fd());
        self.push(0, [0, 0], 0, 0);
        self.stack(2, KEY);
    }

    /// Reads bytes of the packet to the stack. A packet that is too short is refused.
    fn load_bytes(&mut self, offset: i32, position: i16, length: i32) {
        self.set(2, offset);
        self.set(4, length);
        self.load_bytes_of_registers(position);
    }

    /// As [`Code::load_bytes`], with offset and length in registers 2 and 4.
    fn load_bytes_of_registers(&mut self, position: i16) {
        self.copy(1, CONTEXT);
        self.stack(3, position);
        self.call(LOAD_BYTES);
        self.jump_if(NOT_EQUAL, 0, 0, Label::Refused);
    }

    /// Reads the IP addresses of a packet whose IP header begins at `header` into the key. Other
    /// packets are refused.
    fn load_addresses(&mut self, header: i32) {
        const IPV4_ADDRESSES: i32 = 12;
        const IPV6_ADDRESSES: i32 = 8;
        self.set(0, 0);
        for offset in (0..KEY_BYTES as i16).step_by(4) {
            self.store(FRAME, KEY + offset, 0);
        }
        self.load(7, CONTEXT, PROTOCOL);
        self.set(2, header + IPV4_ADDRESSES);
        self.set(4, 8);
        self.jump_if(EQUAL, 7, IPV4, Label::Load);
        self.jump_if(NOT_EQUAL, 7, IPV6, Label::Refused);
        self.set(2, header + IPV6_ADDRESSES);
        self.set(4, KEY_BYTES as i32);
        self.place(Label::Load);
        self.load_bytes_of_registers(KEY);
    }

    /// Ends the program, and the packet's way goes on at another device.
    fn redirect(&mut self, device: u32, flags: i32) {
        self.set(1, device as i32);
        self.set(2, flags);
        self.call(REDIRECT);
        self.end();
    }

    fn finish(self) -> Vec<[u8; 8]> {
        debug_assert!(self.jumps.is_empty(), "each label of a jump is placed");
        self.instructions
    }
}
