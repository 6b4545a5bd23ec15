"""Gymnasium environments for reinforcement learning, in which an agent controls the simulator step
by step.

    import underload as ul

    environment = ul.env("congestion-control", up="20mbit", rtt="40ms")
    seen, info = environment.reset(seed=1)
    seen, reward, terminated, truncated, info = environment.step([0.1])

An episode depends only on the settings, the seed and the actions. The seed draws the starts of the
flows, and settings that are ranges. `gymnasium.make("underload/CongestionControl-v0")` and
`"underload/QueueManagement-v0"` make the environments once this module is imported. Needs gymnasium
and NumPy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy
from gymnasium import spaces
from numpy.typing import NDArray

from . import _underload
from ._errors import EnvError
from ._own import OwnControl, custom_algorithms
from ._queue import Queue
from ._scenario import Flow, Scenario

__all__ = ["CongestionControl", "QueueManagement", "Step"]

Vector = NDArray[numpy.float32]
Setting = str | tuple[str, str]
"""A value, or the two ends of a range from which each episode draws one, in equal ratios:
`("5mbit", "50mbit")`."""
HIGHEST = 1e4
"""The upper bound of observations; meaningful values are far below it."""


class Step(NamedTuple):
    """The unscaled observation of a step: `info["step"]`."""

    time_ns: int
    """The end of the step, ns."""
    delivered_bytes: int
    """Delivered payload: of the controlled flow, or of all flows if the queue is controlled."""
    capacity_bytes: int
    """The payload that the link could have carried."""
    rtt_ns: int
    """Smoothed round trip of the first flow, ns; 0 before the first sample. The first flow is the
    first TCP flow that sends up."""
    window: int
    """Congestion window of the first flow, segments of 1448 bytes."""
    in_flight: int
    """Segments of the first flow in flight."""
    retransmits: int
    """Segments that the first flow retransmitted."""
    marked: int
    """Packets that the queue marked."""
    dropped: int
    """Packets that the queue dropped."""
    backlog_bytes: int
    """Bytes in the queue at the end."""
    backlog_packets: int
    """Packets in the queue at the end."""


class _Steered(gymnasium.Env[Vector, Vector]):
    """Common parts of both environments: a scenario, and steps of virtual time."""

    metadata = {"render_modes": []}
    _KEYS = {"up": "path.up", "rtt": "path.rtt"}
    """The settings that an episode may change, and their keys in the scenario."""

    def __init__(
        self,
        scenario: Scenario | None,
        settings: Mapping[str, Setting | Queue | None],
        flows: list[Flow],
        limit_packets: int | None,
        step: str,
        steps: int,
        delay_weight: float,
    ) -> None:
        given = {key: value for key, value in settings.items() if value is not None}
        if scenario is None:
            default = {"up": "20mbit", "rtt": "40ms", "queue": "fifo:limit=256KiB"}
            plain = {key: value for key, value in given.items() if not isinstance(value, tuple)}
            first = {**default, **plain}
            up, rtt, queue = first["up"], first["rtt"], first["queue"]
            scenario = Scenario("environment", up=up, rtt=rtt, up_queue=queue).flow(*flows)
            given = {key: value for key, value in given.items() if key not in plain}
        self._scenario, self._given = scenario, given
        self._made = (limit_packets, step)
        self._steps = steps
        self._delay_weight = delay_weight
        self._start(1, {}, lambda: 0.5)

    def _start(self, seed: int, options: Mapping[str, Any], draw: Callable[[], float]) -> None:
        for key in options:
            if key not in self._KEYS:
                raise EnvError(f"options: {key!r}; expected {', '.join(self._KEYS)}")
        given = {**self._given, **options}
        changes = {self._KEYS[key]: _drawn(key, given[key], draw) for key in sorted(given)}
        native = self._scenario._native(**({"set": changes} if changes else {}))
        own = custom_algorithms(self._scenario, changes)
        self._native = _underload.Environment(native, own, *self._made, seed)
        self._pipe: float = self._native.pipe_packets
        self._rtt_ns = self._native.rtt_ns
        self._done = 0

    def _begin(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        super().reset(seed=None if seed is None else operator.index(seed))
        own = int(self.np_random.integers(1 << 62))
        self._start(own, options or {}, lambda: float(self.np_random.random()))

    def _is_over(self) -> bool:
        self._done += 1
        return self._done >= self._steps

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "an environment under way cannot be pickled; "
            "give vector environments a function that creates one: lambda: ul.env(...)"
        )


def _drawn(key: str, value: Any, draw: Callable[[], float]) -> Any:
    """Returns a value, or one that is drawn from a range."""
    if not isinstance(value, tuple):
        return value
    drawn = None
    if len(value) == 2:
        drawn = _underload.quantity_between(str(value[0]), str(value[1]), draw())
    if drawn is None:
        raise EnvError(f"{key}: {value!r}; expected two values with one unit: ('5mbit', '50mbit')")
    return drawn


def _flows(
    scenario: Scenario | None,
    flows: str | Sequence[str | OwnControl] | None,
    default: Sequence[str],
    ecn: bool,
    start_jitter: str | None,
) -> list[Flow]:
    """Returns the flows of an environment without a scenario."""
    given = {"flows": flows, "ecn": ecn or None, "start_jitter": start_jitter}
    for key, value in given.items():
        if scenario is not None and value is not None:
            raise EnvError(f"{key}: {value!r}; expected it in the flows of the scenario")
    controls = [flows] if isinstance(flows, str) else list(default if flows is None else flows)
    if not controls:
        raise EnvError("flows: expected at least one")
    keys = {"ecn": ecn, "start_jitter": start_jitter or "100ms"}
    return [Flow("tcp", {"congestion_control": it, **keys}) for it in controls]


def _within(action: Vector, low: float) -> float:
    value = float(action[0])
    if value != value:
        raise EnvError("action: not a number")
    return min(max(value, low), 1.0)


class CongestionControl(_Steered):
    """An environment in which the agent chooses the congestion window of a TCP flow.

    Action, shape (1,), -1 to 1: the window is multiplied by 2 to the power of the action, and stays
    between 2 segments and eight times the bandwidth-delay product.

    Observation, shape (6,), of the last step: delivered payload divided by the link's capacity;
    smoothed round trip divided by the base round trip; window divided by the bandwidth-delay
    product; segments in flight divided by the bandwidth-delay product; retransmitted packets;
    marked packets.

    Reward: the first observation, minus `delay_weight` times the queueing delay in base round
    trips, minus 0.01 for each retransmitted packet. An episode is truncated after `steps` steps.

    The link has `up` (20mbit), the base round trip `rtt` (40ms) and `queue` (fifo:limit=256KiB);
    `up` and `rtt` may be ranges. Further `flows`, such as `["cubic"]`, share the link. Each flow
    starts up to `start_jitter` (100ms) after the episode, drawn from the seed. With a `scenario`
    the agent controls its first TCP flow that sends up, in its first variant; `up`, `rtt` and
    `queue` override its keys, and its phases do not apply: the load begins at once.
    """

    _KEYS = {**_Steered._KEYS, "queue": "path.up_queue"}

    def __init__(
        self,
        up: Setting | None = None,
        rtt: Setting | None = None,
        queue: str | Queue | None = None,
        flows: str | Sequence[str | OwnControl] | None = None,
        ecn: bool = False,
        step: str = "10ms",
        steps: int = 3_000,
        delay_weight: float = 0.5,
        start_jitter: str | None = None,
        scenario: Scenario | None = None,
    ) -> None:
        others = [flows] if isinstance(flows, str) else flows
        controls = None if others is None else ["reno", *others]
        own = _flows(scenario, controls, ["reno"], ecn, start_jitter)
        settings = {"up": up, "rtt": rtt, "queue": queue}
        super().__init__(scenario, settings, own, None, step, steps, delay_weight)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), numpy.float32)
        self.observation_space = spaces.Box(0.0, HIGHEST, (6,), numpy.float32)
        self._window = 10.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Begins an episode. The first step has a window of ten segments. `options` are the
        `up`, `rtt` and `queue` of this episode."""
        self._begin(seed, options)
        self._window = 10.0
        seen = Step(*self._native.step_window(10))
        return self._observation(seen), {"step": seen}

    def step(
        self, action: Vector
    ) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Sets the window and advances virtual time by a step."""
        change = _within(action, -1.0)
        self._window = min(max(self._window * 2.0**change, 2.0), max(8.0 * self._pipe, 16.0))
        seen = Step(*self._native.step_window(int(self._window)))
        share = seen.delivered_bytes / max(seen.capacity_bytes, 1)
        delay = max(seen.rtt_ns / max(self._rtt_ns, 1) - 1.0, 0.0)
        reward = share - self._delay_weight * delay - 0.01 * seen.retransmits
        return self._observation(seen), reward, False, self._is_over(), {"step": seen}

    def _observation(self, seen: Step) -> Vector:
        values = (
            seen.delivered_bytes / max(seen.capacity_bytes, 1),
            min(seen.rtt_ns / max(self._rtt_ns, 1), HIGHEST),
            seen.window / self._pipe,
            seen.in_flight / self._pipe,
            min(seen.retransmits, HIGHEST),
            min(seen.marked, HIGHEST),
        )
        return numpy.array(values, numpy.float32)


class QueueManagement(_Steered):
    """An environment in which the agent chooses how often a queue signals congestion.

    Action, shape (1,), 0 to 1: its cube is the probability with which each arrival is marked, or
    dropped if it is not ECN-capable. The cube, because useful probabilities are small.

    Observation, shape (5,), of the last step: the time to send the backlog, divided by `target`;
    delivered payload divided by the link's capacity; dropped packets; marked packets; the action.

    Reward: the second observation, minus `delay_weight` times the first. An episode is truncated
    after `steps` steps. `up`, `rtt`, `flows` (three CUBIC), `start_jitter` and `scenario` are as in
    `CongestionControl`; the queue is first in, first out.
    """

    def __init__(
        self,
        up: Setting | None = None,
        rtt: Setting | None = None,
        flows: str | Sequence[str | OwnControl] | None = None,
        ecn: bool = False,
        limit_packets: int = 1_000,
        step: str = "10ms",
        steps: int = 3_000,
        delay_weight: float = 0.2,
        target: float = 0.01,
        start_jitter: str | None = None,
        scenario: Scenario | None = None,
    ) -> None:
        own = _flows(scenario, flows, ["cubic"] * 3, ecn, start_jitter)
        settings = {"up": up, "rtt": rtt}
        super().__init__(scenario, settings, own, limit_packets, step, steps, delay_weight)
        self.action_space = spaces.Box(0.0, 1.0, (1,), numpy.float32)
        self.observation_space = spaces.Box(0.0, HIGHEST, (5,), numpy.float32)
        self._target = target
        self._step_s = self._native.step_ns / 1e9

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Begins an episode. The first step has no signals. `options` are the `up` and `rtt` of
        this episode."""
        self._begin(seed, options)
        seen = Step(*self._native.step_signals(0.0))
        return self._observation(seen, 0.0), {"step": seen}

    def step(
        self, action: Vector
    ) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Sets the probability and advances virtual time by a step."""
        chosen = _within(action, 0.0)
        seen = Step(*self._native.step_signals(chosen**3))
        share = seen.delivered_bytes / max(seen.capacity_bytes, 1)
        reward = share - self._delay_weight * self._delay(seen)
        return self._observation(seen, chosen), reward, False, self._is_over(), {"step": seen}

    def _delay(self, seen: Step) -> float:
        rate = max(seen.capacity_bytes, 1) / self._step_s
        return min(seen.backlog_bytes / rate / self._target, HIGHEST)

    def _observation(self, seen: Step, action: float) -> Vector:
        share = seen.delivered_bytes / max(seen.capacity_bytes, 1)
        drops, marks = min(seen.dropped, HIGHEST), min(seen.marked, HIGHEST)
        return numpy.array((self._delay(seen), share, drops, marks, action), numpy.float32)


for _name in ("CongestionControl", "QueueManagement"):
    gymnasium.register(f"underload/{_name}-v0", entry_point=f"{__name__}:{_name}")
