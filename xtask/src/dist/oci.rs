//! The images of `underload serve` and of an orchestrator, each as an OCI layout in a tar file: a
//! static program from scratch, for every machine that it was built for, run as a normal user.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

use super::archive::{Entry, gzip, sha256, tar, with_folders};
use super::{Built, Program, Target, time};

const USER: u32 = 4870;

/// The properties in which the images differ.
struct Image {
    program: Program,
    ports: &'static [&'static str],
    /// Default arguments of the program (`Cmd` in the image's configuration).
    command: &'static [&'static str],
}

const IMAGES: [Image; 2] = [
    // The certificate is at its usual place, where `serve token new` reads it.
    Image {
        program: Program::Whole,
        ports: &["4862/tcp", "4862/udp"],
        command: &["serve", "--bind", "0.0.0.0", "--bind", "::", "--token-keys", "/state/keys"],
    },
    Image {
        program: Program::Fleet,
        ports: &["4870/tcp"],
        command: &["orchestrator", "--listen", "[::]:4870"],
    },
];

/// A blob of the layout, named by its digest.
struct Blob {
    bytes: Vec<u8>,
    kind: &'static str,
}

impl Blob {
    fn json(value: &Value, kind: &'static str) -> Self {
        Self { bytes: value.to_string().into_bytes(), kind }
    }

    fn digest(&self) -> String {
        format!("sha256:{}", sha256(&self.bytes))
    }

    fn descriptor(&self) -> Value {
        let size = self.bytes.len();
        json!({ "mediaType": self.kind, "digest": self.digest(), "size": size })
    }
}

/// Writes `NAME-VERSION-image.tar` of each program that has an image, for every machine.
pub fn write(programs: &[Built], folder: &Path, epoch: u64) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for image in &IMAGES {
        let mut of = Vec::new();
        for built in programs.iter().filter(|built| built.program == image.program) {
            let bytes = fs::read(&built.path).with_context(|| built.path.display().to_string())?;
            of.push((built.target, bytes));
        }
        let name = format!("{}-{}-image.tar", image.program.name(), env!("CARGO_PKG_VERSION"));
        let path = folder.join(name);
        fs::write(&path, layout(image, of, epoch)?).with_context(|| path.display().to_string())?;
        paths.push(path);
    }
    Ok(paths)
}

/// Assembles the layout: blobs, the index, and the file that marks a layout.
fn layout(image: &Image, programs: Vec<(Target, Vec<u8>)>, epoch: u64) -> anyhow::Result<Vec<u8>> {
    let (mut blobs, mut images) = (Vec::new(), Vec::new());
    let created = time(epoch)?;
    for (target, program) in programs {
        let rootfs = tar(&rootfs(image, program), epoch)?;
        let identity = format!("sha256:{}", sha256(&rootfs));
        let layer =
            Blob { bytes: gzip(&rootfs)?, kind: "application/vnd.oci.image.layer.v1.tar+gzip" };
        let config = config(image, target, &identity, &created);
        let config = Blob::json(&config, "application/vnd.oci.image.config.v1+json");
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        let manifest = Blob::json(&manifest, MANIFEST);
        let mut descriptor = manifest.descriptor();
        descriptor["platform"] = platform(target);
        images.push(descriptor);
        blobs.extend([layer, config, manifest]);
    }
    // Tools ask for one image by name and choose from it by their machine.
    let all = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": images });
    let all = Blob::json(&all, INDEX);
    let mut named = all.descriptor();
    let name = json!({ "org.opencontainers.image.ref.name": env!("CARGO_PKG_VERSION") });
    named["annotations"] = name;
    blobs.push(all);
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [named] });
    let mut entries = vec![
        Entry::file("oci-layout", 0o644, r#"{"imageLayoutVersion":"1.0.0"}"#),
        Entry::file("index.json", 0o644, index.to_string()),
    ];
    for blob in blobs {
        let path = format!("blobs/sha256/{}", sha256(&blob.bytes));
        if !entries.iter().any(|entry| entry.path == path) {
            entries.push(Entry::file(path, 0o644, blob.bytes));
        }
    }
    tar(&with_folders(entries), epoch)
}

/// Returns the files of the image: the program, its user, and a folder for that user.
fn rootfs(image: &Image, program: Vec<u8>) -> Vec<Entry> {
    let user = format!(
        "root:x:0:0:root:/:/sbin/nologin\nunderload:x:{USER}:{USER}::/state:/sbin/nologin\n"
    );
    let group = format!("root:x:0:\nunderload:x:{USER}:\n");
    with_folders(vec![
        Entry::file(image.program.name(), 0o755, program),
        Entry::file("etc/passwd", 0o644, user),
        Entry::file("etc/group", 0o644, group),
        Entry::folder("state", 0o700, USER),
    ])
}

fn platform(target: Target) -> Value {
    let (architecture, variant) = target.image;
    let mut platform = json!({ "architecture": architecture, "os": "linux" });
    if let Some(variant) = variant {
        platform["variant"] = variant.into();
    }
    platform
}

/// Returns the configuration. The server creates the keys for its tokens in `/state`.
fn config(image: &Image, target: Target, layer: &str, created: &str) -> Value {
    let name = image.program.name();
    let ports: BTreeMap<&str, Value> = image.ports.iter().map(|port| (*port, json!({}))).collect();
    let mut config = platform(target);
    config["created"] = created.into();
    config["config"] = json!({
        "User": format!("{USER}:{USER}"),
        "ExposedPorts": ports,
        "Env": ["HOME=/state", "XDG_DATA_HOME=/state"],
        "Entrypoint": [format!("/{name}")],
        "Cmd": image.command,
        "Volumes": { "/state": {} },
        "WorkingDir": "/state",
        "StopSignal": "SIGTERM",
        "Labels": {
            "org.opencontainers.image.title": name,
            "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
            "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
            "org.opencontainers.image.source": "https://github.com/underload/underload",
        },
    });
    config["rootfs"] = json!({ "type": "layers", "diff_ids": [layer] });
    config["history"] = json!([{ "created": created, "created_by": "cargo xtask dist" }]);
    config
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::super::TARGETS;
    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().expect("a tar file") {
            let mut entry = entry.expect("an entry");
            let path = entry.path().expect("a path").display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its bytes");
            files.insert(path, bytes);
        }
        files
    }

    #[test]
    fn every_digest_leads_to_its_blob_down_to_the_program() {
        let programs = TARGETS.map(|target| (target, target.machine.as_bytes().to_vec()));
        let [image, _] = IMAGES;
        let written = layout(&image, programs.to_vec(), 1_700_000_000).expect("a layout");
        let again = layout(&image, programs.to_vec(), 1_700_000_000).expect("the same");
        assert_eq!(written, again);
        let files = files(&written);
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let bytes = files[&format!("blobs/sha256/{digest}")].clone();
            assert_eq!(sha256(&bytes), digest);
            assert_eq!(bytes.len() as u64, descriptor["size"].as_u64().unwrap());
            bytes
        };
        let read = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).expect("JSON") };
        let index = read(&files["index.json"]);
        let all = read(&blob(&index["manifests"][0]));
        assert_eq!(all["manifests"].as_array().unwrap().len(), TARGETS.len());
        for (descriptor, target) in all["manifests"].as_array().unwrap().iter().zip(TARGETS) {
            assert_eq!(descriptor["platform"], platform(target));
            let manifest = read(&blob(descriptor));
            let config = read(&blob(&manifest["config"]));
            let mut layer = Vec::new();
            let packed = blob(&manifest["layers"][0]);
            GzDecoder::new(packed.as_slice()).read_to_end(&mut layer).expect("a layer");
            assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&layer)));
            assert_eq!(config["config"]["User"], "4870:4870");
            assert_eq!(self::files(&layer)["underload"], target.machine.as_bytes());
        }
    }
}
