"""Counts for whoever watches a server, in the text form that Prometheus reads."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Final

__all__ = ["Metrics"]

_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_BOUNDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class Metrics:
    """How many requests, with which answers, and how long they took.

    >>> metrics = Metrics()
    >>> metrics.count("GET", 200, 0.004)
    >>> print(metrics.text({"palaver_streams": 2}).splitlines()[2])
    palaver_requests_total{method="GET",status="200"} 1
    """

    def __init__(self) -> None:
        """Begin at zero."""
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = {}
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0

    def count(self, method: str, status: int, seconds: float) -> None:
        """Note one answer; methods that HTTP does not know are counted as one."""
        key = (method if method in _METHODS else "other", status)
        with self._lock:
            self._requests[key] = self._requests.get(key, 0) + 1
            self._buckets[bisect_left(_BOUNDS, seconds)] += 1
            self._seconds += seconds

    def text(self, gauges: dict[str, float]) -> str:
        """All counts, and some figures of this moment."""
        with self._lock:
            requests, buckets, seconds = dict(self._requests), list(self._buckets), self._seconds
        lines = [
            "# HELP palaver_requests_total Requests answered.",
            "# TYPE palaver_requests_total counter",
        ]
        for (method, status), number in sorted(requests.items()):
            lines.append(f'palaver_requests_total{{method="{method}",status="{status}"}} {number}')
        name, total = "palaver_request_seconds", 0
        lines += [f"# HELP {name} Time to the first byte.", f"# TYPE {name} histogram"]
        for bound, number in zip((*_BOUNDS, "+Inf"), buckets, strict=True):
            total += number
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        lines += [f"{name}_sum {seconds:.6f}", f"{name}_count {total}"]
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"
