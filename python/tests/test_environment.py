"""Environments pass Gymnasium's checks, and steer the simulator as documented."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest

import underload as ul

gymnasium = pytest.importorskip("gymnasium")
numpy = pytest.importorskip("numpy")

from gymnasium.utils.env_checker import check_env  # noqa: E402


@pytest.mark.parametrize("kind", ["congestion-control", "queue"])
def test_gymnasium_finds_nothing_wrong(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*spec.*")
        check_env(ul.env(kind, steps=50), skip_render_check=True)


def course(kind: str, seed: int, action: float, **settings: Any) -> list[Any]:
    steps = settings.setdefault("steps", 200)
    environment = ul.env(kind, **settings)
    seen, _ = environment.reset(seed=seed)
    rows = [seen.tolist()]
    for _ in range(steps):
        seen, reward, terminated, truncated, info = environment.step(numpy.array([action], "f4"))
        rows.append([*seen.tolist(), reward, terminated, truncated, info["step"]])
    return rows


@pytest.mark.parametrize("kind", ["congestion-control", "queue"])
def test_the_same_seed_and_actions_give_the_same_course(kind: str) -> None:
    noisy = {"up": "20mbit:jitter=3ms"}
    assert course(kind, 1, 0.2, **noisy) == course(kind, 1, 0.2, **noisy)
    assert course(kind, 1, 0.2, **noisy) != course(kind, 2, 0.2, **noisy)


def test_a_larger_window_is_used_and_waits() -> None:
    environment = ul.env("congestion-control", up="12mbit", rtt="40ms", queue="fifo:limit=500p")
    environment.reset(seed=1)
    # 40 packets of 1500 bytes are the bandwidth-delay product: from 10 to 80 in three steps.
    for _ in range(3):
        environment.step([1.0])
    for _ in range(200):
        seen, reward, _, _, info = environment.step([0.0])
    step = info["step"]
    assert step.window == 80 and step.backlog_packets == pytest.approx(40, abs=4)
    assert seen[0] == pytest.approx(1_448 / 1_500, abs=0.1)
    assert seen[1] == pytest.approx(2.0, abs=0.1) and seen[2] == pytest.approx(2.0)
    assert reward == pytest.approx(0.96 - 0.5, abs=0.15)


def test_more_signals_shorten_the_queue_and_an_episode_ends() -> None:
    def waiting(action: float) -> float:
        rows = course("queue", 1, action, flows=["reno"] * 3, steps=1_500)
        assert [row[-2] for row in rows[1:]] == [False] * 1_499 + [True]
        return sum(row[-1].backlog_bytes for row in rows[500:])

    assert waiting(0.0) > waiting(0.1) > waiting(0.4)


def test_impossible_environments_are_refused() -> None:
    with pytest.raises(ul.EnvError, match="congestion-control or queue"):
        ul.env("routing")
    with pytest.raises(ul.EnvError, match="rtt: `40`"):
        ul.env("queue", rtt="40")
    with pytest.raises(ul.EnvError, match="expected reno, cubic"):
        ul.env("queue", flows=["cubics"])
    with pytest.raises(ul.EnvError, match="0 flows"):
        ul.env("queue", flows=[])
    with pytest.raises(ul.EnvError, match="100us to 10s"):
        ul.env("queue", step="1us")
    with pytest.raises(ul.SpecError):
        ul.env("congestion-control", queue="codell")
    with pytest.raises(TypeError, match="lambda"):
        pickle.dumps(ul.env("queue"))


def test_actions_out_of_range_are_clamped_and_nan_is_refused() -> None:
    environment = ul.env("congestion-control")
    environment.reset(seed=1)
    for action in (1e30, -1e30, float("inf")):
        seen, *_ = environment.step([action])
        assert environment.observation_space.contains(seen)
    with pytest.raises(ul.EnvError, match="not a number"):
        environment.step([float("nan")])


def test_several_environments_run_in_one_vector() -> None:
    several = gymnasium.vector.SyncVectorEnv([lambda: ul.env("queue", steps=20)] * 3)
    several.reset(seed=3)
    seen, rewards, *_ = several.step(numpy.zeros((3, 1), "f4"))
    assert seen.shape == (3, 5) and rewards.shape == (3,)
