"""Algorithms of your own: classes that decide in the simulator, in replays and step by step."""

from __future__ import annotations

import ctypes
import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, overload

from . import _underload
from ._errors import SpecError
from ._queue import Queue, _word
from ._underload import Ack, Backlog, CongestionEvent, PacketMeta

Verdict = Literal["pass", "signal", "drop"]
"""What becomes of a packet: `"pass"`: nothing; `"signal"`: it is marked if it is ECN-capable, and
dropped if it is not; `"drop"`: it is dropped."""


class Aqm:
    """Decides which packets of a queue are dropped or marked: the base of a class of your own.

    The queue itself is first in, first out, and underload's: it stores, counts, and drops what
    finds no room. An object sees one queue of one trial from its beginning on, and is made by
    `own()` with the parameters that were given there. `rng`, there before `__init__` runs, draws
    random numbers that depend on the run's seed alone. Times are ns, whole numbers that never go
    backwards; read no clock, and the same seed gives the same bytes.

    A method that a class leaves as it is costs nothing; each of the others about as much per
    packet as `docs/python.md` says. An exception ends the run: `OwnCodeError`.
    """

    rng: random.Random
    """Random numbers of this queue and this trial alone."""

    def on_enqueue(self, now_ns: int, packet: PacketMeta, backlog: Backlog) -> Verdict:
        """A packet arrives, and there is room. `backlog`: what the queue holds before it."""
        return "pass"

    def on_dequeue(self, now_ns: int, packet: PacketMeta, backlog: Backlog) -> Verdict:
        """The link is free, and this packet is at the head; it has waited for
        `now_ns - packet.arrived_ns`. `"pass"` sends it. After a drop the next one is asked about.
        `backlog`: what the queue holds, this packet included."""
        return "pass"

    def on_refused(self, now_ns: int, packet: PacketMeta, backlog: Backlog) -> None:
        """A packet arrived and there was no room: it is dropped already."""


class CongestionControl:
    """Decides how much a TCP sender may have in flight: the base of a class of your own.

    The transport is underload's: it finds losses, sends again, and times out. After every method
    it reads `cwnd` and `pacing_rate` of the object and keeps to them, in recovery, too. An object
    is one connection of one trial, and is made by `own()` with the parameters that were given
    there. What stands below is there before `__init__` runs. An exception ends the run:
    `OwnCodeError`.

    `on_ack` must be given. Each call costs about what `docs/python.md` says; `on_undo` and
    `on_restart` cost nothing in a class that leaves them as they are.
    """

    ecn: ClassVar[Literal["accurate", "l4s"] | None] = None
    """The use of ECN that the class cannot do without: `"accurate"`: ECT(0), and every mark is
    counted in `Ack.marked`; `"l4s"`: the same with ECT(1); `None`: what the flow says
    (`ecn=True`: ECT(0), and `on_ecn` once per round trip)."""
    rng: random.Random
    """Random numbers of this connection and this trial alone."""
    segment_bytes: int
    """Payload of a full segment, bytes."""
    packet_bytes: int
    """The same with its headers, bytes."""
    cwnd: float
    """Segments that may be in flight, 1 to 65000, fractions rounded down; the initial window at
    first."""
    pacing_rate: float | None
    """Bytes per second, headers included, to send at most; `None`, as at first: whatever `cwnd`
    allows, at once."""

    def on_ack(self, ack: Ack) -> None:
        """An acknowledgement arrived, in any state."""
        raise NotImplementedError

    def on_loss(self, event: CongestionEvent) -> None:
        """A loss was found by acknowledgements; once per window. Halves `cwnd`, if a class leaves
        it as it is."""
        self.cwnd = max(self.cwnd / 2, 2)

    def on_ecn(self, event: CongestionEvent) -> None:
        """A mark was reported; once per window. As a loss, if a class leaves it as it is."""
        self.on_loss(event)

    def on_timeout(self, event: CongestionEvent) -> None:
        """A retransmission timeout. `cwnd` becomes 1, if a class leaves it as it is."""
        self.cwnd = 1

    def on_undo(self) -> None:
        """The latest loss or timeout proved to be none."""

    def on_restart(self, now_ns: int, idle_ns: int) -> None:
        """Sending resumes after so long without anything in flight."""


class OwnControl:
    """A congestion control that a class of your own makes: a value for `Tcp()`. `own()` makes
    it."""

    def __init__(
        self, cls: type[CongestionControl], spec: str, parameters: Mapping[str, Any]
    ) -> None:
        self.spec = spec
        """What it is known by in scenarios and records."""
        self.cls = cls
        """The class."""
        self.parameters = dict(parameters)
        """What its objects are made with."""

    def _brought(self) -> tuple[_Brought, str | None]:
        return (self.spec, self.cls.__name__, self._object), self.cls.ecn

    def _object(
        self, seed: int, facts: tuple[int, int, int]
    ) -> tuple[Any, tuple[Callable[..., Any] | None, ...]]:
        segment_bytes, packet_bytes, initial = facts
        given = {
            "segment_bytes": segment_bytes,
            "packet_bytes": packet_bytes,
            "cwnd": initial,
            "pacing_rate": None,
        }
        made = _made(self.cls, self.parameters, seed, **given)
        always = (made.on_ack, made.on_loss, made.on_ecn, made.on_timeout)
        return made, (*always, *_changed(made, self.cls, CongestionControl, "on_undo", "on_restart"))

    def __eq__(self, other: object) -> bool:
        mine = (self.cls, self.spec, self.parameters)
        return isinstance(other, OwnControl) and mine == (
            other.cls, other.spec, other.parameters
        )

    def __hash__(self) -> int:
        return hash((self.cls, self.spec))

    def __str__(self) -> str:
        return self.spec

    def __repr__(self) -> str:
        return f"OwnControl({self.spec!r}, {self.cls.__qualname__})"


class OwnQueue(Queue):
    """A queue that a class of your own decides in: a value for scenarios, `replay` and `link`, and
    a queue to put packets into. `own()` makes it."""

    def __init__(
        self, cls: type[Aqm], spec: str, parameters: Mapping[str, Any], *, seed: int = 1
    ) -> None:
        super().__init__(spec, seed=seed)
        self.cls = cls
        """The class."""
        self.parameters = dict(parameters)
        """What its objects are made with."""

    def _brought(self) -> _Brought:
        return self.spec, self.cls.__name__, self._methods

    def _methods(self, seed: int) -> tuple[Callable[..., Any] | None, ...]:
        """The methods of a new object; `None`: one that its class leaves as it is."""
        made = _made(self.cls, self.parameters, seed)
        return _changed(made, self.cls, Aqm, "on_enqueue", "on_dequeue", "on_refused")

    def __eq__(self, other: object) -> bool:
        mine = (self.cls, self.spec, self.parameters, self.seed)
        return isinstance(other, OwnQueue) and mine == (
            other.cls, other.spec, other.parameters, other.seed
        )

    def __hash__(self) -> int:
        return hash((self.cls, self.spec, self.seed))

    def __repr__(self) -> str:
        return f"OwnQueue({self.spec!r}, {self.cls.__qualname__})"


_Brought = tuple[str, str, Callable[..., Any]]


@overload
def own(
    cls: type[Aqm],
    *,
    limit: str = "1000p",
    name: str | None = None,
    seed: int = 1,
    **parameters: Any,
) -> OwnQueue: ...
@overload
def own(
    cls: type[CongestionControl], *, name: str | None = None, **parameters: Any
) -> OwnControl: ...
def own(
    cls: type[Aqm] | type[CongestionControl],
    *,
    name: str | None = None,
    **parameters: Any,
) -> OwnQueue | OwnControl:
    """An algorithm of your own: a queue that `cls` decides in, if it is based on `Aqm`, or a
    congestion control, if it is based on `CongestionControl`: `Tcp(own(Mine))`.

    `parameters` are those of its `__init__`. `limit`: what the queue holds, packets (`"1000p"`) or
    bytes (`"256KiB"`). It stands wherever a queue does: `Scenario(up_queue=own(Mine))`,
    `replay(packets, queue=own(Mine), ...)`, `link("20mbit", own(Mine))`, and step by step, where
    `seed` counts. In records and tables it is `own:Mine,limit=1000p` with its parameters; `name`
    says something else there, which parameters that are neither numbers nor short texts need. A
    parameter of `__init__` cannot have one of these three names.

    Runs with it are simulated, one trial after another, as Python's lock lets one thread work;
    they are never cached nor resumed, since nobody knows whether the code has changed, and cannot
    be swept. Raises `SpecError`.
    """
    bases = (Aqm, CongestionControl)
    if not (isinstance(cls, type) and issubclass(cls, bases)):
        what = "an object of it" if isinstance(cls, bases) else repr(cls)
        raise SpecError(
            f"own: {what}; expected a class that is based on underload.Aqm or "
            "underload.CongestionControl"
        )
    defaults: dict[str, Any] = {"limit": "1000p", "seed": 1}
    queue = defaults if issubclass(cls, Aqm) else {}
    queue = {key: parameters.pop(key, value) for key, value in queue.items()}
    try:
        inspect.signature(cls).bind(**parameters)
    except TypeError as error:
        raise SpecError(f"own: {cls.__name__}: {error}") from None
    shown = {} if name is not None else dict(parameters)
    if "limit" in queue:
        shown = {"limit": queue["limit"], **shown}
    words = [f"{key}={_plain(key, _word(value))}" for key, value in shown.items()]
    spec = ",".join([f"own:{_plain('name', name or cls.__name__)}", *words])
    if issubclass(cls, CongestionControl):
        if cls.on_ack is CongestionControl.on_ack:
            raise SpecError(f"own: {cls.__name__}: expected a class that has on_ack")
        return OwnControl(cls, spec, parameters)
    _underload.queue_label(spec, None)
    return OwnQueue(cls, spec, parameters, seed=queue["seed"])


def _plain(key: str, word: str) -> str:
    """A word that can stand in a SPEC."""
    plain = word.isascii() and all(it.isalnum() or it in "_-+.%/" for it in word)
    if not word or len(word) > 80 or not plain:
        raise SpecError(
            f"own: {key}: {word!r} cannot stand in a SPEC; "
            "expected own(..., name=...), and the parameters are not shown"
        )
    return word


def _made(cls: type[Any], parameters: Mapping[str, Any], seed: int, **given: Any) -> Any:
    """An object that has its random numbers, and what is given, before its own code begins."""
    make: Any = cls
    made = make.__new__(cls)
    made.rng = random.Random(seed)
    for key, value in given.items():
        setattr(made, key, value)
    made.__init__(**parameters)
    return made


def _changed(
    made: Any, cls: type[Any], base: type[Any], *names: str
) -> tuple[Callable[..., Any] | None, ...]:
    """Methods of an object; `None`: one that its class leaves as its base has it."""
    is_own = [getattr(cls, name) is not getattr(base, name) for name in names]
    return tuple(getattr(made, name) if it else None for name, it in zip(names, is_own))


def brought(*values: Any) -> tuple[list[_Brought], list[tuple[_Brought, str | None]]]:
    """The queues and the congestion controls of one's own that stand in some values, each
    once."""
    found: dict[str, Any] = {}
    for value in _all_in(values, 0):
        known = found.setdefault(value.spec, value)
        if known != value:
            raise SpecError(
                f"{value.spec}: two algorithms of one's own are known by it; "
                "expected own(..., name=...) to tell them apart"
            )
    queues = [it._brought() for it in found.values() if isinstance(it, OwnQueue)]
    return queues, [it._brought() for it in found.values() if isinstance(it, OwnControl)]


def _all_in(value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, (OwnQueue, OwnControl)):
        yield value
    elif depth < 16 and isinstance(value, Mapping):
        yield from _all_in(tuple(value.values()), depth + 1)
    elif depth < 16 and isinstance(value, (list, tuple)):
        for one in value:
            yield from _all_in(one, depth + 1)
    elif depth < 16 and hasattr(value, "_own_values"):
        yield from _all_in(value._own_values(), depth + 1)


def interrupt_thread(thread: int) -> None:
    """Has a thread of Python meet a `KeyboardInterrupt` at its next step."""
    exception = ctypes.py_object(KeyboardInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)
