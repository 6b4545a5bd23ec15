"""Queues and links: for scenarios, step by step, and over whole arrays of packets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _underload
from ._errors import PacketsError, SpecError
from ._frame import Frame
from ._optional import library

ECN = {"not-ect": 0, "ect1": 1, "ect0": 2, "ce": 3}
"""The two bits of the ECN field by their names in files."""
_NAMES = {bits: name for name, bits in ECN.items()}


class Packet(NamedTuple):
    """A packet that left a queue or reached the far end of a link."""

    id: int
    """The number of the packet, from 0, in the order in which packets were offered."""
    length: int
    """Bytes."""
    flow: int
    """Number of the flow."""
    dscp: int
    """Differentiated Services codepoint, 0 to 63."""
    ecn: str
    """`not-ect`, `ect0`, `ect1` or `ce`."""
    arrived_ns: int
    """The time at which the packet reached the queue, ns."""
    left_ns: int
    """The time at which the packet left the queue or reached the far end, ns."""

    @property
    def delay_ns(self) -> int:
        """Time since the packet reached the queue, ns; for a queue its sojourn."""
        return self.left_ns - self.arrived_ns


class Event(NamedTuple):
    """A drop or a mark."""

    time_ns: int
    """The time of the event, ns."""
    id: int
    """The packet's number."""
    what: str
    """`dropped` or `marked`."""
    reason: str
    """The reason, such as `overlimit`, `early` or `control-law`."""


class Queue:
    """A queue discipline, for scenarios or to be used step by step.

    Step by step, the caller passes the time `now_ns`, in ns, which must not decrease. The queue is
    empty at the first call. Pickling stores its settings without its packets.
    """

    def __init__(self, spec: str, *, link: str | None = None, seed: int = 1) -> None:
        self.spec = spec
        """The SPEC, as in scenarios and on the command line: `pie:profile=rfc`."""
        self.link = link
        self.seed = seed
        self._native: _underload.Queue | None = None

    def enqueue(
        self, now_ns: int, length: int, flow: int = 0, dscp: int = 0, ecn: str = "not-ect"
    ) -> bool:
        """Offers a packet of `length` bytes. Returns whether it is stored. Packets are numbered
        from 0 in the order in which they are offered."""
        return self._begun().enqueue(now_ns, length, flow, dscp, _ecn_bits(ecn))[1]

    def dequeue(self, now_ns: int) -> Packet | None:
        """Takes the next packet; `None` if the queue is empty, or no packet may leave before
        `not_before_ns`."""
        row = self._begun().dequeue(now_ns)
        return None if row is None else _packet(row, now_ns)

    @property
    def not_before_ns(self) -> int | None:
        """The time at which a shaping queue may send its next packet, ns, as of the last
        `dequeue`; `None` for a queue that does not shape."""
        return self._begun().not_before_ns

    @property
    def backlog(self) -> tuple[int, int]:
        """Stored packets and bytes."""
        return self._begun().backlog()

    @property
    def stats(self) -> dict[str, int]:
        """Packets since the start: `offered`, `sent`, `dropped_enqueue`, `dropped_dequeue`,
        `marked`."""
        return dict(self._begun().stats())

    @property
    def gauges(self) -> dict[str, float]:
        """Internal state, such as `pie.probability` or `codel.count`."""
        return dict(self._begun().gauges())

    def events(self) -> list[Event]:
        """Returns the drops and marks since the last call."""
        return [Event(*event) for event in self._begun().events()]

    def _begun(self) -> _underload.Queue:
        if self._native is None:
            self._native = _underload.Queue(self.spec, self.link, self.seed, self._custom())
        return self._native

    def _custom(self) -> Any:
        """The Python class that decides for this queue; `None` for a built-in queue."""
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_native": None}

    def __eq__(self, other: object) -> bool:
        mine = (self.spec, self.link, self.seed)
        return isinstance(other, Queue) and mine == (other.spec, other.link, other.seed)

    def __hash__(self) -> int:
        return hash((self.spec, self.link, self.seed))

    def __str__(self) -> str:
        return self.spec

    def __repr__(self) -> str:
        return f"Queue({self.spec!r})"


class Link:
    """A link with its queue, step by step: `send` packets, `poll` what has arrived.

    At one time, send all packets before you poll. Time must not go backwards."""

    def __init__(self, spec: str, queue: str | Queue, *, seed: int = 1) -> None:
        self.spec, self.queue, self.seed = spec, str(queue), seed
        self._queue = queue
        self._native = _underload.Link(self.spec, self.queue, seed, _custom(queue))

    def send(
        self, now_ns: int, length: int, flow: int = 0, dscp: int = 0, ecn: str = "not-ect"
    ) -> int:
        """Offers a packet of `length` bytes to the queue. Returns its number, from 0."""
        return self._native.send(now_ns, length, flow, dscp, _ecn_bits(ecn))

    def poll(self, now_ns: int) -> list[Packet]:
        """Returns the packets that reached the far end by `now_ns` since the last poll."""
        return [_packet(row, time) for time, row in self._native.poll(now_ns)]

    @property
    def next_ns(self) -> int | None:
        """The time of the next poll, ns; `None` if nothing is due before another packet is sent."""
        return self._native.next_ns()

    @property
    def backlog(self) -> tuple[int, int]:
        """Packets and bytes in the queue."""
        return self._native.backlog()

    def events(self) -> list[Event]:
        """Returns the drops and marks since the last call."""
        return [Event(*event) for event in self._native.events()]

    def __reduce__(self) -> tuple[Any, ...]:
        return _link, (self.spec, self._queue, self.seed)

    def __repr__(self) -> str:
        return f"Link({self.spec!r}, {self.queue!r})"


def _link(spec: str, queue: str | Queue, seed: int) -> Link:
    return Link(spec, queue, seed=seed)


def queue(name: str, *, link: str | None = None, seed: int = 1, **parameters: Any) -> Queue:
    """Returns a queue by its name and parameters, `queue("pie", profile="rfc", target="15ms")`, or
    by its SPEC, `queue("pie:profile=rfc")`.

    `link`: the link behind the queue, which some queues need if they are used step by step. In
    names of parameters, `_` is written for `-`. Raises `SpecError` for an unknown queue or
    parameter; the message lists those that exist.
    """
    made = Queue(_spec(name, parameters), link=link, seed=seed)
    try:
        _underload.queue_label(made.spec, link)
    except SpecError as error:
        # Some parameters have defaults that depend on the link, so without a link they are not
        # reported as missing.
        if link is not None or "because no link" not in str(error):
            raise
    return made


def queues() -> list[str]:
    """Returns the names of all queues."""
    return _underload.queue_names()


def link(name: str, queue: str | Queue, *, seed: int = 1, **parameters: Any) -> Link:
    """Returns a link by its rate or name, with the queue before it: `link("20mbit", "codel")`,
    `link("20mbit", queue("pie"), delay="10ms", loss="1%")`. Raises `SpecError`."""
    return Link(_spec(name, parameters), queue, seed=seed)


def replay(
    packets: Any, *, queue: str | Queue, link: str, seed: int = 1
) -> Frame:
    """Sends packets through a queue and a link, as `underload replay` does.

    `packets` has the columns `time_ns` (arrival, ns, not decreasing) and `len` (bytes), and
    optionally `flow`, `dscp` (0 to 63) and `ecn` (names, or 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE):
    a data frame, a `Frame`, an Arrow table or a dict of arrays, each of shape (packets,). NumPy
    arrays of the types uint64 (or int64), uint32, uint32, uint8 and uint8 are not copied.

    Returns a row per packet, in the order of `packets`: `id`, `arrival_ns`, `fate` (`sent`,
    `marked`, `dropped-enqueue`, `dropped-dequeue`, `queued`), `reason`, `start_ns` and `end_ns` of
    its transmission, `sojourn_ns`, `ecn`. Needs NumPy. Raises `PacketsError` or `SpecError`.
    """
    numpy = library("numpy", "replay()")
    columns = _columns(packets)
    arrays = []
    for name, kind in (("time_ns", "u8"), ("len", "u4"), ("flow", "u4"), ("dscp", "u1")):
        arrays.append(_array(numpy, name, columns.get(name), kind))
    arrays.append(_array(numpy, "ecn", _ecn_column(numpy, columns.get("ecn")), "u1"))
    if arrays[0] is None or arrays[1] is None:
        raise PacketsError("expected the columns time_ns and len")
    return Frame(_underload.replay(str(queue), _custom(queue), link, seed, *arrays))


def _custom(queue: str | Queue) -> Any:
    return queue._custom() if isinstance(queue, Queue) else None


def _columns(packets: Any) -> Mapping[str, Any]:
    """Returns the columns by name, from a frame, a mapping or a table."""
    if isinstance(packets, Frame):
        return packets.to_dict()
    names = getattr(packets, "columns", None)
    if isinstance(packets, Mapping):
        names = list(packets)
    elif hasattr(packets, "column_names"):
        names = list(packets.column_names)
    if names is None:
        raise PacketsError(
            f"{type(packets).__name__}: expected a data frame, a table of Arrow or a dict of arrays"
        )
    known = {"time_ns", "len", "flow", "dscp", "ecn", "id"}
    other = [str(name) for name in names if name not in known]
    if other:
        raise PacketsError(
            f"{other[0]}: no such column; expected time_ns, len, flow, dscp and ecn"
        )
    return {str(name): packets[name] for name in names}


def _array(numpy: Any, name: str, values: Any, kind: str) -> Any:
    """Returns a column as an array of that type; does not copy an array that already has the
    type."""
    if values is None:
        return None
    try:
        array = numpy.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise PacketsError(f"{name}: {error}") from None
    wanted = numpy.dtype(kind)
    if array.ndim != 1:
        raise PacketsError(f"{name}: shape {array.shape}; expected (packets,)")
    if array.dtype == wanted:
        return numpy.ascontiguousarray(array)
    if array.dtype.kind not in "iu":
        raise PacketsError(f"{name}: {array.dtype}; expected whole numbers")
    limits = numpy.iinfo(wanted)
    if len(array) and (array.min() < 0 or array.max() > limits.max):
        raise PacketsError(f"{name}: from {array.min()} to {array.max()}; 0 to {limits.max} fit")
    if array.dtype.itemsize == wanted.itemsize:
        return numpy.ascontiguousarray(array).view(wanted)
    return array.astype(wanted)


def _ecn_column(numpy: Any, values: Any) -> Any:
    if values is None:
        return None
    try:
        array = numpy.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise PacketsError(f"ecn: {error}") from None
    if array.dtype.kind in "iu" or array.ndim != 1:
        return array
    return [_ecn_bits(value) for value in array.tolist()]


def _ecn_bits(ecn: str) -> int:
    bits = ECN.get(ecn) if isinstance(ecn, str) else None
    if bits is None:
        raise PacketsError(f"ecn: {ecn!r}; expected {', '.join(ECN)}")
    return bits


def _packet(row: tuple[int, int, int, int, int, int], left_ns: int) -> Packet:
    number, length, flow, dscp, ecn, arrived_ns = row
    return Packet(number, length, flow, dscp, _NAMES[ecn], arrived_ns, left_ns)


def _spec(name: str, parameters: Mapping[str, Any]) -> str:
    """Returns the SPEC `NAME:key=value,...` with these parameters added."""
    items = [f"{key.replace('_', '-')}={_word(value)}" for key, value in parameters.items()]
    if not items:
        return name
    return f"{name}{',' if ':' in name else ':'}{','.join(items)}"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Queue):
        return f"[{value.spec}]"
    return str(value)
