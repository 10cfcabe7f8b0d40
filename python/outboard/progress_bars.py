"""Progress bars: `tqdm` and `trange` with tinygrad's arguments, and `progress`, which also shows the loss, the time of a
step and what it has cost so far. On a terminal a bar is one line that rewrites itself; elsewhere (a file, a pipe) there
is a plain line now and then; in a notebook it is a display that is updated."""
from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Generic, TextIO, TypeVar

from outboard import _core
from outboard._core import Tensor, TensorFuture

T = TypeVar("T")

_REWRITES_PER_SECOND = 10   # of a line on a terminal
_LINE_EVERY_SECONDS = 10.0  # where lines stay
_TICKS = " ▏▎▍▌▋▊▉█"


class tqdm(Generic[T]):
    """Goes through `iterable` (or, without one, up to `total` by `update`) and shows how far it is.

    disable: show nothing; None: only on a terminal. unit_scale: 12000 as 12.0k. rate: how often a second the line is
    written at most. file: where to; stderr without it.
    """

    def __init__(self, iterable: Iterable[T] | None = None, desc: str = "", disable: bool | None = False,
                 unit: str = "it", unit_scale: bool = False, total: int | None = None, rate: int = 100, file: TextIO | None = None):
        if total is None and isinstance(iterable, Sized):
            total = len(iterable)
        self.iterable, self.unit, self.unit_scale, self.total = iterable, unit, unit_scale, total or 0
        self.desc = ""
        self.n = 0
        self._file = file if file is not None else sys.stderr
        if disable is None:
            disable = not self._file.isatty()
        self._screen = None if disable else _screen_for(self._file)
        self._started = time.perf_counter()
        self._next_at = self._started
        self._every = max(1 / rate, self._screen.every) if self._screen is not None else 0
        self._ended = False
        self.set_description(desc)
        self.update(0)

    def set_description(self, desc: str) -> None:
        """Changes the words before the bar, from its next update on; "" is none."""
        self.desc = f"{desc}: " if desc else ""

    def __iter__(self) -> Iterator[T]:
        if self.iterable is None:
            raise TypeError("this bar has nothing to iterate over: call update()")
        try:
            for item in self.iterable:
                yield item
                self.update(1)
        finally:
            self.close()

    def __enter__(self) -> tqdm[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, n: int = 0, close: bool = False) -> None:
        """`n` more are done."""
        self.n += n
        now = time.perf_counter()
        if self._screen is None or self._ended or (not close and now < self._next_at):
            return
        self._next_at = now + self._every
        self._screen.show(self._line(now - self._started), last=close)

    def close(self) -> None:
        """Shows the bar as it is now, for the last time."""
        self.update(0, close=True)
        self._ended = True

    @staticmethod
    def write(text: str) -> None:
        """A line of its own, where a bar may stand."""
        print(f"\r\033[K{text}" if sys.stderr.isatty() else text, file=sys.stderr, flush=True)

    def _facts(self) -> str:
        """What stands behind the rate."""
        return ""

    def _line(self, seconds: float) -> str:
        rate = self.n / seconds if seconds > 0 else 0.0
        show: Callable[[float], str] = _scaled if self.unit_scale else str
        rate_text = f"{_scaled(rate) if self.unit_scale else f'{rate:.2f}'}{self.unit}/s"
        if self.total:
            left = (self.total - self.n) / rate if rate > 0 else None
            times = f"{_clock(seconds)}<{_clock(left) if left is not None else '?'}"
            head = f"{self.desc}{100 * self.n // self.total:3d}%"
            tail = f"{show(self.n)}/{show(self.total)} [{times}, {rate_text}{self._facts()}]"
            room = (self._screen.columns if self._screen is not None else 80) - len(head) - len(tail) - 3
            return f"{head}{_bar(self.n / self.total, min(room, 40))} {tail}"
        return f"{self.desc}{show(self.n)}{self.unit} [{_clock(seconds)}, {rate_text}{self._facts()}]"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.desc}{self.n} of {self.total or 'any number'}>"


class trange(tqdm[int]):
    """As tqdm(range(n))."""

    def __init__(self, n: int, **options: object):
        super().__init__(range(n), total=n, **options)  # type: ignore[arg-type]


class progress(tqdm[T]):
    """A bar for training: steps a second, the time of a step, the latest loss that has come, and the cost so far.

        for step in (bar := outboard.progress(1000)):
            bar.loss(train_step())

    Takes an iterable or a number. Never waits for a loss: it asks for each, and shows the newest that is here.
    """

    def __init__(self, iterable: Iterable[T] | int, desc: str = "", **options: object):
        self._losses: list[TensorFuture] = []
        self._loss: float | None = None
        steps = range(iterable) if isinstance(iterable, int) else iterable
        super().__init__(steps, desc, unit="step", **options)  # type: ignore[arg-type]

    def loss(self, loss: Tensor | TensorFuture | float) -> None:
        """The loss of this step: a tensor of one element, whose value is asked for and not waited for."""
        if isinstance(loss, Tensor):
            loss = loss.fetch()
        if isinstance(loss, TensorFuture):
            self._losses.append(loss)
            self._take_losses()
        else:
            self._loss = float(loss)

    def _take_losses(self) -> None:
        come = 0
        while come < len(self._losses) and self._losses[come].ready():
            come += 1
        if come > 0:
            self._loss = float(self._losses[come - 1].item())
            del self._losses[:come]

    def _facts(self) -> str:
        self._take_losses()
        facts = []
        seconds = time.perf_counter() - self._started
        if self.n > 0:
            facts.append(f"{1e3 * seconds / self.n:.1f} ms each")
        if self._loss is not None:
            facts.append(f"loss {self._loss:.4g}")
        if (connection := _core.Connection.current_if_any()) is not None:
            facts.append(f"${connection.stats.cost:.4f}")
        return "".join(f", {fact}" for fact in facts)


def _bar(share: float, width: int) -> str:
    if width < 4:
        return ""
    eighths = round(8 * (width - 2) * min(max(share, 0.0), 1.0))
    full, part = divmod(eighths, 8)
    return f"|{(_TICKS[8] * full + (_TICKS[part] if part else '')).ljust(width - 2)}|"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def _scaled(number: float) -> str:
    for unit in ("", "k", "M", "G"):
        if abs(number) < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}T"


class _Screen:
    """Where a bar is written. This one: a file, in which lines stay."""
    every = _LINE_EVERY_SECONDS
    columns = 100

    def __init__(self, file: TextIO):
        self._file = file

    def show(self, line: str, last: bool) -> None:
        print(line, file=self._file, flush=True)


class _Terminal(_Screen):
    every = 1 / _REWRITES_PER_SECOND

    @property
    def columns(self) -> int:  # type: ignore[override]
        return shutil.get_terminal_size().columns

    def show(self, line: str, last: bool) -> None:
        self._file.write(f"\r\033[K{line[:self.columns - 1]}" + ("\n" if last else ""))
        self._file.flush()


class _Notebook(_Screen):
    every = 1 / _REWRITES_PER_SECOND

    def __init__(self, file: TextIO):
        super().__init__(file)
        self._handle: object = None

    def show(self, line: str, last: bool) -> None:
        from IPython.display import display  # there, since we are in it
        content = {"text/plain": line}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)  # type: ignore[attr-defined]


def _screen_for(file: TextIO) -> _Screen:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    if shell is not None and getattr(shell, "kernel", None) is not None and file is sys.stderr:
        return _Notebook(file)
    return _Terminal(file) if file.isatty() else _Screen(file)
