"""Scenarios: built in code, read from a file, or built into the program."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _underload
from ._errors import ScenarioError
from ._own import OwnControl, misplaced

Value = Any
"""A value of a key: text with a unit such as `"20mbit"`, a number, a bool, a list, a queue."""


@dataclass(frozen=True)
class Flow:
    """A sender: its kind, its name, and its keys (`docs/scenario-format.md`)."""

    kind: str
    keys: Mapping[str, Value] = field(default_factory=dict)
    name: str | None = None
    """The name in the record; `None` for the kind, numbered if several flows have it."""

    def __post_init__(self) -> None:
        name = self.name or self.kind
        keys = {f"flow.{name}.{key}": value for key, value in self.keys.items()}
        # The phases of the scenario may be longer than their defaults.
        keys[f"flow.{name}.kind"] = self.kind
        _refuse_faults("scenario", keys, {"up": "1mbit"}, {"load": "24h"}, (self,))


def Tcp(
    congestion_control: str | OwnControl,
    *,
    direction: str = "up",
    count: int = 1,
    name: str | None = None,
    **keys: Value,
) -> Flow:
    """Returns `count` endless TCP transfers. `congestion_control` is a name such as `"cubic"` or
    `"bbr"`, or a class of your own: `own(Mine)`. Warns about a name that the simulator does not
    know: the kernel may have it."""
    if isinstance(congestion_control, str) and not congestion_control.startswith("own:"):
        known = _underload.congestion_controls()
        if congestion_control not in known:
            what = f"`{congestion_control}` is not simulated; expected {', '.join(known)}"
            warnings.warn(f"{what}, or world='live'", stacklevel=2)
    keys = {"congestion_control": congestion_control, "direction": direction, **keys}
    return Flow("tcp", {**keys, "count": count} if count != 1 else keys, name)


def Probe(interval: str = "10ms", *, name: str | None = None, **keys: Value) -> Flow:
    """Returns a probe: small packets that are sent on a fixed schedule and echoed."""
    return Flow("probe", {"interval": interval, **keys}, name)


def Udp(rate: str, *, direction: str = "up", name: str | None = None, **keys: Value) -> Flow:
    """Returns datagrams at a constant rate such as `"2mbit"`."""
    return Flow("udp", {"rate": rate, "direction": direction, **keys}, name)


def Application(kind: str, *, name: str | None = None, **keys: Value) -> Flow:
    """Returns an application: `voip`, `web`, `video`, `interactive-video`, `game` or `cloud-game`.
    """
    return Flow(kind, keys, name)


def _refuse_faults(
    scenario: str,
    keys: Mapping[str, Value],
    path: dict[str, Value],
    phases: dict[str, Value],
    flows: tuple[Flow, ...] = (),
    variants: Sequence[tuple[str, dict[str, Value]]] = (),
    head: Mapping[str, Value] | None = None,
) -> None:
    """Raises `ScenarioError` with the faults of these keys that the check of a scenario finds. What
    the scenario still lacks is no fault."""
    for key, value in keys.items():
        problem = misplaced(key, value)
        if problem is not None:
            fault = (scenario, None, key, problem)
            raise ScenarioError(f"{scenario}: {key}: {problem}", [fault])
    named, overrides = _named(flows), _overrides()
    try:
        _underload.Scenario.build(
            scenario, dict(head or {}), path, phases, named, list(variants), [], overrides
        )
    except ScenarioError as error:
        # A condition that a cohort draws, such as "{rtt}", is not known yet.
        known = [key for key, value in keys.items() if "{" not in str(value)]
        below = tuple(f"{key}{mark}" for key in known for mark in ".[")
        faults = [it for it in error.faults if it.key in known or it.key.startswith(below)]
        if faults:
            lines = [f"{it.scenario}: {it.key}: {it.problem}" for it in faults]
            raise ScenarioError("\nerror: ".join(lines), [*faults]) from None


def _complete(path: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the keys of a path without queues whose link is not known yet."""
    queues = {"up_queue": "up", "down_queue": "down"}
    return {key: value for key, value in path.items() if queues.get(key, key) in path}


class Scenario:
    """An experiment: a path, flows over the path, and variants that differ in some keys.

    `path` has the keys of `[path]` in a scenario file, such as `up="20mbit"`, `down`, `rtt="40ms"`,
    `up_queue`, `down_queue`, `up_delay`, `up_loss`; `phases` has the keys of `[phases]`. Methods
    return a changed copy. Scenarios can be pickled and compared. An unknown key or an invalid value
    raises `ScenarioError` at once; what the scenario lacks raises it when it is checked or run.
    """

    def __init__(
        self,
        name: str = "scenario",
        *,
        title: str = "",
        description: str = "",
        repeats: int = 1,
        seed: int = 1,
        phases: Mapping[str, Value] | None = None,
        **path: Value,
    ) -> None:
        self._name = name
        self._text: str | None = None
        words = {"title": title, "description": description}
        self._head: dict[str, Value] = {key: text for key, text in words.items() if text}
        self._head.update(repeats=repeats, seed=seed)
        self._path = dict(path)
        self._phases = {"load": "10s", **(phases or {})}
        self._flows: tuple[Flow, ...] = ()
        self._variants: tuple[tuple[str, dict[str, Value]], ...] = ()
        self._sweeps: tuple[tuple[str, tuple[Value, ...]], ...] = ()
        self._checked: _underload.Scenario | None = None
        keys = {f"path.{key}": value for key, value in _complete(path).items()}
        keys.update({f"phases.{key}": value for key, value in self._phases.items()})
        keys.update(self._head)
        _refuse_faults(name, keys, self._path, self._phases, head=self._head)

    @classmethod
    def load(cls, scenario: str | os.PathLike[str]) -> Scenario:
        """Returns the built-in scenario of that name, as `scenarios()` lists them, or the file at
        that path."""
        found = _underload.Scenario.find(os.fspath(scenario), _overrides())
        return cls._of_text(found.name, found.text, found)

    @classmethod
    def parse(cls, text: str, name: str = "scenario") -> Scenario:
        """Returns the scenario of a file with this text."""
        return cls._of_text(name, text, _underload.Scenario.parse(name, text, _overrides()))

    @classmethod
    def _of_text(cls, name: str, text: str, checked: _underload.Scenario | None) -> Scenario:
        scenario = cls(name)
        scenario._text, scenario._checked = text, checked
        return scenario

    def flow(self, *flows: Flow) -> Scenario:
        """Returns the scenario with these flows added."""
        for one in flows:
            if not isinstance(one, Flow):
                raise ScenarioError(
                    f"flow: {type(one).__name__} is not a flow; expected Tcp(), Udp(), Probe(), "
                    "Application() or Flow()",
                    [(self._name, None, "flow", f"{type(one).__name__} is not a flow")],
                )
        return self._with(_flows=self._flows + flows)

    def variant(
        self, name: str, changes: Mapping[str, Value] | None = None, **path: Value
    ) -> Scenario:
        """Returns the scenario with another variant, which changes keys of the path
        (`up_queue="codel"`), or other keys by their dotted names: `{"flow.tcp.count": 4,
        "phases.load": "30s"}`."""
        keys = {f"path.{key}": value for key, value in path.items()}
        keys.update(changes or {})
        made = self._with(_variants=(*self._variants, (name, keys)))
        self._refuse_changes(keys)
        return made

    def sweep(self, key: str, values: Sequence[Value]) -> Scenario:
        """Returns the scenario with each variant at every one of these values of a key, such as
        `path.up`."""
        made = self._with(_sweeps=(*self._sweeps, (key, tuple(values))))
        for value in values:
            self._refuse_changes({key: value})
        return made

    def _refuse_changes(self, changes: dict[str, Value]) -> None:
        """Raises `ScenarioError` for faults of keys that a variant changes. The flow or the link
        of a key may be added later."""
        of_path = [key.removeprefix("path.") for key in changes if key.startswith("path.")]
        path = _complete({**self._path, **dict.fromkeys(of_path)})
        flows = tuple(f"flow.{name}." for name, _, _ in _named(self._flows))
        lacking = [f"path.{key}" for key in of_path if key not in path]
        lacking += [key for key in changes if key.startswith("flow.") and not key.startswith(flows)]
        checked = {key: value for key, value in changes.items() if key not in lacking}
        phases, variants = {**self._phases, "load": "24h"}, [("changed", changes)]
        _refuse_faults(self._name, checked, self._path, phases, self._flows, variants)

    def phases(self, **lengths: Value) -> Scenario:
        """Returns the scenario with other lengths of the phases: `idle`, `ramp` (or `"steady"`),
        `load`, `drain`."""
        made = self._with(_phases={**self._phases, **lengths})
        keys = {f"phases.{key}": value for key, value in lengths.items()}
        _refuse_faults(self._name, keys, self._path, made._phases)
        return made

    def set(self, **head: Value) -> Scenario:
        """Returns the scenario with other keys at the top: `title`, `description`, `repeats`,
        `seed`."""
        return self._with(_head={**self._head, **head})

    def _with(self, **changes: Any) -> Scenario:
        if self._text is not None:
            raise ScenarioError(
                f"{self._name}: a scenario read from a file cannot be extended; "
                "change its keys by run(..., set={'path.up': '20mbit'})"
            )
        other = Scenario.__new__(Scenario)
        other.__dict__.update(self.__dict__, _checked=None, **changes)
        return other

    def check(self) -> Scenario:
        """Returns this scenario if it can be run. Raises `ScenarioError` with all faults otherwise.
        """
        self._native()
        return self

    @property
    def name(self) -> str:
        """The name of the scenario in records and reports."""
        return self._name

    @property
    def title(self) -> str:
        """The heading of the scenario in reports."""
        return self._native().title

    @property
    def text(self) -> str:
        """The text of an equivalent scenario file."""
        return self._native().text

    @property
    def variants(self) -> dict[str, str]:
        """The label of each variant, by its name."""
        return dict(self._native().variants)

    @property
    def worlds(self) -> list[str]:
        """The worlds that can run the scenario: `sim`, `live`."""
        return self._native().worlds

    def _native(self, **overrides: Any) -> _underload.Scenario:
        if overrides:
            return self._made(_overrides(**overrides))
        if self._checked is None:
            self._checked = self._made(_overrides())
        return self._checked

    def _made(self, overrides: dict[str, Any]) -> _underload.Scenario:
        if self._text is not None:
            return _underload.Scenario.parse(self._name, self._text, overrides)
        return _underload.Scenario.build(
            self._name,
            self._head,
            self._path,
            self._phases,
            _named(self._flows),
            list(self._variants),
            [(key, list(values)) for key, values in self._sweeps],
            overrides,
        )

    def _own_values(self) -> tuple[Any, ...]:
        """Returns the values of the scenario that may be algorithms written in Python."""
        flows = tuple(flow.keys for flow in self._flows)
        variants = tuple(changes for _, changes in self._variants)
        return (self._head, self._path, flows, variants, self._sweeps)

    def _state(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": None}

    def __getstate__(self) -> dict[str, Any]:
        return self._state()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self._state() == other._state()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if self._text is not None:
            return f"Scenario.parse({len(self._text)} characters, name={self._name!r})"
        flows = ", ".join(name for name, _, _ in _named(self._flows))
        variants = ", ".join(name for name, _ in self._variants) or "default"
        return f"Scenario({self._name!r}, flows: {flows or 'none'}; variants: {variants})"


def scenarios() -> list[str]:
    """Returns the names of the built-in scenarios."""
    return _underload.scenario_names()


def _overrides(
    *,
    short: bool = False,
    set: Mapping[str, Value] | None = None,
    variants: Sequence[str] | None = None,
    repeats: int | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Returns the overrides of a scenario, as the native module takes them."""
    repeats, seed = _whole("repeats", repeats, 1), _whole("seed", seed, 0)
    if isinstance(variants, str):
        variants = [variants]
    changes = [f"{key}={_text_of(value)}" for key, value in (set or {}).items()]
    return {
        "short": short,
        "set": changes,
        "variants": list(variants or ()),
        "repeats": None if repeats is None else min(repeats, (1 << 32) - 1),
        "seed": seed,
    }


def _whole(name: str, number: Any, least: int) -> int | None:
    """Returns a whole number of Python or NumPy as one of Python."""
    try:
        whole = None if number is None else operator.index(number)
    except TypeError:
        whole = -1
    if whole is not None and not least <= whole < 1 << 64:
        raise ScenarioError(f"{name}: {number!r}; expected a whole number from {least} on")
    return whole


def _text_of(value: Value) -> str:
    # A scalar of NumPy becomes one of Python.
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(getattr(value, "spec", value))


def _named(flows: tuple[Flow, ...]) -> list[tuple[str, str, dict[str, Value]]]:
    """Returns the flows with unique names: their kind, numbered from the second on."""
    taken = {flow.name for flow in flows if flow.name is not None}
    named = []
    for flow in flows:
        name, number = flow.name, 1
        while name is None:
            candidate = flow.kind if number == 1 else f"{flow.kind}-{number}"
            number += 1
            if candidate not in taken:
                name = candidate
                taken.add(name)
        named.append((name, flow.kind, dict(flow.keys)))
    return named
