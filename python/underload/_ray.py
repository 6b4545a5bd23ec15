"""Computes ranges of a sweep as tasks of a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from . import _underload
from ._cluster import SECONDS_OF_RANGE
from ._errors import ClusterError, MissingLibrary

RETRIES = 3
"""How often Ray restarts a task whose worker died."""
SECONDS_OF_COUNT = 5.0
"""How long a count of the cluster's processors is valid: nodes come and go."""


@contextmanager
def connected(on: str, raw: _underload.Sweep) -> Iterator[RayPool]:
    """Connects to a cluster. `ray` means the cluster that this process is connected to, that
    `RAY_ADDRESS` names, or that runs on this machine; `ray://HOST:PORT` means the cluster there.
    Raises `ClusterError` if the cluster does not answer, `MissingLibrary` without Ray."""
    if on != "ray" and not _is_address(on):
        raise ClusterError(f'on={on!r}: expected "local", "ray" or "ray://HOST:PORT"')
    try:
        import ray

        # A folder named `ray` beside a script can also be imported, as an empty module.
        ray.is_initialized  # noqa: B018
    except (AttributeError, ImportError) as error:
        wanted = "which is not installed: pip install 'underload[ray]'"
        raise MissingLibrary(f"sweep(on={on!r}) needs ray, {wanted}") from error
    is_ours = not (on == "ray" and ray.is_initialized())
    if is_ours:
        _connect(ray, on)
    try:
        yield RayPool(ray, raw)
    finally:
        if is_ours:
            ray.shutdown()


def _is_address(on: str) -> bool:
    """Returns whether `on` is `ray://HOST:PORT`: Ray waits half a minute for an invalid address."""
    try:
        parts = urlsplit(on)
        return parts.scheme == "ray" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _connect(ray: Any, on: str) -> None:
    try:
        if on == "ray":
            ray.init(address="auto", log_to_driver=False)
        else:
            ray.init(address=on)
    except Exception as error:
        if ray.is_initialized():
            what = 'this process is connected to a Ray cluster already; on="ray" uses that cluster'
        elif isinstance(error, ConnectionAbortedError):
            what = "the Ray cluster answers, but accepts no clients"
        else:
            what = "no Ray cluster answers; `ray start --head` starts one"
        raise ClusterError(f"on={on!r}: {what} ({_words(error)})") from error


class RayPool:
    """A `_cluster.Pool` of Ray's workers, each of one processor."""

    def __init__(self, ray: Any, raw: _underload.Sweep) -> None:
        self._ray = ray
        self._task = ray.remote(num_cpus=1, max_retries=RETRIES)(_task())
        # Each worker fetches the texts and files once, not with every range.
        self._parcel = ray.put(raw.parts), raw.identity
        self._counted: tuple[float, int] | None = None

    def workers(self) -> int:
        now = time.monotonic()
        if self._counted is None or now - self._counted[0] > SECONDS_OF_COUNT:
            self._counted = now, int(self._ray.cluster_resources().get("CPU", 0))
        return self._counted[1]

    def submit(self, first: int, end: int) -> Any:
        said = _underload.VERSION, _underload.COMMIT
        return self._task.remote(said, self._parcel, first, end)

    def wait(self, ranges: list[Any], seconds: float) -> list[Any]:
        ended, _ = self._ray.wait(ranges, num_returns=1, timeout=seconds)
        if ended:
            ended, _ = self._ray.wait(ranges, num_returns=len(ranges), timeout=0)
        return list(ended)

    def result(self, handle: Any) -> bytes:
        try:
            result = self._ray.get(handle)
        except ConnectionError as error:
            raise ClusterError(f"lost the Ray cluster: {_words(error)}") from error
        except self._ray.exceptions.RayError as error:
            # A `RayTaskError` has the error of the task as its cause.
            words = _words(getattr(error, "cause", None) or error)
            fix = "repeat the call to continue from the stored trials"
            raise ClusterError(f"lost a range of trials: {words}; {fix}") from error
        if isinstance(result, str):
            raise ClusterError(result)
        rows: bytes = result
        return rows

    def cancel(self, ranges: list[Any]) -> None:
        for handle in ranges:
            self._ray.cancel(handle)


def _task() -> Callable[..., bytes | str]:
    """Defines the code of a worker. Ray sends it by value, so that it can report a node that lacks
    underload or has another version."""

    def underload_sweep(
        said: tuple[str, str], parcel: tuple[Any, str], first: int, end: int
    ) -> bytes | str:
        import socket

        place = socket.gethostname()
        fix = "install the same on every node"
        try:
            import underload
        except ImportError as error:
            return f"a worker on {place} has no underload ({error}); {fix}"
        own = underload.__version__, underload.__commit__
        if own != said:
            theirs, ours = (f"{version} ({commit})" for version, commit in (own, said))
            return f"a worker on {place} has underload {theirs}, this program is {ours}; {fix}"
        from underload._ray import work

        return work(place, parcel, first, end)

    return underload_sweep


_KNOWN: dict[str, _underload.Sweep] = {}
"""The sweeps of this worker, by their identity."""


def work(place: str, parcel: tuple[Any, str], first: int, end: int) -> bytes | str:
    """Runs on a worker. Returns the rows of the first trials of a range, or the reason for a refusal. `parcel`
    has the texts and files of the driver's sweep in the object store, and the identity of the sweep
    and its program."""
    reference, identity = parcel
    sweep = _KNOWN.get(identity)
    if sweep is None:
        import ray

        sweep = _underload.Sweep.parse(*ray.get(reference))
        if sweep.identity != identity:
            words = "another build of underload, or other contents of files that the scenario names"
            return f"a worker on {place} has {words}; install the same on every node"
        _KNOWN.clear()
        _KNOWN[identity] = sweep
    return sweep.compute(first, end, SECONDS_OF_RANGE)


def _words(error: BaseException) -> str:
    """Shortens an error to one line: Ray's errors fill pages, and only the first or last line
    matters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ends = lines if len(lines) < 2 else [lines[0], lines[-1]]
    return ": ".join([type(error).__name__, *ends])
