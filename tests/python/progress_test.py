"""Bars: on a terminal, in a file, in a notebook; and a loss that is shown and never waited for."""
import io
import sys
import types

import pytest

import outboard
from outboard import Tensor
from outboard.progress_bars import _Notebook, _screen_for


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_one_line_that_rewrites_itself():
    file = Terminal()
    for _ in outboard.tqdm(range(5), desc="five", file=file):
        pass
    text = file.getvalue()
    assert text.count("\n") == 1 and text.endswith("\n")
    last = text.split("\r\033[K")[-1]
    assert last.startswith("five: 100%|") and "5/5 [" in last and "it/s" in last


def test_a_file_has_plain_lines_and_few():
    file = io.StringIO()
    for _ in outboard.trange(1000, file=file):
        pass
    text = file.getvalue()
    assert "\r" not in text and "\033" not in text
    assert text.splitlines()[-1].startswith("100%") and len(text.splitlines()) <= 3


def test_tinygrads_ways_to_use_it():
    file = Terminal()
    with outboard.tqdm(total=10, unit="B", unit_scale=True, file=file) as bar:
        bar.set_description("down")
        bar.update(4)
        bar.update(6)
    assert "down: 100%" in file.getvalue() and "10/10" in file.getvalue()
    assert list(outboard.tqdm([1, 2], disable=True)) == [1, 2]
    assert list(outboard.tqdm(iter("ab"), file=io.StringIO(), disable=None)) == ["a", "b"]
    assert "2it" in _of(iter("ab"))
    assert list(outboard.tqdm([], file=file)) == []
    with pytest.raises(TypeError):
        next(iter(outboard.tqdm(total=3, file=file)))


def _of(items) -> str:
    file = io.StringIO()
    list(outboard.tqdm(items, file=file))
    return file.getvalue()


def test_they_are_where_tinygrad_has_them():
    from outboard.helpers import tqdm, trange
    assert (tqdm, trange) == (outboard.tqdm, outboard.trange)


def test_an_exception_ends_the_line():
    file = Terminal()
    with pytest.raises(KeyError):
        for i in outboard.tqdm(range(5), file=file):
            if i == 2:
                raise KeyError
    assert file.getvalue().endswith("\n")


def test_a_loss_is_shown_and_not_waited_for():
    Tensor.ones(1).item()
    file = Terminal()
    session = outboard.Session.current()
    bar = outboard.progress(3, file=file)
    before = session.stats.round_trips
    for step in bar:
        bar.loss((Tensor.ones(4) * step).sum())
    assert session.stats.round_trips == before, "nothing was waited for"
    while bar._losses:  # until the last has come
        bar._take_losses()
    bar._screen.show(bar._line(1.0), last=True)
    last = file.getvalue().split("\r\033[K")[-1]
    assert "3/3" in last and "loss 8" in last and "ms each" in last and "$0." in last
    bar.loss(0.25)
    assert "loss 0.25" in bar._facts()


def test_a_notebook_has_a_display_that_is_updated(monkeypatch):
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content["text/plain"])

    def display(content, raw, display_id):
        shown.append(content["text/plain"])
        return Handle()

    module = types.ModuleType("IPython")
    module.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    module.display = types.ModuleType("IPython.display")
    module.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", module.display)
    assert isinstance(_screen_for(sys.stderr), _Notebook)
    list(outboard.tqdm(range(3)))
    assert shown[-1].startswith("100%") and not any("\r" in line for line in shown)
