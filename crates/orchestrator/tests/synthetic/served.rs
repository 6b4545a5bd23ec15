//! The pages of a store on a port of this machine, with a token of each role.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use underload_fleet::store::{Archive, Needs, Store, StoreError};
use underload_orchestrator::operator::{self, Operator, Role, TokenName};
use underload_orchestrator::pages::{self, Action, LEAST_DEVICES, Operate, Settings};

use super::NOW_MS;

/// Pages on a server, which stops when this is dropped.
#[allow(dead_code, reason = "not every test looks at all of it")]
pub struct Served {
    pub address: SocketAddr,
    /// Tokens of an operator and of a viewer.
    pub operator: String,
    pub viewer: String,
    /// The actions that visitors requested, each with the name of the token.
    pub done: Arc<Mutex<Vec<(String, Action)>>>,
    _runtime: tokio::runtime::Runtime,
}

struct Desk<S> {
    store: Mutex<S>,
    done: Arc<Mutex<Vec<(String, Action)>>>,
}

impl<S: Store + 'static> Operate for Desk<S> {
    fn who_has(
        &self,
        now_ms: u64,
        name: &str,
        sha256: &str,
    ) -> Result<Option<Operator>, StoreError> {
        let mut store = self.store.lock().expect("no thread panicked");
        operator::who_has(store.begin(&Needs::default())?.as_mut(), now_ms, name, sha256)
    }

    fn act(
        &self,
        _: u64,
        operator: &Operator,
        action: &Action,
    ) -> Result<Result<(), String>, StoreError> {
        if *action == Action::StopPlan("no-such-plan".to_owned()) {
            return Ok(Err("there is no plan `no-such-plan`".to_owned()));
        }
        let mut done = self.done.lock().expect("no thread panicked");
        done.push((operator.name.clone(), action.clone()));
        Ok(Ok(()))
    }
}

/// Starts the pages of a store.
pub fn serve<S: Store + 'static>(
    mut store: S,
    archives: Vec<Box<dyn Archive>>,
    port: u16,
) -> Result<Served, StoreError> {
    let mut tx = store.begin(&Needs::default())?;
    let name = |name: &str| TokenName::new(name).expect("it is one");
    let until = NOW_MS + 86_400_000;
    let operator = operator::new_token(&mut *tx, &name("ana"), Role::Operator, until, [1; 32])?;
    let viewer = operator::new_token(&mut *tx, &name("vic"), Role::Viewer, until, [2; 32])?;
    tx.commit()?;
    let done = Arc::default();
    let desk = Desk { store: Mutex::new(store), done: Arc::clone(&done) };
    let router = pages::router(Settings {
        archives,
        operate: Arc::new(desk),
        secret: [3; 32],
        is_tls: false,
        least_devices: LEAST_DEVICES,
        clock: || NOW_MS,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let listening = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = runtime.block_on(listening).expect("a port");
    let address = listener.local_addr().expect("its address");
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    runtime.spawn(async { axum::serve(listener, service).await });
    Ok(Served { address, operator, viewer, done, _runtime: runtime })
}
