#!/usr/bin/python3
"""Times PyTorch on the GPU: one line "name seconds" for each time of gpu_device_figures.cc and gpu_shape_figures.cc.

    torch_gpu.py            exits with 3 without a GPU or PyTorch
    torch_gpu.py --shapes   only the names of those of gpu_shape_figures.cc
"""
import sys

SHAPES = [(8192, 768, 2304), (8192, 768, 768), (8192, 768, 3072), (8192, 3072, 768), (4096, 4096, 12288),
          (4096, 4096, 4096), (4096, 4096, 11008), (4096, 11008, 4096)]
ATTENTION = [(width, rows, causal) for width in (64, 128) for rows in (1024, 4096, 16384) for causal in (False, True)]
TOKENS, WIDTH = 16384, 2048


def shape_name(m, k, n):
    return f"matmul_shape_{m}x{k}x{n}"


def attention_name(way, width, rows, causal):
    return f"attention_{way}_{width}_{rows}{'_causal' if causal else ''}"


if "--shapes" in sys.argv[1:]:
    for shape in SHAPES:
        print(shape_name(*shape))
    for case in ATTENTION:
        for way in ("forward", "backward"):
            print(attention_name(way, *case))
    sys.exit(0)

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
    a, b = (torch.rand(PRODUCT, PRODUCT, device="cuda").to(dtype) for _ in range(2))
    tell(f"matmul_{name}", lambda: a @ b)
    del a, b

for m, k, n in SHAPES:
    a, b = (torch.rand(*dims, device="cuda").bfloat16() for dims in ((m, k), (k, n)))
    tell(shape_name(m, k, n), lambda: a @ b)
    del a, b


def attention(width, rows, causal):
    """The best backend of scaled_dot_product_attention; of the backward pass its own time."""
    dims = (TOKENS // rows, WIDTH // width, rows, width)
    q, k, v = (torch.rand(dims, device="cuda").bfloat16().requires_grad_() for _ in range(3))
    gradient = torch.rand(dims, device="cuda").bfloat16()
    forward = backward = float("inf")
    for backend in (torch.nn.attention.SDPBackend.FLASH_ATTENTION, torch.nn.attention.SDPBackend.CUDNN_ATTENTION,
                    torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        try:
            with torch.nn.attention.sdpa_kernel(backend):
                def run():
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

                with torch.no_grad():
                    forward = min(forward, seconds(run))
                out = run()
                backward = min(backward, seconds(
                    lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)))
        except RuntimeError:
            continue  # this backend does not take the shape, or this device
    return {"forward": forward, "backward": backward}


for case in ATTENTION:
    for way, best in attention(*case).items():
        if best < float("inf"):
            print(attention_name(way, *case), best, flush=True)

x, y, u, v = (torch.rand(ROWS, COLUMNS, device="cuda") for _ in range(4))


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
