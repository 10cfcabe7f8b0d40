#!/usr/bin/python3
"""Times PyTorch on the GPU: one line "name seconds" for each of gpu_device_figures.cc's times. Exits with 3 without one."""
import sys

try:
    import torch
except ImportError:
    sys.exit(3)
if not torch.cuda.is_available():
    sys.exit(3)

ROWS, COLUMNS, PRODUCT, REPEATS = 1 << 16, 4096, 8192, 20
torch.backends.cuda.matmul.allow_tf32 = False


def seconds(run):
    for _ in range(3):
        run()
    least = float("inf")
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        least = min(least, begin.elapsed_time(end) / 1e3)
    return least


def tell(name, run):
    print(name, seconds(run), flush=True)


def compiled(body):
    return torch.compile(body, dynamic=False)


for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
    a, b = (torch.zeros(PRODUCT, PRODUCT, dtype=dtype, device="cuda") for _ in range(2))
    tell(f"matmul_{name}", lambda: a @ b)
    del a, b

x, y, u, v = (torch.zeros(ROWS, COLUMNS, device="cuda") for _ in range(4))


def adamw(p, d, first, second):
    first.lerp_(d, 0.1)
    second.lerp_(d * d, 0.001)
    p.mul_(1 - 1e-5).sub_(1e-3 * first / (second.sqrt() + 1e-8))


elementwise = compiled(lambda a, b: a * 3 + b)
reduce = compiled(lambda a: a.sum())
softmax = compiled(lambda a: torch.softmax(a, 1))
layer_norm = compiled(lambda a: torch.nn.functional.layer_norm(a, (COLUMNS,)))
update = compiled(adamw)
tell("stream_elementwise", lambda: elementwise(x, y))
tell("stream_reduce", lambda: reduce(x))
tell("stream_softmax", lambda: softmax(x))
tell("stream_layer_norm", lambda: layer_norm(x))
tell("stream_adamw", lambda: update(x, y, u, v))
