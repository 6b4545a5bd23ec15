"""Measurements against a server on loopback, and the runs of weeks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import underload as ul

PROGRAM = Path(os.environ.get("UNDERLOAD_PROGRAM") or shutil.which("underload") or "none")

pytestmark = [
    pytest.mark.skipif(
        not PROGRAM.exists(),
        reason="SKIPPED line: no `underload` in PATH, and UNDERLOAD_PROGRAM names none",
    ),
    # A busy machine makes measurements invalid.
    pytest.mark.filterwarnings("ignore:no step is valid"),
]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Starts a server that ends with its test. The file of known servers is in the test's
    directory."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    command = [PROGRAM, "serve", "--bind", "127.0.0.1", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.terminate()


def quick(server: dict[str, Any], **more: Any) -> dict[str, Any]:
    settings = {"load": "up", "idle": "200ms", "duration": "400ms", "trust": server["fingerprint"]}
    return ul.measure(server["addresses"][0], **{**settings, **more})


def test_a_measurement_is_the_programs_document(server: dict[str, Any]) -> None:
    settings = {"tier": "900mbit/900mbit", "classes": ["0", "45/ect1"], "interval": "4ms"}
    measured = quick(server, **settings, out="runs/first")
    (finding,) = measured["findings"]
    assert finding["step"] == "up" and finding["goodput_up_mbit_s"] > 1
    assert measured["directory"] == Path("runs/first") and measured["verdict"]
    stored = json.loads(Path("runs/first/run.json").read_text())
    assert measured["run"]["scenario"] == stored["scenario"]
    assert "--tier 900000000bit/900000000bit --up" in stored["scenario"]["text"]
    grades = [step["grade"] for step in measured["run"]["judgement"]["steps"]]
    assert [step["grade"] for step in stored["judgement"]["steps"]] == grades
    assert ul.load(measured["directory"]).trials.to_dict()["grade"] == grades
    samples = ul.load(measured["directory"]).samples.to_dict()
    assert len(samples["rtt_ns"]) > 10
    assert (measured["directory"] / "report.html").exists()
    with pytest.raises(ul.StoreError, match="runs/first"):
        quick(server, out="runs/first")


def test_a_judgement_is_read_in_ten_lines(
    server: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines of docs/measure.md."""
    page = (Path(__file__).parents[2] / "docs/measure.md").read_text()
    lines = page.split("```python\n")[1].split("```")[0]
    assert len([line for line in lines.splitlines() if line]) <= 10
    measured = quick(server, interval="4ms", idle="2s", duration="3s", out="runs/first")
    exec(compile(lines, "measure.md", "exec"), {})
    said = capsys.readouterr().out
    assert f"grade: {measured['grade']} because of" in said and said.startswith("up ")


def test_the_place_of_the_delay_is_in_the_finding(server: dict[str, Any]) -> None:
    try:
        measured = quick(server, where=True, dev="lo", idle="1s", out="runs/where")
    except ul.RunError as error:
        if "may not send ICMP echoes" not in str(error):
            raise
        pytest.skip(str(error))
    location = measured["findings"][0]["location"]
    assert location["hops"][-1]["hop"] == "far-end" and location["hops"][-1]["answered"] > 0
    assert measured["run"]["host"]["device"] == "lo"


def test_runs_are_compared_over_time(tmp_path: Path) -> None:
    """The numbers of runs whose directories `--keep` removed are enough."""
    lines = [
        {
            "run": f"run-{day}",
            "started": f"2026-02-{day:02}T12:00:00Z",
            "name": "measure/quick",
            "steps": [{"step": "up", "values": {"load-p50": 20.0 + day, "goodput-up": 9.5}}],
        }
        for day in range(1, 29)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "removed-runs.jsonl").write_text(text)
    told = ul.history(tmp_path, metric="load-p50", baseline="10d", recent="10d")
    assert told["sentences"][-1] == "28 runs were read. Dates and hours are local." and told["left_out"] == []
    trends = {trend["followed"]: trend for trend in told["trends"]}
    assert [point["value"] for point in trends["load-p50"]["points"]][:2] == [21.0, 22.0]
    assert trends["load-p50"]["comparison"]["range"]["middle"] > 1.4
    command = [PROGRAM, "history", tmp_path, "--metric", "load-p50", "--json"]
    command += ["--baseline", "10d", "--recent", "10d"]
    assert told == json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def test_a_server_seen_for_the_first_time_is_a_warning(server: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="seen for the first time"):
        quick(server, trust="first-use")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"duration": "5"}, "^duration: `5` has no unit; expected a time"),
        ({"udp": "fast"}, "^udp: `fast`: expected a rate"),
        ({"classes": ["99"]}, "^classes: expected a DSCP from 0 to 63"),
        ({"preset": "slow"}, "^preset: there are quick"),
        ({"load": "sideways"}, "^load: `sideways`; expected up, down or both"),
        ({"flows": 65}, "^flows: step up would have 65"),
        ({"family": 5}, "^family: 5; expected 4 or 6"),
        ({"peer": "nas.local"}, "^peer: only accepted with where=True"),
        ({"dev": "no-such-dev0"}, "^dev: this machine has no network interface"),
        ({"server": "ndt7"}, "^server: `ndt7`; expected the name or address"),
        ({"server": "127.0.0.1:1"}, "`underload serve` running"),
    ],
)
def test_a_wrong_argument_is_named(more: dict[str, Any], words: str, tmp_path: Path) -> None:
    fingerprint = "sha256:" + 64 * "0"
    arguments = {"server": "127.0.0.1", "load": "up", "trust": fingerprint, **more}
    with pytest.raises(ul.RunError, match=words):
        ul.measure(**arguments)
    with pytest.raises(ul.StoreError, match="no runs"):
        ul.history(tmp_path)
    with pytest.raises(ul.NoSuchMetric, match="load-p99"):
        ul.history(tmp_path, metric="latency")
