"""Algorithms of your own: classes that decide in the simulator, in replays and step by step."""

from __future__ import annotations

import ctypes
import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from . import _underload
from ._errors import SpecError
from ._queue import Queue, _spec, _word
from ._underload import Backlog, PacketMeta

Verdict = Literal["pass", "signal", "drop"]
"""What becomes of a packet: `"pass"`: nothing; `"signal"`: it is marked if it is ECN-capable, and
dropped if it is not; `"drop"`: it is dropped."""

_RESERVED = ("limit", "name", "seed")


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
        names = ("on_enqueue", "on_dequeue", "on_refused")
        is_own = [getattr(self.cls, name) is not getattr(Aqm, name) for name in names]
        return tuple(getattr(made, name) if it else None for name, it in zip(names, is_own))

    def __eq__(self, other: object) -> bool:
        mine = (self.cls, self.spec, self.parameters, self.seed)
        return isinstance(other, OwnQueue) and mine == (
            other.cls, other.spec, other.parameters, other.seed
        )

    def __hash__(self) -> int:
        return hash((self.cls, self.spec, self.seed))

    def __repr__(self) -> str:
        return f"OwnQueue({self.spec!r}, {self.cls.__qualname__})"


_Brought = tuple[str, str, Callable[[int], Any]]


def own(
    cls: type[Aqm],
    *,
    limit: str | int = "1000p",
    name: str | None = None,
    seed: int = 1,
    **parameters: Any,
) -> OwnQueue:
    """A queue that `cls`, a class of your own based on `Aqm`, decides in.

    `parameters` are those of its `__init__`. `limit`: what the queue holds, packets (`"1000p"`) or
    bytes (`"256KiB"`). It stands wherever a queue does: `Scenario(up_queue=own(Mine))`,
    `replay(packets, queue=own(Mine), ...)`, `link("20mbit", own(Mine))`, and step by step, where
    `seed` counts. In records and tables it is `own:Mine,limit=1000p` with its parameters; `name`
    says something else there, which parameters that are neither numbers nor short texts need.

    Runs with it are simulated, one trial after another, as Python's lock lets one thread work;
    they are never cached nor resumed, since nobody knows whether the code has changed, and cannot
    be swept. Raises `SpecError`.
    """
    if not (isinstance(cls, type) and issubclass(cls, Aqm)):
        what = "an object of it" if isinstance(cls, Aqm) else repr(cls)
        raise SpecError(f"own: {what}; expected a class that is based on underload.Aqm")
    try:
        inspect.signature(cls).bind(**parameters)
    except TypeError as error:
        raise SpecError(f"own: {cls.__name__}: {error}") from None
    shown = {"limit": limit, **({} if name is not None else parameters)}
    spec = _spec(f"own:{_plain('name', name or cls.__name__)}", {})
    words = [f"{key}={_plain(key, _word(value))}" for key, value in shown.items()]
    made = OwnQueue(cls, ",".join([spec, *words]), parameters, seed=seed)
    _underload.queue_label(made.spec, None)
    return made


def _plain(key: str, word: str) -> str:
    """A word that can stand in a SPEC."""
    plain = word.isascii() and all(it.isalnum() or it in "_-+.%/" for it in word)
    if not word or len(word) > 80 or not plain:
        raise SpecError(
            f"own: {key}: {word!r} cannot stand in a SPEC; "
            "expected own(..., name=...), and the parameters are not shown"
        )
    return word


def _made(cls: type[Any], parameters: Mapping[str, Any], seed: int) -> Any:
    """An object that has its random numbers before its own code begins."""
    make: Any = cls
    made = make.__new__(cls)
    made.rng = random.Random(seed)
    made.__init__(**parameters)
    return made


def brought(*values: Any) -> list[_Brought]:
    """The algorithms of one's own that stand in some values, each once."""
    found: dict[str, Any] = {}
    for value in _all_in(values, 0):
        known = found.setdefault(value.spec, value)
        if known != value:
            raise SpecError(
                f"{value.spec}: two algorithms of one's own are known by it; "
                "expected own(..., name=...) to tell them apart"
            )
    return [value._brought() for value in found.values()]


def _all_in(value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, OwnQueue):
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
