"""Types of the native module. Programs use the package `underload`, which wraps it."""

from collections.abc import Callable
from typing import Any, final

__all__ = [
    "COMMIT",
    "VERSION",
    "Ack",
    "Backlog",
    "CongestionEvent",
    "Environment",
    "Frame",
    "Link",
    "PacketMeta",
    "Queue",
    "Run",
    "Scenario",
    "Sweep",
    "SweepFolder",
    "cluster_quantiles",
    "congestion_controls",
    "docsis_check",
    "docsis_decode",
    "docsis_describe",
    "docsis_encode",
    "docsis_recommend",
    "history",
    "hodges_lehmann",
    "load",
    "mann_whitney",
    "mean_interval",
    "measure",
    "quantity_between",
    "queue_label",
    "queue_names",
    "replay",
    "run",
    "scenario_names",
]

COMMIT: str
VERSION: str

@final
class Frame:
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...
    def columns(self) -> list[tuple[str, str]]: ...
    def column(self, name: str) -> list[Any]: ...

@final
class Scenario:
    @staticmethod
    def find(name: str, overrides: dict[str, Any]) -> Scenario: ...
    @staticmethod
    def parse(name: str, text: str, overrides: dict[str, Any]) -> Scenario: ...
    @staticmethod
    def asked(line: str | None, options: list[tuple[str, str]]) -> Scenario: ...
    @staticmethod
    def build(
        name: str,
        head: dict[str, Any],
        path: dict[str, Any],
        phases: dict[str, Any],
        flows: list[tuple[str, str, dict[str, Any]]],
        variants: list[tuple[str, dict[str, Any]]],
        sweeps: list[tuple[str, list[Any]]],
        overrides: dict[str, Any],
    ) -> Scenario: ...
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def repeats(self) -> int: ...
    @property
    def variants(self) -> list[tuple[str, str]]: ...
    @property
    def worlds(self) -> list[str]: ...

@final
class Run:
    def json(self) -> str: ...
    def facts(self) -> tuple[str, str, int, bool, int]: ...
    @property
    def directory(self) -> str | None: ...
    def variants(self) -> list[tuple[str, str]]: ...
    def metric(self, variant: str, name: str) -> float | None: ...
    def round_trip(self, variant: str, phase: str, statistic: str) -> float | None: ...
    def highest_told(self, variant: str, phase: str) -> str | None: ...
    def metric_over_trials(self, variant: str, name: str) -> list[float | None]: ...
    def compare(self, variant: str, baseline: str, name: str) -> str | None: ...
    def unknown_metric(self, variant: str, name: str) -> str | None: ...
    def frame(self, table: str) -> Frame: ...
    def left_out(self) -> list[str]: ...
    def save(self, path: str) -> None: ...
    def table(self) -> str: ...
    def sentences(self) -> list[str]: ...
    def published(self) -> str: ...
    def warnings(self) -> list[str]: ...
    def plots(self) -> list[tuple[str, str, str, str]]: ...
    def report(self, path: str) -> None: ...

# Not on Windows.
def measure(arguments: dict[str, Any]) -> tuple[str, str, list[str]]: ...
def history(directory: object, metric: str, baseline: str, recent: str) -> str: ...

_Custom = tuple[str, str, Callable[..., Any]]
_Algorithms = tuple[list[_Custom], list[tuple[_Custom, str | None]]]

def run(
    scenario: Scenario,
    overrides: dict[str, Any],
    own: _Algorithms,
    listener: Callable[[str, Any], None],
) -> Run: ...
def load(path: str, is_temporary: bool) -> Run: ...
def scenario_names() -> list[str]: ...
def congestion_controls() -> list[str]: ...
def quantity_between(first: str, last: str, share: float) -> str | None: ...

_Row = tuple[int, int, int, int, int, int]
_Event = tuple[int, int, str, str]

@final
class Queue:
    def __new__(
        cls, spec: str, link: str | None, seed: int, own: _Custom | None
    ) -> Queue: ...
    def enqueue(
        self, now_ns: int, length: int, flow: int, dscp: int, ecn: int
    ) -> tuple[int, bool]: ...
    def dequeue(self, now_ns: int) -> _Row | None: ...
    @property
    def not_before_ns(self) -> int | None: ...
    def backlog(self) -> tuple[int, int]: ...
    def stats(self) -> list[tuple[str, int]]: ...
    def gauges(self) -> list[tuple[str, float]]: ...
    def events(self) -> list[_Event]: ...

@final
class Link:
    def __new__(
        cls, link: str, queue: str, seed: int, own: _Custom | None
    ) -> Link: ...
    def send(self, now_ns: int, length: int, flow: int, dscp: int, ecn: int) -> int: ...
    def poll(self, now_ns: int) -> list[tuple[int, _Row]]: ...
    def next_ns(self) -> int | None: ...
    def backlog(self) -> tuple[int, int]: ...
    def events(self) -> list[_Event]: ...

@final
class Ack:
    """An acknowledgement that the transport has processed. Counts are in full segments."""

    @property
    def now_ns(self) -> int:
        """Time of arrival, ns."""
    @property
    def acknowledged(self) -> int:
        """Segments by which a window may grow."""
    @property
    def delivered(self) -> int:
        """Segments newly known to have arrived."""
    @property
    def lost(self) -> int:
        """Segments newly considered lost."""
    @property
    def marked(self) -> int:
        """Segments newly reported as marked; 0 if the use of ECN does not count marks."""
    @property
    def rtt_ns(self) -> int | None:
        """Round trip of the last acknowledged segment, ns; `None` if it is unknown."""
    @property
    def min_rtt_ns(self) -> int:
        """Smallest round trip seen, ns."""
    @property
    def smoothed_rtt_ns(self) -> int:
        """Smoothed round trip, ns."""
    @property
    def prior_in_flight(self) -> int:
        """Segments in flight before the acknowledgement."""
    @property
    def in_flight(self) -> int:
        """Segments in flight after the acknowledgement."""
    @property
    def total_delivered(self) -> int:
        """Segments delivered since the connection began."""
    @property
    def prior_delivered(self) -> int | None:
        """`total_delivered` at the time when one segment was sent: the segment from which
        `delivery_rate` was sampled. To detect the end of a round trip, store `total_delivered` at
        its start: the round trip has passed once `prior_delivered` reaches the stored number.
        `None` without a sample."""
    @property
    def delivery_rate(self) -> float | None:
        """Delivery rate, segments per second; `None` without a sample."""
    @property
    def app_limited(self) -> bool:
        """Whether the application, not the network, limited `delivery_rate`."""
    @property
    def window_limited(self) -> bool:
        """Whether the sender used the whole window. A window that was not used should not grow."""
    @property
    def state(self) -> str:
        """`open`, `reducing` (after a mark), `recovery` (of losses) or `timeout`."""

@final
class CongestionEvent:
    """A loss, a mark or a timeout."""

    @property
    def now_ns(self) -> int:
        """Time at which the sender noticed the event, ns."""
    @property
    def in_flight(self) -> int:
        """Segments in flight."""
    @property
    def min_rtt_ns(self) -> int:
        """Smallest round trip seen, ns."""

@final
class PacketMeta:
    """The properties of a packet for a class that decides about packets."""

    @property
    def length(self) -> int:
        """Bytes."""
    @property
    def flow(self) -> int:
        """Number or hash of the flow."""
    @property
    def dscp(self) -> int:
        """Differentiated Services codepoint, 0 to 63."""
    @property
    def ecn(self) -> str:
        """`not-ect`, `ect0`, `ect1` or `ce`."""
    @property
    def arrived_ns(self) -> int:
        """Time at which the packet was stored, ns; undefined for an arrival."""

@final
class Backlog:
    """The packets and bytes in a queue."""

    @property
    def packets(self) -> int:
        """Packets."""
    @property
    def bytes(self) -> int:
        """Bytes, as the link charges them."""

@final
class Environment:
    def __new__(
        cls,
        scenario: Scenario,
        own: _Algorithms,
        limit_packets: int | None,
        step: str,
        seed: int,
    ) -> Environment: ...
    @property
    def pipe_packets(self) -> float: ...
    @property
    def rtt_ns(self) -> int: ...
    @property
    def step_ns(self) -> int: ...
    def step_window(
        self, segments: int
    ) -> tuple[int, int, int, int, int, int, int, int, int, int, int]: ...
    def step_signals(
        self, probability: float
    ) -> tuple[int, int, int, int, int, int, int, int, int, int, int]: ...

@final
class Sweep:
    @staticmethod
    def build(name: str, scenario: Scenario, file: dict[str, Any]) -> Sweep: ...
    @staticmethod
    def parse(
        name: str,
        text: str,
        scenario: str,
        scenario_text: str,
        files: dict[str, bytes],
        program: str | None = None,
    ) -> Sweep: ...
    @property
    def parts(self) -> tuple[str, str, str, str, dict[str, bytes]]: ...
    @property
    def size(self) -> tuple[int, int]: ...
    @property
    def identity(self) -> str: ...
    def run(
        self, directory: str, threads: int | None, listener: Callable[[str, Any], None]
    ) -> bool: ...
    def compute(self, first: int, end: int, seconds: float) -> bytes: ...
    def report(self, directory: str) -> str: ...
    def open(self, directory: str) -> tuple[SweepFolder, str | None]: ...

@final
class SweepFolder:
    def missing(self) -> list[tuple[int, int]]: ...
    def append(self, rows: bytes) -> int: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def cells(self) -> Frame: ...

def queue_names() -> list[str]: ...
def queue_label(spec: str, link: str | None) -> str: ...
def replay(
    queue: str,
    own: _Custom | None,
    link: str,
    seed: int,
    time_ns: Any,
    len: Any,
    flow: Any,
    dscp: Any,
    ecn: Any,
) -> Frame: ...
def mean_interval(
    values: Any, confidence: float
) -> tuple[float, float | None, float | None, float, int]: ...
def mann_whitney(
    first: Any, second: Any, alternative: str
) -> tuple[float, float, float, str]: ...
def hodges_lehmann(
    first: Any, second: Any, confidence: float, is_ratio: bool
) -> tuple[float, float | None, float | None, float]: ...
def cluster_quantiles(
    values: Any, clusters: list[int], shares: list[float], confidence: float, seed: int
) -> list[tuple[float | None, float | None, float | None]]: ...
def docsis_decode(bytes: bytes, form: str, is_lenient: bool) -> str: ...
def docsis_describe(bytes: bytes, is_lenient: bool) -> str: ...
def docsis_encode(words: str, secret: bytes | None, is_forced: bool) -> bytes: ...
def docsis_check(bytes: bytes, secret: bytes | None) -> tuple[str, list[str]]: ...
def docsis_recommend(
    sustained_bit_per_s: int,
    peak_bit_per_s: int,
    burst_bytes: int,
    choice: str,
    target_ms: int,
) -> tuple[str, int]: ...
