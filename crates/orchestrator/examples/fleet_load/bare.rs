//! The baseline: axum and SQLite with group commit, which stores each body under the key that its
//! sender chose, without devices, rules or limits.

use std::path::Path;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::routing::post;
use http_body_util::BodyExt as _;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rusqlite::{Connection, params};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

use super::host::{identity, until_told};

struct Insert {
    key: String,
    body: Bytes,
    done: oneshot::Sender<bool>,
}

/// As many as the orchestrator's [`underload_orchestrator::http::batch::BATCH_MAX`].
const BATCH_MAX: usize = underload_orchestrator::http::batch::BATCH_MAX;

pub fn serve(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    let connection = Connection::open(directory.join("bare.sqlite"))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA cache_size = -65536;
         PRAGMA wal_autocheckpoint = 8192;
         CREATE TABLE results (key TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT, WITHOUT ROWID;",
    )?;
    let (queue, waiting) = mpsc::channel(4_096);
    std::thread::spawn(move || write(&connection, waiting));
    let router = Router::new().route("/v1/results", post(insert)).with_state(queue);
    let (tls, certificate) = identity()?;
    let tls = TlsAcceptor::from(tls);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, router) = (tls.clone(), router.clone());
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = TowerToHyperService::new(router);
                let _ = Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    until_told(address, &certificate)?;
    runtime.shutdown_background();
    Ok(())
}

async fn insert(
    State(queue): State<mpsc::Sender<Insert>>,
    request: Request,
) -> Result<String, StatusCode> {
    let key = request.headers().get(super::fleet::KEY).and_then(|key| key.to_str().ok());
    let key = key.ok_or(StatusCode::BAD_REQUEST)?.to_owned();
    let body = request.into_body().collect().await.map_err(|_| StatusCode::BAD_REQUEST)?;
    let (done, answer) = oneshot::channel();
    let insert = Insert { key, body: body.to_bytes(), done };
    queue.try_send(insert).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    match answer.await {
        Ok(is_new) => Ok(format!("{{\"new\":{}}}", u8::from(is_new))),
        Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

fn write(connection: &Connection, mut waiting: mpsc::Receiver<Insert>) {
    while let Some(first) = waiting.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX {
            let Ok(next) = waiting.try_recv() else { break };
            batch.push(next);
        }
        if let Ok(are_new) = commit(connection, &batch) {
            for (insert, is_new) in batch.into_iter().zip(are_new) {
                let _ = insert.done.send(is_new);
            }
        }
    }
}

fn commit(connection: &Connection, batch: &[Insert]) -> rusqlite::Result<Vec<bool>> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let sql = "INSERT OR IGNORE INTO results (key, body) VALUES (?, ?)";
    let mut statement = connection.prepare_cached(sql)?;
    let one = |it: &Insert| Ok(statement.execute(params![it.key, &it.body[..]])? == 1);
    let are_new = batch.iter().map(one).collect::<rusqlite::Result<_>>()?;
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(are_new)
}
