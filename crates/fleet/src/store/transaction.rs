//! Transactions of a store.

use underload_record::text::in_full;

use super::rows::{Code, Device, HeldLease, LineRow, LogEntry, PlanRow, Server, StoredResult};
use crate::device::DeviceId;
use crate::line::Line;

/// Consecutive result numbers in one row of the record of stored results.
pub const SEEN_WIDTH: u64 = 512;
/// Rows of that record for a device's results, and as many for the outcomes that orchestrators
/// made. A device numbers its results in ascending order and sends the oldest first: a result older
/// than these rows was sent before, or does not exist.
pub const SEEN_ROWS: usize = 64;

/// Epoch of the outcomes that orchestrators make.
pub const MADE_EPOCH: u32 = u32::MAX;

/// The result of a step of a transaction, or of a query.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a transaction failed. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A retry may succeed: the database is unreachable, its disk is full, or another transaction
    /// was first.
    #[error("{step}")]
    Temporary {
        /// The step that failed, and where.
        step: String,
        source: Option<Cause>,
    },
    /// No retry succeeds: the store is damaged, or of another version.
    #[error("{step}")]
    Broken {
        /// The step that failed, and where.
        step: String,
        source: Option<Cause>,
    },
}

/// The error of a database, a file system or a format.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

impl StoreError {
    pub fn temporary(step: impl Into<String>) -> Self {
        Self::Temporary { step: step.into(), source: None }
    }

    pub fn broken(step: impl Into<String>) -> Self {
        Self::Broken { step: step.into(), source: None }
    }

    /// Returns this error with `cause` as its source.
    #[must_use]
    pub fn because(self, cause: impl Into<Cause>) -> Self {
        let source = Some(cause.into());
        match self {
            Self::Temporary { step, .. } => Self::Temporary { step, source },
            Self::Broken { step, .. } => Self::Broken { step, source },
        }
    }

    /// Returns the step and all causes in one line.
    pub fn in_full(&self) -> String {
        in_full(self)
    }
}

/// The rows that a transaction will read, so that a store can fetch them together and lock them in
/// one order. The transaction can read all other rows, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    pub devices: Vec<DeviceId>,
    pub leases: Vec<u64>,
    /// Whether leases are granted or ended: such transactions run one after another.
    pub admits: bool,
}

/// A database of one fleet.
pub trait Store: Send {
    /// Begins a transaction that will read the rows of `needs`.
    fn begin(&mut self, needs: &Needs) -> Result<Box<dyn Transaction + '_>>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leases<'a> {
    Of(DeviceId),
    /// Leases of runs that load a line of this segment.
    LoadedIn(&'a str),
    /// Leases at the server with this name.
    At(&'a str),
    /// Leases that have expired at this instant.
    ExpiredAt(u64),
    /// Leases that expire after this instant.
    ExpiringAfter(u64),
}

impl Leases<'_> {
    pub fn has(self, lease: &HeldLease) -> bool {
        match self {
            Self::Of(device) => lease.device == device,
            Self::LoadedIn(segment) => lease.segment.as_deref() == Some(segment),
            Self::At(server) => lease.server == server,
            Self::ExpiredAt(now_ms) => lease.expires_ms <= now_ms,
            Self::ExpiringAfter(after_ms) => lease.expires_ms > after_ms,
        }
    }

    /// Returns the first `limit` selected leases, ordered by their number, and before that by their
    /// expiry if they are selected by it.
    pub fn first<'l>(
        self,
        leases: impl Iterator<Item = &'l HeldLease>,
        limit: usize,
    ) -> Vec<HeldLease> {
        let mut found: Vec<_> = leases.filter(|lease| self.has(lease)).collect();
        let by_expiry = matches!(self, Self::ExpiredAt(_) | Self::ExpiringAfter(_));
        found.sort_by_key(|lease| (if by_expiry { lease.expires_ms } else { 0 }, lease.id));
        found.into_iter().take(limit).cloned().collect()
    }
}

/// A transaction under way.
pub type Tx<'a> = &'a mut dyn Transaction;

/// Changes that are committed together. Dropping a transaction reverts all of them.
pub trait Transaction {
    fn device(&mut self, id: DeviceId) -> Result<Option<Device>>;
    /// Inserts or replaces a device.
    fn put_device(&mut self, device: &Device) -> Result<()>;
    /// Returns at most `limit` devices with [`Device::settle_ms`] up to `now_ms`, earliest first.
    fn overdue(&mut self, now_ms: u64, limit: usize) -> Result<Vec<DeviceId>>;
    /// Returns a code for enrolment by the SHA-256 of its text.
    fn code(&mut self, hash: &[u8; 32]) -> Result<Option<Code>>;
    /// Inserts or replaces a code.
    fn put_code(&mut self, code: &Code) -> Result<()>;
    /// Returns the lines with these external identifiers, in their order; `None` for unknown ones.
    fn lines(&mut self, external_ids: &[&str]) -> Result<Vec<Option<Line>>>;
    /// Inserts or replaces a line.
    fn put_line(&mut self, line: &Line) -> Result<()>;
    /// Returns at most `limit` committed lines after the identifier `after`, ordered by identifier.
    fn lines_after(&mut self, after: &str, limit: usize) -> Result<Vec<LineRow>>;
    /// Returns all servers, by name.
    fn servers(&mut self) -> Result<Vec<Server>>;
    /// Inserts or replaces a server.
    fn put_server(&mut self, server: &Server) -> Result<()>;
    fn lease(&mut self, id: u64) -> Result<Option<HeldLease>>;
    /// Returns at most `limit` leases, as [`Leases::first`] orders them.
    fn leases(&mut self, of: Leases<'_>, limit: usize) -> Result<Vec<HeldLease>>;
    /// Inserts or replaces a lease.
    fn put_lease(&mut self, lease: &HeldLease) -> Result<()>;
    /// Removes the lease with this number.
    fn end_lease(&mut self, id: u64) -> Result<()>;
    /// Returns all plans, by name.
    fn plans(&mut self) -> Result<Vec<PlanRow>>;
    /// Inserts or replaces a plan.
    fn put_plan(&mut self, plan: &PlanRow) -> Result<()>;
    /// Stores results. Returns for each whether it is new: no result of the same device, epoch and
    /// sequence was stored before, and it is not older than [`SEEN_ROWS`] rows.
    fn append(&mut self, results: &[StoredResult]) -> Result<Vec<bool>>;
    /// Returns a secret or a setting by its name.
    fn setting(&mut self, name: &str) -> Result<Option<Vec<u8>>>;
    /// Inserts or replaces a secret or a setting.
    fn put_setting(&mut self, name: &str, value: &[u8]) -> Result<()>;
    /// Records what an operator did.
    fn log(&mut self, entry: &LogEntry) -> Result<()>;
    /// Commits all changes; they are on disk when this returns.
    fn commit(self: Box<Self>) -> Result<()>;
}
