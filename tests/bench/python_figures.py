"""Figures of the Python package, each in a process of its own:

    build/venv/bin/python tests/bench/python_figures.py [NAME ...]     # with PYTHONPATH=build/python

python_gpt_build_ms  building one training step of GPT-2 small (12 layers of width 768, 12 heads, context 1024) without
                     TinyJit: forward, backward, Adam, up to and including the encoding of the graph. Nothing is
                     computed (a dry run). Median of the steps after the second; the first two are told beside it.
python_gpt_jit_ms    one call of that step under TinyJit, through a session with a private worker. The call is the same
                     for every size of a tensor, so that these are small: 148 parameters and their moments.
sort_million_ms      sorting a million random numbers, values and places, without TinyJit.
cli_start_ms_p50     `outboard --version` (OUTBOARD_BIN), from start to end.
python_import_s      `import outboard` in a fresh interpreter, above that of an empty program; the best of several.

Prints one JSON object.
"""
import json
import os
import statistics
import subprocess
import sys
import time


def gpt(vocab, context, width, heads, layers):
    """The parameters of a GPT, and its loss as a function of tokens and labels."""
    from outboard import Tensor

    made = []

    def param(*shape):
        made.append((Tensor.rand(*shape) - 0.5) * 0.04)
        return made[-1]

    def norm():
        return param(width), param(width)

    words, places = param(vocab, width), param(context, width)
    blocks = [
        (norm(), param(width, 3 * width), param(3 * width), param(width, width), param(width),
         norm(), param(width, 4 * width), param(4 * width), param(4 * width, width), param(width))
        for _ in range(layers)
    ]
    last = norm()

    def normed(x, scale):
        return x.layernorm() * scale[0] + scale[1]

    def loss(tokens, labels):
        size = tokens.shape[1]
        x = words[tokens] + places[:size]
        mask = Tensor.ones(size, size).tril()
        for first, qkv, qkv_bias, out, out_bias, second, up, up_bias, down, down_bias in blocks:
            parts = (normed(x, first) @ qkv + qkv_bias).reshape(-1, size, 3, heads, width // heads)
            parts = parts.permute(2, 0, 3, 1, 4)
            scores = (parts[0] @ parts[1].transpose(-2, -1)) * (width // heads) ** -0.5
            scores = (mask == 0).where(float("-inf"), scores).softmax()
            x = x + (scores @ parts[2]).permute(0, 2, 1, 3).reshape(-1, size, width) @ out + out_bias
            x = x + (normed(x, second) @ up + up_bias).gelu() @ down + down_bias
        logits = normed(x, last) @ words.transpose(0, 1)
        return logits.sparse_categorical_crossentropy(labels)

    return made, loss


def trainer(**shape):
    from outboard import Tensor, dtypes
    from outboard.nn.optim import Adam

    params, loss_of = gpt(**shape)
    adam = Adam(params, lr=1e-4)
    tokens = Tensor.zeros(1, shape["context"], dtype=dtypes.int32).contiguous().realize()
    labels = Tensor.zeros(1, shape["context"], dtype=dtypes.int32).contiguous().realize()

    def step(tokens, labels):
        adam.zero_grad()
        loss = loss_of(tokens, labels).backward()
        return loss.realize(*adam.schedule_step())

    return len(params), lambda f: f(tokens, labels), step


def python_gpt_build_ms():
    from outboard import Context, _core

    _core.begin_dry_run()
    count, call, step = trainer(vocab=50257, context=1024, width=768, heads=12, layers=12)
    times = []
    with Context(TRAINING=1):
        for _ in range(23):
            start = time.perf_counter()
            call(step)
            times.append((time.perf_counter() - start) * 1e3)
    figure = statistics.median(times[2:])
    return {"python_gpt_build_ms": figure, "first_ms": times[0], "second_ms": times[1], "parameters": count}


def python_gpt_jit_ms():
    from outboard import Context, Device, TinyJit

    count, call, step = trainer(vocab=16, context=4, width=12, heads=12, layers=12)
    step = TinyJit(step)
    times = []
    with Context(TRAINING=1):
        for i in range(120):
            if i % 8 == 0:
                Device[Device.DEFAULT].synchronize()  # or a full window is what is measured
            start = time.perf_counter()
            call(step)
            times.append((time.perf_counter() - start) * 1e3)
    return {"python_gpt_jit_ms": statistics.median(times[20:]), "parameters": count}


def sort_million_ms():
    from outboard import Device, Tensor

    x = Tensor.rand(1_000_000).realize()
    times = []
    for _ in range(12):
        start = time.perf_counter()
        Tensor.realize(*x.sort())
        Device[Device.DEFAULT].synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return {"sort_million_ms": statistics.median(times[2:])}


def cli_start_ms_p50():
    times = []
    for _ in range(31):
        start = time.perf_counter()
        subprocess.run([os.environ["OUTBOARD_BIN"], "--version"], check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - start) * 1e3)
    return {"cli_start_ms_p50": statistics.median(times)}


def python_import_s():
    def seconds(code):
        best = float("inf")
        for _ in range(9):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            best = min(best, time.perf_counter() - start)
        return best

    whole, empty = seconds("import outboard"), seconds("pass")
    return {"python_import_s": whole - empty, "interpreter_s": empty}


FIGURES = {figure.__name__: figure for figure in (python_gpt_build_ms, python_gpt_jit_ms, sort_million_ms, cli_start_ms_p50,
                                             python_import_s)}


def main():
    names = sys.argv[1:] or list(FIGURES)
    if len(names) == 1:
        print(json.dumps(FIGURES[names[0]]()))
        return
    figures = {}
    for name in names:
        command = [sys.executable, os.path.abspath(__file__), name]
        figures.update(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
