//! A queue of results in NATS JetStream, for fleets that send more than one database can store.
//!
//! An orchestrator that has authenticated a sender puts its results into an [`Inbox`] and answers
//! once JetStream has stored them. Feeders fetch them in batches, apply the same rules as for a
//! direct request, in one transaction, and acknowledge them after the commit. Duplicates change
//! nothing: JetStream recognises a message by its results for ten minutes, and the rules recognise
//! a result by its device, epoch and number for ever.
//!
//! JetStream stores the stream in files: acknowledged messages survive a killed server. To survive
//! a power cut they need several servers, and as many copies in [`Inbox::connect`].

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context, Message};
use serde::{Deserialize, Serialize};
use tokio_stream::StreamExt as _;
use underload_fleet::device::DeviceId;
use underload_fleet::message::{Numbered, Results};
use underload_fleet::orchestrator::Orchestrator;
use underload_fleet::store::{Needs, Store, StoreError};

/// Why results were not queued or stored. Retrying is safe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// JetStream is unreachable or full, or did not answer.
    #[error("NATS: {what}")]
    Away { what: String },
    /// The database failed. JetStream delivers the results again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug)]
pub struct Inbox {
    context: Context,
    consumer: PullConsumer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fed {
    pub messages: u64,
    pub new: u64,
    /// Results that were stored before.
    pub known: u64,
    /// Results that the rules rejected, for example of a removed device.
    pub refused: u64,
    /// Messages in another format, which were acknowledged and dropped.
    pub unreadable: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HandedIn {
    sender: DeviceId,
    at_ms: u64,
    results: Results,
}

impl Inbox {
    /// Connects to `nats://HOST:PORT`, and creates the stream with `copies` if it is missing.
    pub async fn connect(url: &str, copies: usize) -> Result<Self, NatsError> {
        let client = async_nats::connect(url).await.map_err(away)?;
        let context = jetstream::new(client);
        let stream = Config {
            name: STREAM.to_owned(),
            subjects: vec![SUBJECT.to_owned()],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            // A full stream rejects messages, and devices retry.
            discard: DiscardPolicy::New,
            max_bytes: BYTES_MAX,
            duplicate_window: KNOWN_FOR,
            num_replicas: copies.max(1),
            ..Config::default()
        };
        let stream = context.get_or_create_stream(stream).await.map_err(away)?;
        let feeders = pull::Config {
            durable_name: Some(FEEDERS.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACKNOWLEDGED_WITHIN,
            ..pull::Config::default()
        };
        let consumer = stream.get_or_create_consumer(FEEDERS, feeders).await.map_err(away)?;
        Ok(Self { context, consumer })
    }

    /// Queues the results that a device sent at `at_ms`, milliseconds since 1970. JetStream has
    /// stored them when this returns. After an error it may have stored some.
    pub async fn hand_in(
        &self,
        sender: DeviceId,
        at_ms: u64,
        results: &Results,
    ) -> Result<(), NatsError> {
        let mut waiting = vec![results.results.clone()];
        while let Some(mut part) = waiting.pop() {
            let results = Results { epoch: results.epoch, results: part.clone() };
            let name = name_of(sender, &results);
            let payload = serde_json::to_vec(&HandedIn { sender, at_ms, results }).map_err(away)?;
            if payload.len() > PAYLOAD_MAX && part.len() > 1 {
                waiting.push(part.split_off(part.len() / 2));
                waiting.push(part);
                continue;
            }
            let mut headers = HeaderMap::new();
            headers.insert(NATS_MESSAGE_ID, name.as_str());
            let sent = self.context.publish_with_headers(SUBJECT, headers, payload.into()).await;
            sent.map_err(away)?.await.map_err(away)?;
        }
        Ok(())
    }
}

/// Stores results from an inbox in a database.
pub struct Feeder {
    inbox: Inbox,
    rules: Arc<Orchestrator>,
    store: Option<Box<dyn Store>>,
}

impl Feeder {
    pub fn new(inbox: Inbox, rules: Arc<Orchestrator>, store: Box<dyn Store>) -> Self {
        Self { inbox, rules, store: Some(store) }
    }

    /// Fetches at most [`MESSAGES_MAX`] messages and [`FETCHED_BYTES_MAX`] bytes, or waits up to
    /// `patience` for one message, and stores the results. The future may be dropped at any time:
    /// what was not committed is delivered again after [`ACKNOWLEDGED_WITHIN`].
    pub async fn feed(&mut self, patience: Duration) -> Result<Fed, NatsError> {
        let batch = self.inbox.consumer.fetch().max_messages(MESSAGES_MAX);
        let batch = batch.max_bytes(FETCHED_BYTES_MAX).messages().await;
        let mut batch = batch.map_err(away)?;
        let mut messages = Vec::new();
        while let Some(message) = batch.next().await {
            match message {
                Ok(message) => messages.push(message),
                // JetStream ends a batch that has reached its bytes with an error.
                Err(_) if !messages.is_empty() => break,
                Err(error) => return Err(away(error)),
            }
        }
        if messages.is_empty() {
            let batch = self.inbox.consumer.batch().max_messages(1).expires(patience);
            let mut batch = batch.messages().await.map_err(away)?;
            while let Some(message) = batch.next().await {
                messages.push(message.map_err(away)?);
            }
        }
        let fed = self.commit(&messages).await?;
        for message in &messages {
            // If the acknowledgement is lost, the message is delivered again and changes nothing.
            message.ack().await.map_err(away)?;
        }
        Ok(fed)
    }

    async fn commit(&mut self, messages: &[Message]) -> Result<Fed, NatsError> {
        let mut fed = Fed { messages: messages.len() as u64, ..Fed::default() };
        let read = |message: &Message| serde_json::from_slice::<HandedIn>(&message.payload).ok();
        let handed_in: Vec<HandedIn> = messages.iter().filter_map(read).collect();
        fed.unreadable = fed.messages - handed_in.len() as u64;
        if handed_in.is_empty() {
            return Ok(fed);
        }
        let gone = || StoreError::broken("the feeder's store was lost");
        let mut store = self.store.take().ok_or_else(gone)?;
        let rules = Arc::clone(&self.rules);
        // Database calls block.
        let done = tokio::task::spawn_blocking(move || {
            let done = store_all(&rules, &mut *store, &handed_in, &mut fed);
            (store, done.map(|()| fed))
        });
        let (store, done) = done.await.map_err(|_| gone())?;
        self.store = Some(store);
        Ok(done?)
    }
}

impl std::fmt::Debug for Feeder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feeder").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}

fn store_all(
    rules: &Orchestrator,
    store: &mut dyn Store,
    handed_in: &[HandedIn],
    fed: &mut Fed,
) -> Result<(), StoreError> {
    let mut devices: Vec<DeviceId> = handed_in.iter().map(|it| it.sender).collect();
    devices.sort_unstable();
    devices.dedup();
    let mut tx = store.begin(&Needs { devices, ..Needs::default() })?;
    for HandedIn { sender, at_ms, results } in handed_in {
        match rules.results(&mut *tx, *at_ms, *sender, results)? {
            Ok(stored) => {
                fed.new += u64::from(stored.new);
                fed.known += u64::from(stored.known);
                fed.refused += u64::from(stored.refused);
            }
            Err(_) => fed.refused += results.results.len() as u64,
        }
    }
    tx.commit()
}

/// Returns the identifier by which JetStream recognises a duplicate.
fn name_of(sender: DeviceId, results: &Results) -> String {
    let mut sum = ring::digest::Context::new(&ring::digest::SHA256);
    for Numbered { sequence, .. } in &results.results {
        sum.update(&sequence.to_le_bytes());
    }
    let sum = data_encoding::HEXLOWER.encode(&sum.finish().as_ref()[..16]);
    format!("{sender}/{}/{sum}", results.epoch)
}

fn away(error: impl std::fmt::Display) -> NatsError {
    NatsError::Away { what: error.to_string() }
}

/// Maximum number of messages of a batch.
pub const MESSAGES_MAX: usize = 500;
/// Maximum number of bytes of a batch.
pub const FETCHED_BYTES_MAX: usize = 4 << 20;
/// A fetched message is delivered again if it is not acknowledged within this time.
pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(30);
pub const STREAM: &str = "UNDERLOAD_RESULTS";
pub const SUBJECT: &str = "underload.results";
pub const FEEDERS: &str = "feeders";
/// How long JetStream recognises duplicates.
const KNOWN_FOR: Duration = Duration::from_mins(10);
/// Maximum number of bytes in the stream.
const BYTES_MAX: i64 = 16 << 30;
/// Maximum number of bytes of a message; brokers reject more than 1 MiB.
const PAYLOAD_MAX: usize = 512 << 10;
