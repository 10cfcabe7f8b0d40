"""The programs that learn to write and then do, on a text of one sentence over and over."""
import sys

import numpy as np
import programs
import pytest

from outboard import Tensor, Variable

sys.path.insert(0, str(programs.FOLDER))
import gpt  # noqa: E402

SENTENCE = "the quick brown fox jumps over a lazy dog.\n"
SMALL = ["--layers", 1, "--width", 32, "--heads", 2, "--context", 16, "--batch", 16, "--seed", 1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Where the checkpoint is, and what the training said."""
    folder = tmp_path_factory.mktemp("chargpt")
    (folder / "text").write_text(SENTENCE * 100)
    said = programs.summary("chargpt.py", folder / "text", "--steps", 200, "--lr", 1e-2, "--warmup", 20, "--out",
                            folder / "chargpt.safetensors", *SMALL)
    return folder / "chargpt.safetensors", said


def test_it_learns_the_sentence(trained):
    _, said = trained
    assert said["steps"] == 200
    # Where the sentence goes on is clear from its second or third letter on.
    assert said["loss"] < 0.35 and said["validation"] < 0.35
    assert said["step_ms"] > 0 and said["first_step_s"] > 0


def test_it_writes_it(trained):
    """Also beyond the context of 16, where it begins to read again."""
    path, _ = trained
    written = programs.run("chargpt_generate.py", path, "--prompt", SENTENCE[:6], "--count", 60, "--temperature", 0)
    assert written.stdout == (SENTENCE * 3)[:66] + "\n"


def test_every_place_is_one_graph(trained):
    """DEBUG=1 lets the worker say each plan that it makes: as many for two letters as for twelve."""
    path, _ = trained
    plans = [programs.run("chargpt_generate.py", path, "--prompt", "t", "--count", count, "--seed", 3,
                          environment={"DEBUG": "1"}).stderr.count("plan: ") for count in (3, 12)]
    assert plans[0] == plans[1] > 0


def test_caches_change_nothing(trained):
    """Letter by letter as all at once."""
    path, _ = trained
    net, letters = gpt.load(str(path))
    numbers = list(letters.encode(SENTENCE[:10].encode()))
    whole = net(Tensor([numbers]))[0].numpy()
    caches, place = [gpt.Cache(net.options) for _ in net.blocks], Variable("place", 0, net.options.context - 1)
    for i, number in enumerate(numbers):
        one = net.next(Tensor([[number]]), place.bind(i), caches)
        np.testing.assert_allclose(one.realize(*[t for cache in caches for t in (cache.keys, cache.values)]).numpy(),
                                   whole[i], rtol=1e-3, atol=1e-4)


def test_what_cannot_be_is_said(trained, tmp_path):
    path, _ = trained
    (tmp_path / "short").write_text("too short")
    assert "too short" in programs.run("chargpt.py", tmp_path / "short", code=1).stderr
    assert "b'X'" in programs.run("chargpt_generate.py", path, "--prompt", "X", code=1).stderr
    assert "no" in programs.run("chargpt_generate.py", tmp_path / "none", code=1).stderr
