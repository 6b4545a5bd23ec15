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


@pytest.mark.parametrize("kind", ["congestion-control", "queue"])
def test_each_seed_has_an_episode_of_its_own(kind: str) -> None:
    episodes = {str(course(kind, seed, 0.2)) for seed in range(10)}
    assert len(episodes) == 10
    same = {str(course(kind, seed, 0.2, start_jitter="0ms")) for seed in range(3)}
    assert len(same) == (1 if kind == "congestion-control" else 3)


def rate_and_rtt(environment: Any, seed: Any = 1, **options: Any) -> tuple[float, float]:
    """The capacity of the link, Mbit/s, and the base round trip, ms."""
    _, info = environment.reset(seed=seed, options=options)
    return info["step"].capacity_bytes * 8 / 10_000, environment.unwrapped._rtt_ns / 1e6


def test_options_change_one_episode_and_unknown_ones_are_refused() -> None:
    environment = ul.env("congestion-control")
    assert rate_and_rtt(environment, up="1mbit", rtt="10ms", queue="codel") == (1, 10)
    assert rate_and_rtt(environment) == (20, 40)
    with pytest.raises(ul.EnvError, match="options: 'nonsense'; expected up, rtt, queue"):
        environment.reset(options={"up": "1mbit", "nonsense": 3})
    with pytest.raises(ul.ScenarioError, match="path.up: `1` has no unit"):
        environment.reset(options={"up": "1"})


def test_ranges_are_drawn_from_the_seed() -> None:
    environment = ul.env("queue", up=("5mbit", "50mbit"), rtt=("10ms", "100ms"))
    drawn = [rate_and_rtt(environment, seed) for seed in range(40)]
    assert len(set(drawn)) == 40 and rate_and_rtt(environment, numpy.int64(7)) == drawn[7]
    assert all(5 <= rate <= 50 and 10 <= rtt <= 100 for rate, rtt in drawn)
    # In equal ratios, half of them are below the geometric mean.
    assert 10 <= sum(rate < 15.8 for rate, _ in drawn) <= 30


def test_a_scenario_is_an_environment() -> None:
    class Half(ul.Aqm):
        def on_enqueue(self, now_ns: int, packet: Any, backlog: Any) -> ul.Verdict:
            return "drop" if backlog.packets > 20 else "pass"

    scenario = ul.Scenario(up="12mbit", rtt="40ms", up_queue=ul.own(Half))
    scenario = scenario.flow(ul.Probe("10ms"), ul.Tcp("cubic"), ul.Udp("1mbit"))
    environment = ul.env("congestion-control", scenario=scenario)
    assert rate_and_rtt(environment) == (12, 40)
    for _ in range(10):
        environment.step([1.0])
    steps = [environment.step([0.0])[-1]["step"] for _ in range(200)]
    assert 15 <= max(step.backlog_packets for step in steps) <= 21
    assert rate_and_rtt(ul.env("queue", scenario=scenario, up="5mbit")) == (5, 40)

    class Wrong(ul.Aqm):
        def on_enqueue(self, now_ns: int, packet: Any, backlog: Any) -> Any:
            return 3

    said = "Wrong.on_enqueue, variant default.*TypeError: returned 3"
    with pytest.raises(ul.OwnCodeError, match=said):
        ul.env("congestion-control", queue=ul.own(Wrong), start_jitter="0s").reset(seed=1)


def test_gymnasium_makes_the_environments_by_their_names() -> None:
    import underload.environments

    for name in underload.environments.__all__[:2]:
        environment = gymnasium.make(f"underload/{name}-v0", up="5mbit", steps=5)
        assert rate_and_rtt(environment)[0] == 5


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
    with pytest.raises(ul.ScenarioError, match="rtt: `40` has no unit"):
        ul.env("queue", rtt="40")
    with pytest.raises(ul.EnvError, match="expected reno, cubic"):
        ul.env("queue", flows=["cubics"])
    with pytest.raises(ul.EnvError, match="flows: expected at least one"):
        ul.env("queue", flows=[])
    with pytest.raises(ul.EnvError, match="100us to 10s"):
        ul.env("queue", step="1us")
    with pytest.raises(ul.ScenarioError, match="did you mean `codel`"):
        ul.env("congestion-control", queue="codell")
    with pytest.raises(ul.EnvError, match="up: .'5mbit', '9ms'.; expected two values with one unit"):
        ul.env("queue", up=("5mbit", "9ms"))
    with pytest.raises(ul.EnvError, match="ecn: True; expected it in the flows of the scenario"):
        ul.env("queue", scenario=ul.Scenario(up="1mbit").flow(ul.Tcp("reno")), ecn=True)
    down = ul.Scenario(up="1mbit").flow(ul.Tcp("reno", direction="down"))
    with pytest.raises(ul.EnvError, match="no TCP flow sends up"):
        ul.env("congestion-control", scenario=down)
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
