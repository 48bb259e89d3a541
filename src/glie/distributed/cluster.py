"""A Ray cluster to work on: the one that RAY_ADDRESS names, or one on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glie.errors import ClusterError, MissingExtraError
from glie.kernels.parallel import cores

NAMESPACE = "glie"
LOCAL = Path(tempfile.gettempdir()) / "ray" / "ray_current_cluster"  # where Ray notes its address


def import_ray() -> Any:
    """The module `ray`, if it is installed."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="ray")
            import ray
    except ImportError:
        raise MissingExtraError("working on a Ray cluster", "ray") from None
    return ray


@contextlib.contextmanager
def cluster(workers: int | None = None) -> Iterator[Any]:
    """A cluster for some work: the one that this process is connected to, the one that RAY_ADDRESS
    names, or one that is started here and stopped in the end."""
    ray = import_ray()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="ray")
        if ray.is_initialized():
            yield ray
            return
        address = os.environ.get("RAY_ADDRESS")
        if address is None:
            start(ray, max(cores(), workers or 1))
        else:
            connect(ray, address)
        try:
            yield ray
        finally:
            ray.shutdown()


def start(ray: Any, cpus: int) -> None:
    """Start a cluster on this machine, which ends with this process."""
    try:
        _init(ray, address="local", num_cpus=cpus, include_dashboard=False)
    except Exception as error:  # of any class: a node that times out is a plain Exception
        ray.shutdown()  # what has started of it
        raise ClusterError(
            f"Ray does not start on this machine ({said(error)}); `ray start --head` shows why, "
            "and `glie index` works without it"
        ) from None


def connect(ray: Any, address: str) -> None:
    """Connect this process to a cluster."""
    try:
        _check_address(address)
        _init(ray, address=address)
    except Exception as error:
        ray.shutdown()
        raise ClusterError(
            f"Ray at {address}: cannot be reached ({said(error)}); start the cluster, or unset "
            "RAY_ADDRESS to start one here"
        ) from None


def running(address: str | None = None) -> Any | None:
    """Ray, connected to the cluster at an address, by default the one that RAY_ADDRESS names or the
    one that runs on this machine; None if there is none."""
    address = address or os.environ.get("RAY_ADDRESS")
    here = address is None and _runs_here()
    if address is None and not here and "ray" not in sys.modules:
        return None
    ray = import_ray()
    if ray.is_initialized():
        return ray
    if address is not None:
        connect(ray, address)
        return ray
    if not here:
        return None
    try:
        _init(ray, address="auto")
    except Exception:  # a note of a cluster that has ended
        ray.shutdown()
        return None
    return ray


def _runs_here() -> bool:
    """Whether a cluster runs on this machine. One that was killed leaves its note behind."""
    try:
        _check_address(LOCAL.read_text().strip())
    except OSError:
        return False
    return True


def _init(ray: Any, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="ray")
        warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
        quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
        ray.init(namespace=NAMESPACE, **quiet, **options)


def _check_address(address: str) -> None:
    """Fail at once if nothing listens there; Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


def said(error: BaseException) -> str:
    """An error in one line, with its class."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}"
