"""Sessions: a device that is rented for as long as one is open. A program needs none of this; the first value that it
asks for opens one as the environment says (CLOUD, CLOUD_HOST, CLOUD_KEY), and the program's end closes it."""
from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator, Sequence

from outboard import _core
from outboard._core import Stats


class Session:
    """One or more devices of one's own, for the tensors that are made in its `with`.

        with Session("box:6667", key="ob_live_...") as session:
            loss = train()
        print(session.stats.cost)

    host: "host:port" or "unix:/path"; without it, as the environment says. key: without it, CLOUD_KEY.
    fingerprint, ca: with a host, whom it trusts, a fingerprint as `outboard key create` prints it or a file of
    certificates; without both, CLOUD_FINGERPRINT and CLOUD_CA, else what the system trusts (docs/tls.md).
    max_cost: US dollars that the session may cost in all; without it, CLOUD_MAX_COST, else no bound. At that cost
    outboard.ResourceExhausted is raised, and the gateway keeps the session's state for a while.
    devices: how many it has, all of one kind; without it, CLOUD_DEVICES, else 1. The program is the same for any
    number of them, and so are its results, but for the order in which floats are added; each device is billed.
    mesh: how they are arranged, as (nodes, devices of a node); its product is `devices`. spread: how the work is
    divided, "auto", "data" (the batch), "fsdp" (also the state) or "tensor" (also single products).
    No device is free: it waits as long as it takes, or CLOUD_QUEUE_S seconds, and shows its place (docs/queue.md). Without
    work for a minute it gives the device back, and takes one again by itself with the next.
    tell: called with each line for people (that a connection is made again, what the gateway has to tell), from any
    thread; without it they go to stderr.

    A tensor is computed in the session that it was made in. Those of two sessions do not mix (outboard.Error). Each
    thread enters sessions for itself. Raises outboard.Unavailable (a ConnectionError) where nobody answers,
    outboard.Unauthenticated (a PermissionError) for a wrong key, outboard.ResourceExhausted where no device was free
    within CLOUD_QUEUE_S.
    """

    def __init__(self, host: str | None = None, key: str | None = None, devices: int | None = None, *,
                 tell: Callable[[str], None] | None = None, fingerprint: str | None = None, ca: str | None = None,
                 max_cost: float | None = None, mesh: Sequence[int] | None = None, spread: str | None = None):
        if host is None and (fingerprint is not None or ca is not None):
            raise ValueError("fingerprint and ca go with a host; without one set CLOUD_FINGERPRINT or CLOUD_CA")
        self._connection = _core.Connection(host, key, devices, tell, fingerprint, ca, max_cost,
                                            None if mesh is None else list(mesh), spread)
        self.closed = False

    @classmethod
    def current(cls) -> Session:
        """The one that this thread's tensors are computed in; connects where there is none."""
        return cls._of(_core.Connection.current())

    @classmethod
    def _of(cls, connection: _core.Connection) -> Session:
        session = cls.__new__(cls)
        session._connection = connection
        session.closed = False
        return session

    @property
    def stats(self) -> Stats:
        """What it has done so far, and what that costs. Asks nobody."""
        return self._connection.stats

    def close(self) -> Stats:
        """The device is free and the bill stands when it returns. Values that have come can still be read."""
        self._connection.close()
        self.closed = True
        return self.stats

    @contextlib.contextmanager
    def use(self) -> Iterator[Session]:
        """As `with session`, but leaves it open."""
        self._connection.enter()
        try:
            yield self
        finally:
            self._connection.leave()

    def __enter__(self) -> Session:
        self._connection.enter()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._connection.leave()
        finally:  # a device that stays rented costs
            self.close()

    def _facts(self) -> list[tuple[str, str]]:
        stats = self.stats
        return [("device", stats.device or "unknown"),
                ("state", "closed" if self.closed else "open"),
                ("time", f"{stats.seconds:.1f} s, {stats.seconds_billed:.1f} s billed"),
                ("cost", f"${stats.cost:.4f}, ${stats.price_per_hour:.2f} an hour"),
                ("steps", f"{stats.steps}, {stats.round_trips} round trips"),
                ("traffic", f"{_bytes(stats.bytes_up)} up, {_bytes(stats.bytes_down)} down")]

    def __repr__(self) -> str:
        return f"<Session {', '.join(f'{name}: {value}' for name, value in self._facts())}>"

    def _repr_html_(self) -> str:
        left = "style='text-align:left'"
        rows = "".join(f"<tr><th {left}>{name}</th><td {left}>{html.escape(value)}</td></tr>"
                       for name, value in self._facts())
        return f"<table>{rows}</table>"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
