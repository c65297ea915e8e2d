"""Find the processes of a Ceph object store on this machine, and measure their CPU time and reads."""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import TypedDict
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import psutil

from jobs.objects import OSD_PROCESS_NAME

_GATEWAY, _STORES_OF_GATEWAY = "radosgw", (OSD_PROCESS_NAME, "ceph-mon")


class ServerUse(TypedDict):
    """The number of processes of one name, their CPU seconds, and the bytes that they have read (None: not visible)."""

    processes: int
    cpu_s: float
    read_bytes: int | None


def processes_of(endpoint: str) -> list[psutil.Process]:
    """Return the Ceph processes that serve an endpoint on this machine.

    The list is empty if the endpoint is on another machine, or if the server is not Ceph. A gateway process belongs to
    the endpoint if it listens at the port of the endpoint, or if this user cannot see the gateway's ports. Another
    process belongs to the endpoint if it was started with the settings file (``-c``) of a gateway.
    """
    address = urlsplit(endpoint)
    if not _is_this_machine(address.hostname or ""):
        return []
    port = address.port or {"https": 443}.get(address.scheme, 80)
    by_name: dict[str, list[psutil.Process]] = defaultdict(list)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            by_name[process.name()].append(process)
    gateways = [process for process in by_name[_GATEWAY] if _listens_at(process, port) is not False]
    settings = {_settings_file(process) for process in gateways}
    return gateways + [
        process for name in _STORES_OF_GATEWAY for process in by_name[name] if _settings_file(process) in settings
    ]


def proxy_to(endpoint: str) -> str | None:
    """Return the host and port of the proxy that the environment names for an endpoint, or None without a proxy.

    If the endpoint is on the loopback interface, this function also sets ``NO_PROXY``, so that this process and its
    children use no proxy for the endpoint.
    """
    address = urlsplit(endpoint)
    host = address.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        exceptions = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
        if host not in exceptions.split(","):
            os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(filter(None, (exceptions, host)))
    proxies = getproxies()
    proxy = None if proxy_bypass(host) else proxies.get(address.scheme) or proxies.get("all")
    return proxy.rpartition("//")[2].rpartition("@")[2].rstrip("/") if proxy else None


@cache  # because the resolution of a host name may take seconds
def _is_this_machine(host: str) -> bool:
    own_addresses = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    with suppress(OSError):
        return any(str(address[4][0]) in own_addresses for address in socket.getaddrinfo(host, None))
    return False


def _listens_at(process: psutil.Process, port: int) -> bool | None:
    try:
        return any(
            connection.laddr.port == port
            for connection in process.net_connections("tcp")
            if connection.status == "LISTEN"
        )
    except psutil.AccessDenied:
        return None
    except psutil.Error:
        return False


def _settings_file(process: psutil.Process) -> str:
    with suppress(psutil.Error, IndexError, ValueError):
        words = process.cmdline()
        return words[words.index("-c") + 1]
    return ""


def usage_of(processes: list[psutil.Process]) -> dict[int, tuple[str, float, int | None]]:
    """Return the name, the CPU seconds and the bytes read of each running process, by process id."""
    usage = {}
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            usage[process.pid] = (process.name(), times.user + times.system, _read_bytes(process))
    return usage


def _read_bytes(process: psutil.Process) -> int | None:
    with suppress(psutil.AccessDenied):
        return int(process.io_counters().read_bytes)
    return None


def usage_between(
    before: Mapping[int, tuple[str, float, int | None]], after: Mapping[int, tuple[str, float, int | None]]
) -> dict[str, ServerUse]:
    """Return the resource use between two results of `usage_of`, summed by process name.

    For a process that is new in `after`, the use is counted from 0.
    """
    sums: dict[str, ServerUse] = {}
    for pid, (name, cpu_s, read_bytes) in after.items():
        earlier = before.get(pid, (name, 0.0, 0))
        total = sums.setdefault(name, {"processes": 0, "cpu_s": 0.0, "read_bytes": 0})
        amounts = total["read_bytes"], read_bytes, earlier[2]
        total["processes"] += 1
        total["cpu_s"] = round(total["cpu_s"] + cpu_s - earlier[1], 6)
        total["read_bytes"] = None if None in amounts else sum((amounts[0] or 0, read_bytes or 0, -(earlier[2] or 0)))
    return sums
