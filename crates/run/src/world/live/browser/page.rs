//! The page of the model `web`, as files of a server.

use hyper::body::Bytes;
use underload_sim::application::web::{HTML_BYTES, IMAGE_BYTES, IMAGES, SCRIPT_BYTES};

use super::server::Content;

/// The resources of the page that the model `web` loads.
pub(super) struct Page {
    html: Bytes,
    script: Bytes,
    image: Bytes,
}

/// A GIF of one pixel. Decoders ignore the bytes after its end.
const IMAGE: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\
    \0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

impl Page {
    /// Makes the page. The HTML names its resources in its last bytes, since the model requests
    /// them once it has all of the HTML.
    pub(super) fn new(names_script: bool) -> Self {
        let script = names_script.then(|| "<script src=\"/script.js\"></script>\n".to_owned());
        let images = (0..IMAGES).map(|number| format!("<img src=\"/image/{number}\">\n"));
        let names: String = script.into_iter().chain(images).collect();
        // Without the icon the browser would request one.
        let head = "<!doctype html><title>A page</title><link rel=\"icon\" href=\"data:,\">\n<!--";
        let html = filled(head, HTML_BYTES, &format!("-->\n{names}"));
        let mut image = IMAGE.to_vec();
        image.resize(IMAGE_BYTES as usize, 0);
        let script = filled("/*", SCRIPT_BYTES, "*/\n");
        Self { html: html.into(), script: script.into(), image: image.into() }
    }
}

impl Content for Page {
    fn resource(&self, path: &str) -> Option<(&'static str, Bytes)> {
        let (kind, body) = match path {
            "/" => ("text/html", &self.html),
            "/script.js" => ("text/javascript", &self.script),
            _ if path.starts_with("/image/") => ("image/gif", &self.image),
            _ => return None,
        };
        Some((kind, body.clone()))
    }
}

/// Returns a text of `bytes` that begins with `head` and ends with `tail`.
fn filled(head: &str, bytes: u64, tail: &str) -> String {
    let filler = (bytes as usize).saturating_sub(head.len() + tail.len());
    format!("{head}{}{tail}", " ".repeat(filler))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use underload_scenario::{PageProtocol, Site};
    use underload_sim::application::web::RESPONSE_HEADER_BYTES;

    use super::super::server::Server;
    use super::*;

    /// Serves a page, and returns each whole response.
    fn responses(keeps_alive: bool, names_script: bool, paths: &[&str]) -> Vec<Vec<u8>> {
        let protocol = PageProtocol::Http1;
        let site = Site { protocol, keeps_alive, congestion_control: "reno".to_owned() };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Server::start(listener, &site, Page::new(names_script)).expect("a server");
        let fetch = |path: &&str| {
            let mut stream = std::net::TcpStream::connect(address).expect("a connection");
            let close = if keeps_alive { "Connection: close\r\n" } else { "" };
            let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\n{close}\r\n");
            stream.write_all(request.as_bytes()).expect("it reads");
            let mut response = Vec::new();
            stream.read_to_end(&mut response).expect("it answers, and ends the connection");
            response
        };
        let all = paths.iter().map(fetch).collect();
        assert_eq!(server.connections(), paths.len() as u64);
        all
    }

    #[test]
    fn the_served_page_has_the_sizes_of_the_models() {
        let paths = ["/", "/script.js", "/image/7", "/other"];
        let all = responses(false, true, &paths);
        let parts = |response: &Vec<u8>| {
            let end = response.windows(4).position(|four| four == b"\r\n\r\n").expect("a header");
            (end as u64 + 4, response[end + 4..].to_vec())
        };
        let [html, script, image, other] = [0, 1, 2, 3].map(|index| parts(&all[index]));
        let lengths = [&html, &script, &image, &other].map(|(_, body)| body.len() as u64);
        assert_eq!(lengths, [HTML_BYTES, SCRIPT_BYTES, IMAGE_BYTES, 0]);
        assert_eq!(image.0, RESPONSE_HEADER_BYTES);
        let html = String::from_utf8(html.1).expect("text");
        assert_eq!(html.matches("<img ").count(), IMAGES);
        assert!(html.contains("<script ") && html.ends_with("/image/99\">\n"), "{html}");
        let [kept] = responses(true, false, &["/"]).try_into().expect("one");
        assert!(!String::from_utf8_lossy(&kept).contains("<script "));
        assert!(all[3].starts_with(b"HTTP/1.1 404 "));
    }
}
