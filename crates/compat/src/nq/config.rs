//! The configuration of a responsiveness server, and URLs.

use serde::{Deserialize, Serialize};

use super::NqError;

/// Locations of a server's resources. Written with the draft's keys and with the older ones, which
/// goresponsiveness still requires; read with either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NqConfig {
    /// An object of one byte.
    pub small: NqTarget,
    /// An object of at least 8 GiB.
    pub large: NqTarget,
    /// Accepts any number of bytes.
    pub upload: NqTarget,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NqTarget {
    /// Host name, or address without brackets.
    pub host: String,
    pub port: u16,
    /// With the leading slash.
    pub path: String,
}

#[derive(Deserialize, Serialize)]
struct Wire {
    version: u64,
    urls: Urls,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    test_endpoint: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[expect(clippy::struct_field_names, reason = "the keys of a foreign format")]
struct Urls {
    small_download_url: Option<String>,
    large_download_url: Option<String>,
    upload_url: Option<String>,
    small_https_download_url: Option<String>,
    large_https_download_url: Option<String>,
    https_upload_url: Option<String>,
}

pub(super) const SMALL: &str = "/small";
pub(super) const LARGE: &str = "/large";
pub(super) const UPLOAD: &str = "/upload";
/// Path of the configuration in the current draft.
pub(super) const WELL_KNOWN: &str = "/.well-known/nq";
/// Path of the configuration in older clients.
pub(super) const OLD: &str = "/config";
/// Longest configuration, and longest answer to a probe.
pub(super) const CONFIG_BYTES_MAX: usize = 64 << 10;

const URL_MAX: usize = 2048;

impl NqConfig {
    /// Makes the configuration for a request to `authority` (`HOST[:PORT]`). Returns `None` if
    /// `authority` is malformed: the client's text becomes part of the answer.
    pub fn encode_for(authority: &str) -> Option<Vec<u8>> {
        let target = NqTarget::parse(&format!("https://{authority}/")).ok()?;
        let url = |path| Some(format!("https://{authority}{path}"));
        let wire = Wire {
            version: 1,
            urls: Urls {
                small_download_url: url(SMALL),
                large_download_url: url(LARGE),
                upload_url: url(UPLOAD),
                small_https_download_url: url(SMALL),
                large_https_download_url: url(LARGE),
                https_upload_url: url(UPLOAD),
            },
            test_endpoint: Some(target.host),
        };
        serde_json::to_vec(&wire).ok()
    }

    /// Parses a server's answer.
    ///
    /// # Errors
    /// Returns what is missing or wrong, for a message.
    pub fn decode(json: &[u8]) -> Result<Self, &'static str> {
        let wire: Wire = serde_json::from_slice(json).map_err(|_| "it is not the JSON expected")?;
        if wire.version != 1 {
            return Err("it has another version than 1");
        }
        let urls = wire.urls;
        let target = |new: Option<String>, old: Option<String>| -> Result<_, &'static str> {
            let url = new.or(old).ok_or("a URL is missing")?;
            NqTarget::parse(&url).map_err(|_| "a URL is not https://HOST[:PORT]/PATH")
        };
        let config = Self {
            small: target(urls.small_download_url, urls.small_https_download_url)?,
            large: target(urls.large_download_url, urls.large_https_download_url)?,
            upload: target(urls.upload_url, urls.https_upload_url)?,
        };
        let is_one_host = |other: &NqTarget| other.host == config.small.host;
        if !is_one_host(&config.large) || !is_one_host(&config.upload) {
            return Err("its URLs name different hosts");
        }
        Ok(config)
    }
}

impl NqTarget {
    /// Parses an `https` URL. A missing path is `/`.
    ///
    /// # Errors
    /// Returns [`NqError::Url`] for other text.
    pub fn parse(url: &str) -> Result<Self, NqError> {
        let error = || NqError::Url { url: url.chars().take(100).collect() };
        let rest = url.strip_prefix("https://").filter(|_| url.len() <= URL_MAX);
        let rest = rest.ok_or_else(error)?;
        let path_at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(error)?,
            None => authority.find(':').map_or((authority, ""), |at| authority.split_at(at)),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(error)?,
            None if port.is_empty() => 443,
            None => return Err(error()),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        let is_host = !host.is_empty() && host.len() <= 255 && host.bytes().all(plain);
        if !is_host || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(error());
        }
        Ok(Self { host: host.to_owned(), port, path })
    }

    /// Returns `HOST:PORT`, with brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_urls_are_parsed_and_other_texts_refused() {
        for (url, host, port, path) in [
            ("https://a.example", "a.example", 443, "/"),
            ("https://a.example:4043/x?y=1", "a.example", 4043, "/x?y=1"),
            ("https://[2001:db8::1]:8443/z", "2001:db8::1", 8443, "/z"),
            ("https://[::1]", "::1", 443, "/"),
        ] {
            let target = NqTarget::parse(url).unwrap();
            assert_eq!(
                (target.host.as_str(), target.port, target.path.as_str()),
                (host, port, path)
            );
        }
        for url in [
            "http://a/", "https://", "https://a:0/", "https://a b/", "https://[::1/",
            "https://a/\n",
        ] {
            assert!(NqTarget::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn our_configuration_has_old_and_new_keys_and_is_read_back() {
        let json = NqConfig::encode_for("a.example:4043").unwrap();
        let text = String::from_utf8(json.clone()).unwrap();
        for key in ["\"small_download_url\"", "\"large_https_download_url\"", "\"test_endpoint\""] {
            assert!(text.contains(key), "{text}");
        }
        let config = NqConfig::decode(&json).unwrap();
        assert_eq!(config.upload.path, "/upload");
        assert_eq!(config.small.port, 4043);
        assert!(NqConfig::encode_for("a\"b").is_none());
        let old = text.replace("_download_url", "_x").replace("_https_x", "_https_download_url");
        assert_eq!(NqConfig::decode(old.as_bytes()), Ok(config));
    }

    /// The keys of both companies' documents, whose test may be at another host.
    #[test]
    fn documents_of_public_servers_name_the_host_that_is_measured() {
        let old = r#"{"version":1,"test_endpoint":"edge.a.example","urls":{
            "small_https_download_url":"https://a.example/api/v1/gm/small",
            "large_https_download_url":"https://a.example/api/v1/gm/large",
            "https_upload_url":"https://a.example/api/v1/gm/slurp"}}"#;
        let both = r#"{"version":1,"urls":{
            "small_download_url":"https://h3.b.example/__down?bytes=10",
            "large_download_url":"https://h3.b.example/__down?bytes=1000",
            "small_https_download_url":"https://h3.b.example/__down?bytes=10",
            "large_https_download_url":"https://h3.b.example/__down?bytes=1000",
            "upload_url":"https://h3.b.example/__up","https_upload_url":"https://h3.b.example/__up"}}"#;
        for (json, host, small) in
            [(old, "a.example", "/api/v1/gm/small"), (both, "h3.b.example", "/__down?bytes=10")]
        {
            let config = NqConfig::decode(json.as_bytes()).unwrap();
            assert_eq!((config.small.host.as_str(), config.small.path.as_str()), (host, small));
            assert_eq!(config.upload.host, host);
        }
    }

    #[test]
    fn configurations_that_cannot_be_used_are_refused_in_words() {
        for (json, word) in [
            ("[]", "JSON"),
            (r#"{"version":2,"urls":{}}"#, "version"),
            (r#"{"version":1,"urls":{}}"#, "missing"),
            (r#"{"version":1,"urls":{"small_download_url":"http://a/"}}"#, "https"),
            (
                r#"{"version":1,"urls":{"small_download_url":"https://a/",
                   "large_download_url":"https://b/","upload_url":"https://a/"}}"#,
                "different",
            ),
        ] {
            let error = NqConfig::decode(json.as_bytes()).unwrap_err();
            assert!(error.contains(word), "{json}: {error}");
        }
    }
}
