"""Gymnasium environments for reinforcement learning, in which an agent controls the simulator step
by step.

    import underload as ul

    environment = ul.env("congestion-control", up="20mbit", rtt="40ms")
    seen, info = environment.reset(seed=1)
    seen, reward, terminated, truncated, info = environment.step([0.1])

An episode depends only on the settings, the seed and the actions. Needs gymnasium and NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy
from gymnasium import spaces
from numpy.typing import NDArray

from . import _underload
from ._errors import EnvError

__all__ = ["CongestionControl", "QueueManagement", "Step"]

Vector = NDArray[numpy.float32]
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
    """Smoothed round trip of the first flow, ns; 0 before the first sample."""
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
    """Common parts of both environments: a link, its queue, flows, and steps of virtual time."""

    metadata = {"render_modes": []}

    def __init__(
        self,
        up: str,
        rtt: str,
        queue: str,
        flows: Sequence[str],
        ecn: bool,
        limit_packets: int | None,
        step: str,
        steps: int,
        delay_weight: float,
    ) -> None:
        self._made = (up, str(queue), rtt, list(flows), ecn, limit_packets, step)
        self._steps = steps
        self._delay_weight = delay_weight
        self._native = _underload.Environment(*self._made, 1)
        self._pipe: float = self._native.pipe_packets
        self._rtt_ns = self._native.rtt_ns
        self._done = 0

    def _begin(self, seed: int | None) -> None:
        super().reset(seed=seed)
        own = int(self.np_random.integers(1 << 62))
        self._native = _underload.Environment(*self._made, own)
        self._done = 0

    def _is_over(self) -> bool:
        self._done += 1
        return self._done >= self._steps

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "an environment under way cannot be pickled; "
            "give vector environments a function that creates one: lambda: ul.env(...)"
        )


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
    Further `flows`, such as `["cubic"]`, share the link.
    """

    def __init__(
        self,
        up: str = "20mbit",
        rtt: str = "40ms",
        queue: str = "fifo:limit=256KiB",
        flows: Sequence[str] = (),
        ecn: bool = False,
        step: str = "10ms",
        steps: int = 3_000,
        delay_weight: float = 0.5,
    ) -> None:
        all_flows = ["reno", *flows]
        super().__init__(up, rtt, queue, all_flows, ecn, None, step, steps, delay_weight)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), numpy.float32)
        self.observation_space = spaces.Box(0.0, HIGHEST, (6,), numpy.float32)
        self._window = 10.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Begins an episode. The first step has a window of ten segments."""
        self._begin(seed)
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
    after `steps` steps.
    """

    def __init__(
        self,
        up: str = "20mbit",
        rtt: str = "40ms",
        flows: Sequence[str] = ("cubic", "cubic", "cubic"),
        ecn: bool = False,
        limit_packets: int = 1_000,
        step: str = "10ms",
        steps: int = 3_000,
        delay_weight: float = 0.2,
        target: float = 0.01,
    ) -> None:
        super().__init__(
            up, rtt, "fifo:limit=1000p", flows, ecn, limit_packets, step, steps, delay_weight
        )
        self.action_space = spaces.Box(0.0, 1.0, (1,), numpy.float32)
        self.observation_space = spaces.Box(0.0, HIGHEST, (5,), numpy.float32)
        self._target = target
        self._step_s = self._native.step_ns / 1e9

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Begins an episode. The first step has no signals."""
        self._begin(seed)
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
