//! A TCP connection of an application: requests up, responses down, one exchange at a time.
//!
//! Each direction is a TCP of the engine with separate congestion control. The client performs the
//! handshake; the server's direction opens when the first request arrives, with the handshake as
//! its first round trip sample. Differences from a real connection: the closing handshake is
//! missing, and acknowledgements are never combined with data of the other direction.

use underload_aqm::packet::Packet;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;
use underload_record::schema::Direction;

use crate::endpoint::{Endpoint, Port};
use crate::net::{Body, Segment};
use crate::tcp::{Tcp, TcpConfig};

pub(super) struct Connection {
    pub(super) channel: u16,
    up: Tcp,
    down: Tcp,
    /// When the server answered the connection request; `None` if the request was repeated.
    answered: Option<Time>,
    requests: u32,
    accepted: bool,
    /// Bytes received by the server when the current request is complete.
    request_end: u64,
    /// Bytes of the response to the current request.
    response: u64,
    /// Bytes received by the client when the current response is complete.
    response_end: u64,
    answering: bool,
}

impl Connection {
    /// Sends the first segment of the handshake.
    pub(super) fn open(port: &mut Port<'_>, channel: u16, config: &TcpConfig, rng: &Rng) -> Self {
        let config = TcpConfig { transfer_bytes: Some(0), ..config.clone() };
        let rng = rng.child(&format!("connection {channel}"));
        let mut connection = Self {
            channel,
            up: Tcp::new(&config, Direction::Up, rng.child("up")),
            down: Tcp::new(&config, Direction::Down, rng.child("down")),
            answered: None,
            requests: 0,
            accepted: false,
            request_end: 0,
            response: 0,
            response_end: 0,
            answering: true,
        };
        connection.up.start(&mut port.channel(channel));
        connection
    }

    /// Sends a request, now or once connected. The previous exchange must be complete.
    pub(super) fn fetch(&mut self, port: &mut Port<'_>, request: u64, response: u64) {
        self.request_end += request;
        self.response = response;
        self.answering = false;
        self.up.write(&mut port.channel(self.channel), request);
    }

    /// Handles a packet of this connection; returns true if it completes the response.
    pub(super) fn receive(
        &mut self,
        port: &mut Port<'_>,
        direction: Direction,
        packet: &Packet<Segment>,
    ) -> bool {
        let port = &mut port.channel(self.channel);
        let body = packet.payload.body;
        match (body, direction) {
            (Body::Syn, _) => {
                self.requests += 1;
                self.answered = (self.requests == 1).then_some(port.now);
                self.up.receive(port, direction, packet);
            }
            (Body::SynAck, _)
            | (Body::Data(_), Direction::Up)
            | (Body::Ack(_), Direction::Down) => {
                self.up.receive(port, direction, packet);
            }
            _ => self.down.receive(port, direction, packet),
        }
        match direction {
            Direction::Up => {
                self.serve(port, &body);
                false
            }
            Direction::Down => self.answering && self.complete_response(),
        }
    }

    /// Handles an arrival at the server.
    fn serve(&mut self, port: &mut Port<'_>, body: &Body) {
        if let (Body::Data(data), false) = (body, self.accepted) {
            let answered = self.answered.filter(|_| !data.retransmission);
            self.down.accept(port.now, answered.map(|answered| port.now.since(answered)));
            self.accepted = true;
        }
        if !self.answering && self.up.received_bytes() >= self.request_end {
            self.answering = true;
            self.response_end += self.response;
            self.down.write(port, self.response);
        }
    }

    /// Returns true once, when the response is complete.
    fn complete_response(&mut self) -> bool {
        let complete = self.response > 0 && self.down.received_bytes() >= self.response_end;
        if complete {
            self.response = 0;
        }
        complete
    }

    pub(super) fn on_timer(&mut self, port: &mut Port<'_>) {
        let port = &mut port.channel(self.channel);
        for half in [&mut self.up, &mut self.down] {
            if half.deadline() <= port.now {
                half.on_timer(port);
            }
        }
    }

    pub(super) fn deadline(&self) -> Time {
        self.up.deadline().min(self.down.deadline())
    }
}
