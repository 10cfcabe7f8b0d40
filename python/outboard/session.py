"""Sessions: a device that is rented for as long as one is open. A program needs none of this; the first value that it
asks for opens one as the environment says (CLOUD, CLOUD_HOST, CLOUD_KEY), and the program's end closes it."""
from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator, Sequence

from outboard import _core
from outboard._core import Estimate, Stats
from outboard.errors import Error


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
    name: by which the session can be entered again, from another program or machine with a key of the account
    (Session.attach). Such a session outlives the program: at the end of its `with`, and of the program, it is left, and
    close() or `outboard stop NAME` ends it. Raises outboard.AlreadyExists where the account has one of that name.
    device_class: a class of the gateway's price file that its devices are of; without it, CLOUD_CLASS, else any. memory:
    what each device has at least, in bytes or as "40GB"; without it, CLOUD_MEMORY, else any (docs/prices.md).
    tell: called with each line for people (that a connection is made again, what the gateway has to tell), from any
    thread; without it they go to stderr.

    A tensor is computed in the session that it was made in. Those of two sessions do not mix (outboard.Error). Each
    thread enters sessions for itself. Raises outboard.Unavailable (a ConnectionError) where nobody answers,
    outboard.Unauthenticated (a PermissionError) for a wrong key, outboard.ResourceExhausted where no device was free
    within CLOUD_QUEUE_S.
    """

    def __init__(self, host: str | None = None, key: str | None = None, devices: int | None = None, *,
                 tell: Callable[[str], None] | None = None, fingerprint: str | None = None, ca: str | None = None,
                 max_cost: float | None = None, mesh: Sequence[int] | None = None, spread: str | None = None,
                 name: str | None = None, device_class: str | None = None, memory: int | str | None = None):
        if host is None and (fingerprint is not None or ca is not None):
            raise ValueError("fingerprint and ca go with a host; without one set CLOUD_FINGERPRINT or CLOUD_CA")
        self._connection = _core.Connection(host, key, devices, tell, fingerprint, ca, max_cost,
                                            None if mesh is None else list(mesh), spread, name, None, device_class,
                                            None if memory is None else str(memory))
        self.closed = False

    @classmethod
    def attach(cls, name: str, host: str | None = None, key: str | None = None, *,
               tell: Callable[[str], None] | None = None, fingerprint: str | None = None, ca: str | None = None,
               max_cost: float | None = None, devices: int | None = None) -> Session:
        """Enters the session of this name, or id, as `outboard ps` lists them; `outboard.kept` is what its program kept.

            with Session.attach("run7"):
                nn.state.load_state_dict(model, outboard.kept())

        A program that has it now is told (outboard.Error, ABORTED), and its session ends there. What a program had sent and
        nobody had applied is lost with it; where a worker was lost, too, so is what came after its last snapshot. Like a session
        with a name it is left, and not closed, at its end. It has the devices that it has; who says another number of
        `devices` hears of it (outboard.InvalidArgument), and the session goes on as it was. Raises outboard.NotFound where the account has none such.
        """
        session = cls.__new__(cls)
        session._connection = _core.Connection(host, key, devices, tell, fingerprint, ca, max_cost, None, None,
                                               None, name)
        session.closed = False
        return session

    @classmethod
    def recording(cls, host: str | None = None, key: str | None = None, *, fingerprint: str | None = None,
                  ca: str | None = None, device_class: str | None = None) -> Session:
        """A session without a device, for its `estimate`: it counts what a program would do there.

            with Session.recording("box:6667", key="ob_live_...") as session:
                train(steps=100)
                print(session.estimate(steps=10_000))

        Nothing is sent or computed, and nothing costs. A value that is read is made up: 1.0 for floats, 0 for everything
        else, in its shape. What has names in the store cannot be read.
        """
        session = cls.__new__(cls)
        session._connection = _core.Connection(host, key, None, None, fingerprint, ca, None, None, None, None, None,
                                               device_class, None, True)
        session.closed = False
        return session

    def estimate(self, steps: int = 0) -> list[Estimate]:
        """What so many steps like those so far take and cost, for each class of the gateway's; 0: those so far themselves.
        By the graphs that were sent, and, for the class of this session's device, by the time that steps took there, once
        there were 20, of which the first ten do not count. Asks the gateway for its prices. docs/estimates.md says what it counts."""
        return self._connection.estimates(steps)

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

    @property
    def name(self) -> str | None:
        """The name by which Session.attach enters it; None where it has none."""
        return self.stats.session_name or None

    @property
    def id(self) -> str:
        """As `outboard ps` prints it; Session.attach and `outboard stop` take it where there is no name. Empty while a fork
        waits for its first device."""
        return self.stats.session_id

    def detach(self) -> Stats:
        """Leaves the session: its steps end, its device is given back, and its state waits for Session.attach, for 72 hours
        where the gateway takes snapshots and the session has a name, else for 15 minutes. Raises what a step failed with,
        after the session has been left."""
        self.closed = True
        self._connection.detach()
        return self.stats

    def resume(self, max_cost: float | None = None) -> None:
        """Goes on after outboard.ResourceExhausted (a cap), or outboard.Error with FAILED_PRECONDITION (no credit): call it
        when there is more. max_cost: a new bound of the session's own. Raises the same again where nothing has changed."""
        self._connection.resume(max_cost)

    def fork(self, count: int) -> list[Session]:
        """Sessions, each with a device of its own, that begin with this one's state: `outboard.kept` in each of them is what
        was kept here, bit for bit. Nothing is sent; the gateway must take snapshots. They wait for devices like any other:
        each begins when it has one, and what is asked of it before waits. Those that have one come first."""
        return [self._of(connection) for connection in self._connection.fork(count)]

    def close(self) -> Stats:
        """The device is free and the bill stands when it returns. Values that have come can still be read. A session with
        a name ends, too."""
        self._connection.close()
        self.closed = True
        return self.stats

    @contextlib.contextmanager
    def use(self) -> Iterator[Session]:
        """As `with session`, but leaves it open."""
        self._connection.push_scope()
        try:
            yield self
        finally:
            self._connection.pop_scope()

    def __enter__(self) -> Session:
        self._connection.push_scope()
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        try:
            self._connection.pop_scope()
        finally:  # a device that stays rented costs
            if not self._connection.outlives_program:
                self.close()
            elif not self.closed:
                with contextlib.suppress(*([Error] if kind else [])):  # of two errors the first is shown
                    self.detach()

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
