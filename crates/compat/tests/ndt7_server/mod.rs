//! A small ndt7 server, and servers that break the protocol, over loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};
use underload_compat::ndt7::SUBPROTOCOL;
use underload_probe::control::Fingerprint;
use underload_service::Identity;

type Web = WebSocket<StreamOwned<ServerConnection, TcpStream>>;

/// The behaviour of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each test has its own part of it")]
pub enum Manner {
    Honest,
    /// Sends load without measurements.
    Silent,
    /// Reads uploads as slowly as a narrow line carries them.
    Slow,
    /// Sends load in an upload test.
    LoadsInstead,
    /// Sends one message above the size limit.
    TooLarge,
    /// Sends text that is not a measurement, without end.
    Babbles,
    Closes,
    /// Ends the connection within a message.
    Breaks,
    /// Answers with status 403.
    Forbids,
    /// Opens a WebSocket of another subprotocol.
    OtherProtocol,
    /// Begins a message and continues it with empty frames, past the end of any test.
    Fragments,
    /// Sends pings and reads no answer.
    Pings,
    /// Completes the TLS handshake and then sends nothing.
    Stalls,
}

/// Length of a download.
const LENGTH: Duration = Duration::from_millis(2_500);

/// Starts a server whose threads end with the connections of its test.
pub fn server(manner: Manner) -> (SocketAddr, Fingerprint) {
    let identity = Identity::generate().unwrap();
    let fingerprint = identity.fingerprint();
    let tls = identity.server_config().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let tls = Arc::clone(&tls);
            std::thread::spawn(move || serve(manner, stream, tls));
        }
    });
    (address, fingerprint)
}

fn serve(manner: Manner, stream: TcpStream, tls: Arc<ServerConfig>) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut stream = StreamOwned::new(ServerConnection::new(tls).unwrap(), stream);
    if manner == Manner::Stalls {
        // Until the client leaves.
        let _ = stream.read_to_end(&mut Vec::new());
        return;
    }
    let mut path = String::new();
    // The library requires this type.
    #[expect(clippy::result_large_err, reason = "the signature is the library's")]
    let upgrade = |request: &Request, mut response: Response| {
        request.uri().path().clone_into(&mut path);
        let named = request.headers().get("Sec-WebSocket-Protocol");
        assert_eq!(named.unwrap().to_str().unwrap(), SUBPROTOCOL);
        assert!(request.uri().query().unwrap().contains("client_name=underload"));
        assert!(request.headers().contains_key("User-Agent"));
        if manner == Manner::Forbids {
            let mut refusal = ErrorResponse::new(Some("not you".to_owned()));
            *refusal.status_mut() = tungstenite::http::StatusCode::FORBIDDEN;
            return Err(refusal);
        }
        let agreed = if manner == Manner::OtherProtocol { "chat" } else { SUBPROTOCOL };
        response.headers_mut().insert("Sec-WebSocket-Protocol", agreed.parse().unwrap());
        Ok(response)
    };
    let config = WebSocketConfig::default().write_buffer_size(0);
    let Ok(mut web) = tungstenite::accept_hdr_with_config(stream, upgrade, Some(config)) else {
        return;
    };
    // The client's results are checked, not the server's.
    let _ = match (manner, path.as_str()) {
        (Manner::Closes, _) => web.close(None).and_then(|()| drain(&mut web)),
        (Manner::LoadsInstead, _) | (_, "/ndt/v7/download") => load(&mut web, manner),
        (_, "/ndt/v7/upload") => take(&mut web, manner),
        _ => Ok(()),
    };
}

fn load(web: &mut Web, manner: Manner) -> tungstenite::Result<()> {
    let start = Instant::now();
    let (mut sent, mut told) = (0_u64, Instant::now());
    if manner == Manner::TooLarge {
        web.send(Message::binary(vec![0; (1 << 24) + 1]))?;
    }
    if manner == Manner::Breaks {
        web.send(Message::binary(vec![0; 1 << 16]))?;
        // The header of a frame of 64 KiB, and a part of the frame.
        web.get_mut().write_all(&[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3])?;
        std::thread::sleep(Duration::from_millis(400));
        return Ok(());
    }
    if manner == Manner::Fragments {
        web.get_mut().write_all(&[0x01, 0])?;
        while start.elapsed() < 4 * LENGTH {
            web.get_mut().write_all(&[0; 2 << 10])?;
        }
        return Ok(());
    }
    while manner == Manner::Pings && start.elapsed() < 4 * LENGTH {
        web.get_mut().write_all(&[&[0x89, 125][..], &[0; 125]].concat())?;
    }
    while start.elapsed() < LENGTH {
        if manner == Manner::Babbles {
            web.send(Message::text("{\"TCPInfo\":".repeat(20)))?;
        }
        web.send(Message::binary(vec![0; 1 << 13]))?;
        sent += 1 << 13;
        if manner == Manner::Honest && told.elapsed() > Duration::from_millis(100) {
            told = Instant::now();
            web.send(Message::Ping(vec![1, 2, 3].into()))?;
            let us = start.elapsed().as_micros();
            web.send(Message::text(format!(
                "{{\"AppInfo\":{{\"NumBytes\":{sent},\"ElapsedTime\":{us}}},\"TCPInfo\":{{\
                 \"RTT\":42000,\"MinRTT\":20000,\"BytesSent\":1000,\"BytesRetrans\":20}}}}"
            )))?;
        }
    }
    web.close(None)?;
    drain(web)
}

fn take(web: &mut Web, manner: Manner) -> tungstenite::Result<()> {
    let (start, mut told, mut taken) = (Instant::now(), Instant::now(), 0);
    loop {
        let message = web.read()?;
        assert!(!message.is_text(), "a client that only loads sends no text");
        taken += message.len();
        if manner == Manner::Slow {
            std::thread::sleep(Duration::from_millis(30));
        }
        if told.elapsed() > Duration::from_millis(100) {
            told = Instant::now();
            let us = start.elapsed().as_micros();
            web.send(Message::text(format!(
                "{{\"TCPInfo\":{{\"BytesReceived\":{taken},\"ElapsedTime\":{us},\"RTT\":9}}}}"
            )))?;
        }
    }
}

fn drain(web: &mut Web) -> tungstenite::Result<()> {
    loop {
        web.read()?;
    }
}
