"""Algorithms of your own: classes that make decisions in simulations, in replays and step by
step."""

from __future__ import annotations

import ctypes
import difflib
import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, overload

from . import _underload
from ._errors import SpecError
from ._queue import Queue, _word
from ._underload import Ack, Backlog, CongestionEvent, PacketMeta

Verdict = Literal["pass", "signal", "drop"]
"""The verdict on a packet: `"pass"` sends or stores it; `"signal"` marks it if it is ECN-capable,
and drops it otherwise; `"drop"` drops it."""


class Aqm:
    """Decides which packets of a queue are dropped or marked: the base of a class of your own.

    underload provides the queue itself: first in, first out. It stores and counts packets, and
    drops arrivals when it is full. `own()` creates an object for one queue of one trial, with
    the parameters given to `own()`. `rng`, set before `__init__` runs, draws random numbers that
    depend only on the run's seed. Times are whole ns that never go backwards. A class that reads
    no clock has the same results for the same seed.

    A method that a class does not override costs nothing; `docs/python.md` has the cost per packet
    of the others. An exception ends the run with `OwnCodeError`.
    """

    rng: random.Random
    """Random numbers for this queue of this trial."""

    def on_enqueue(self, now_ns: int, packet: PacketMeta, backlog: Backlog) -> Verdict:
        """Called for an arrival that the queue can store. `backlog` excludes the arrival."""
        return "pass"

    def on_dequeue(self, now_ns: int, packet: PacketMeta, backlog: Backlog) -> Verdict:
        """Called for the packet at the head when the link is free. The packet has waited for
        `now_ns - packet.arrived_ns`; `backlog` includes it. After a drop, the method is called for
        the next packet."""
        return "pass"

    def on_refused(self, now_ns: int, packet: PacketMeta, backlog: Backlog) -> None:
        """Called for an arrival that was dropped because the queue is full."""


class CongestionControl:
    """Decides how much a TCP sender may have in flight: the base of a class of your own.

    The transport is underload's: it detects losses, retransmits, and times out. After every method
    it applies `cwnd` and `pacing_rate` of the object, also in recovery. `own()`
    creates an object for one connection of one trial, with the parameters given to `own()`. The
    attributes below are set before `__init__` runs. An exception ends the run with `OwnCodeError`.

    A class must have `on_ack`. `docs/python.md` has the cost of a call; `on_undo` and `on_restart`
    cost nothing in a class that does not override them.
    """

    ecn: ClassVar[Literal["accurate", "l4s"] | None] = None
    """The use of ECN that the class requires: `"accurate"` for ECT(0) with every mark counted in
    `Ack.marked`; `"l4s"` for the same with ECT(1); `None` for the flow's setting (`ecn=True`:
    ECT(0), and `on_ecn` once per round trip)."""
    rng: random.Random
    """Random numbers for this connection of this trial."""
    segment_bytes: int
    """Payload of a full segment, bytes."""
    packet_bytes: int
    """A full segment with its headers, bytes."""
    cwnd: float
    """Segments that may be in flight, 1 to 65000; fractions are rounded down. At the start the initial
    window."""
    pacing_rate: float | None
    """The sending rate in bytes per second, headers included; `None`, as at the start, sends at
    once what `cwnd` allows."""

    def on_ack(self, ack: Ack) -> None:
        """Called for every acknowledgement, in any state."""
        raise NotImplementedError

    def on_loss(self, event: CongestionEvent) -> None:
        """Called once per window when acknowledgements show a loss. By default halves `cwnd`."""
        self.cwnd = max(self.cwnd / 2, 2)

    def on_ecn(self, event: CongestionEvent) -> None:
        """Called once per window when a mark is reported. By default calls `on_loss`."""
        self.on_loss(event)

    def on_timeout(self, event: CongestionEvent) -> None:
        """Called after a retransmission timeout. By default sets `cwnd` to 1."""
        self.cwnd = 1

    def on_undo(self) -> None:
        """Called when the latest loss or timeout proves to be spurious."""

    def on_restart(self, now_ns: int, idle_ns: int) -> None:
        """Called when sending resumes after `idle_ns` without segments in flight."""


class OwnControl:
    """A congestion control of a class of your own: a value for `Tcp()`, which `own()` creates."""

    def __init__(
        self, cls: type[CongestionControl], spec: str, parameters: Mapping[str, Any]
    ) -> None:
        self.spec = spec
        """The name in scenarios and records."""
        self.cls = cls
        """The class."""
        self.parameters = dict(parameters)
        """The arguments of its objects."""

    def _custom(self) -> tuple[_Custom, str | None]:
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
        optional = _changed(made, self.cls, CongestionControl, "on_undo", "on_restart")
        return made, (*always, *optional)

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
    """A queue of a class of your own, which `own()` creates: a value for scenarios, `replay` and
    `link`, and a queue to put packets into."""

    def __init__(
        self, cls: type[Aqm], spec: str, parameters: Mapping[str, Any], *, seed: int = 1
    ) -> None:
        super().__init__(spec, seed=seed)
        self.cls = cls
        """The class."""
        self.parameters = dict(parameters)
        """The arguments of its objects."""

    def _custom(self) -> _Custom:
        return self.spec, self.cls.__name__, self._methods

    def _methods(self, seed: int) -> tuple[Callable[..., Any] | None, ...]:
        """Returns the methods of a new object; `None` for each method that its class does not
        override."""
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


_Custom = tuple[str, str, Callable[..., Any]]


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
    """Returns an algorithm of your own: for a class based on `Aqm` a queue in which `cls` decides
    about packets, for one based on `CongestionControl` a congestion control: `Tcp(own(Mine))`.

    `parameters` are the arguments of the class's `__init__`. `limit` is the queue's capacity in
    packets (`"1000p"`) or bytes (`"256KiB"`). The queue is accepted in place of a queue's name:
    `Scenario(up_queue=own(Mine))`, `replay(packets, queue=own(Mine), ...)`,
    `link("20mbit", own(Mine))`. It can also be used step by step; only then does `seed` matter. In
    records and tables the queue's name is `own:Mine,limit=1000p` with the parameters; `name`
    replaces this name, and is required if a parameter is neither a number nor a short text. No
    parameter of `__init__` may be called `limit`, `name` or `seed`.

    Runs with such an algorithm are simulated, one trial after another, because Python's lock lets
    one thread run at a time. These runs are neither cached nor resumed, because the code may have
    changed, and cannot be swept. Raises `SpecError`.
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
        _check_methods(cls, CongestionControl, "on_ack")
        return OwnControl(cls, spec, parameters)
    _check_methods(cls, Aqm, "on_enqueue", "on_dequeue", "on_refused")
    _underload.queue_label(spec, None)
    return OwnQueue(cls, spec, parameters, seed=queue["seed"])


def _check_methods(cls: type[Any], base: type[Any], *needed: str) -> None:
    """Raises `SpecError` for a class without the needed methods, or with a misspelt one."""
    called = [name for name in vars(base) if name.startswith("on_")]
    for name in dir(cls):
        if not name.lower().startswith("on") or name in called or not callable(getattr(cls, name)):
            continue
        near = difflib.get_close_matches(name.lower(), called, 1, 0.7)
        if near or name.startswith("on_"):
            meant = f"; did you mean {near[0]}?" if near else ""
            raise SpecError(
                f"own: {cls.__name__}.{name}: no such method is called; "
                f"expected {', '.join(called)}{meant}"
            )
    if all(getattr(cls, name) is getattr(base, name) for name in needed):
        raise SpecError(f"own: {cls.__name__}: expected a class that has {' or '.join(needed)}")


def _plain(key: str, word: str) -> str:
    """Returns the word. Raises `SpecError` if a SPEC cannot contain it."""
    plain = word.isascii() and all(it.isalnum() or it in "_-+.%/" for it in word)
    if not word or len(word) > 80 or not plain:
        raise SpecError(
            f"own: {key}: {word!r} is not allowed in a SPEC; "
            "expected own(..., name=...), and the parameters are not shown"
        )
    return word


def _made(cls: type[Any], parameters: Mapping[str, Any], seed: int, **given: Any) -> Any:
    """Creates an object, with its random numbers and attributes set before `__init__` runs."""
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
    """Returns the methods of an object; `None` for each method that its class does not override."""
    is_own = [getattr(cls, name) is not getattr(base, name) for name in names]
    return tuple(getattr(made, name) if it else None for name, it in zip(names, is_own))


def custom_algorithms(*values: Any) -> tuple[list[_Custom], list[tuple[_Custom, str | None]]]:
    """Returns the distinct queues and congestion controls written in Python among some values."""
    found: dict[str, Any] = {}
    for value in _all_in(values, 0):
        known = found.setdefault(value.spec, value)
        if known != value:
            raise SpecError(
                f"{value.spec}: two algorithms have this name; "
                "expected own(..., name=...) with separate names"
            )
    queues = [it._custom() for it in found.values() if isinstance(it, OwnQueue)]
    return queues, [it._custom() for it in found.values() if isinstance(it, OwnControl)]


def misplaced(key: str, value: Any) -> str | None:
    """Returns what is wrong with an algorithm of your own as the value of a key; `None` if the key
    accepts it, or if the value is something else."""
    if isinstance(value, type) and issubclass(value, (Aqm, CongestionControl)):
        return f"{value.__name__} is a class; expected own({value.__name__})"
    if key.endswith("congestion_control") and isinstance(value, Queue):
        return (
            f"`{value}` is a queue; expected the name of a congestion control, "
            "or own(CLASS) of a class that is based on underload.CongestionControl"
        )
    if key.endswith("_queue") and isinstance(value, OwnControl):
        return (
            f"`{value}` is a congestion control, for Tcp(); expected a queue, "
            "or own(CLASS) of a class that is based on underload.Aqm"
        )
    return None


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
    """Raises `KeyboardInterrupt` in another thread of Python."""
    exception = ctypes.py_object(KeyboardInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)
