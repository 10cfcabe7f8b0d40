#!/usr/bin/python3
"""Times PyTorch on the GPU: one line "name seconds" for each time of a part.

    torch_gpu.py PART            exits with 3 without a GPU or PyTorch
    torch_gpu.py --names PART    only the names

Parts, each the peer of a group of scripts/bench: device (gpu_device_figures.cc), shapes (gpu_shape_figures.cc), programs
(gpu_program_figures.cc), steps (gpu_step_figures.cc).
"""
import sys
import time

SHAPES = [(8192, 768, 2304), (8192, 768, 768), (8192, 768, 3072), (8192, 3072, 768), (4096, 4096, 12288),
          (4096, 4096, 4096), (4096, 4096, 11008), (4096, 11008, 4096)]
ATTENTION = [(width, rows, causal) for width in (64, 128) for rows in (1024, 4096, 16384) for causal in (False, True)]
TOKENS, WIDTH = 16384, 2048
# Channels, side, filters, kernel and stride of layers of ResNet-50.
CONVOLUTIONS = [(3, 224, 64, 7, 2), (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 128, 1, 1),
                (128, 56, 128, 3, 2), (128, 28, 512, 1, 1), (256, 28, 256, 3, 2), (256, 14, 1024, 1, 1),
                (512, 14, 512, 3, 2), (512, 7, 2048, 1, 1)]
PICTURES, MNIST_BATCH, MNIST_PICTURES = 32, 512, 60000
LAYERS, LAYER_WIDTH = 48, 1600  # of a model of 1.5 thousand million parameters
ROWS, COLUMNS, PRODUCT, REPEATS = 1 << 16, 4096, 8192, 20
GPT2 = {"vocabulary": 50257, "layers": 12, "width": 768, "heads": 12, "context": 1024}
GPT2_BATCH, GPT2_TOKENS, GPT2_STEPS = 8, 1_000_000, 10


def shape_name(m, k, n):
    return f"matmul_shape_{m}x{k}x{n}"


def attention_name(way, width, rows, causal):
    return f"attention_{way}_{width}_{rows}{'_causal' if causal else ''}"


def conv_name(channels, side, filters, kernel, stride):
    return f"conv_{channels}x{side}x{filters}_{kernel}_{stride}"


NAMES = {
    "device": [f"matmul_{name}" for name in ("bf16", "fp32", "fp8")] +
              [f"stream_{name}" for name in ("elementwise", "reduce", "softmax", "layer_norm", "adamw")],
    "shapes": [shape_name(*shape) for shape in SHAPES] +
              [attention_name(way, *case) for case in ATTENTION for way in ("forward", "backward")],
    "programs": ["mnist_step", "mnist_step_eager", *(conv_name(*shape) for shape in CONVOLUTIONS), "decode_1b5"],
    "steps": ["gpt2_step_eager", "gpt2_step_compile"],
}

arguments = [word for word in sys.argv[1:] if word != "--names"]
if len(arguments) != 1 or arguments[0] not in NAMES:
    sys.exit(__doc__)
part = arguments[0]
if "--names" in sys.argv[1:]:
    print(*NAMES[part], sep="\n")
    sys.exit(0)

try:
    import torch
except ImportError:
    sys.exit(3)
if not torch.cuda.is_available():
    sys.exit(3)
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


def device():
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        a, b = (torch.rand(PRODUCT, PRODUCT, device="cuda").to(dtype) for _ in range(2))
        tell(f"matmul_{name}", lambda: a @ b)
        del a, b
    if torch.cuda.get_device_capability() >= (8, 9):
        one = torch.ones((), device="cuda")
        a, b = (torch.rand(PRODUCT, PRODUCT, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
        tell("matmul_fp8", lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16))
        del a, b
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


def shapes():
    for m, k, n in SHAPES:
        a, b = (torch.rand(*dims, device="cuda").bfloat16() for dims in ((m, k), (k, n)))
        tell(shape_name(m, k, n), lambda: a @ b)
        del a, b
    for case in ATTENTION:
        for way, best in attention(*case).items():
            if best < float("inf"):
                print(attention_name(way, *case), best, flush=True)


def mnist_step(how):
    """The network and step of client/examples/mnist.h, pictures drawn on the device; `how`: torch.compile or none."""
    from torch_steps import MnistNet
    net = MnistNet().cuda()
    adam = torch.optim.Adam(net.parameters(), lr=0.001, fused=True, capturable=True)
    pictures = torch.randint(0, 256, (MNIST_PICTURES, 1, 28, 28), dtype=torch.uint8, device="cuda")
    labels = torch.randint(0, 10, (MNIST_PICTURES,), device="cuda")

    @how
    def loss_of(x, y):
        return torch.nn.functional.cross_entropy(net(x), y)

    def step():
        rows = torch.randint(0, MNIST_PICTURES, (MNIST_BATCH,), device="cuda")
        adam.zero_grad(set_to_none=True)
        loss_of(pictures[rows].float() / 255, labels[rows]).backward()
        adam.step()

    return step


def programs():
    tell("mnist_step", mnist_step(torch.compile(mode="reduce-overhead", dynamic=False)))  # with CUDA graphs
    tell("mnist_step_eager", mnist_step(lambda body: body))
    torch.backends.cudnn.benchmark = True
    last = {"memory_format": torch.channels_last}
    for channels, side, filters, kernel, stride in CONVOLUTIONS:
        picture = torch.rand(PICTURES, channels, side, side, device="cuda").bfloat16().to(**last)
        weight = torch.rand(filters, channels, kernel, kernel, device="cuda").bfloat16().to(**last)
        tell(conv_name(channels, side, filters, kernel, stride),
             lambda: torch.nn.functional.conv2d(picture, weight, stride=stride, padding=kernel // 2))
    layers = [[torch.rand(LAYER_WIDTH * rows, LAYER_WIDTH * columns, device="cuda").bfloat16() / 1e4
               for rows, columns in ((1, 3), (1, 1), (1, 4), (4, 1))] for _ in range(LAYERS)]

    @torch.compile(mode="reduce-overhead", dynamic=False)
    def decode(token):
        for three, out, up, down in layers:
            token = token + sum((token @ three).chunk(3, dim=1)) @ out
            token = token + torch.relu(token @ up) @ down
        return token

    with torch.no_grad():
        first = torch.rand(1, LAYER_WIDTH, device="cuda").bfloat16()
        tell("decode_1b5", lambda: decode(first))


def steps():
    """The network and step of client/examples/gpt.h: products of bf16, weights of f32, AdamW."""
    from torch_steps import Gpt
    context = GPT2["context"]
    text = torch.randint(0, GPT2["vocabulary"], (GPT2_TOKENS,), device="cuda")
    for name, how in (("gpt2_step_eager", lambda body: body), ("gpt2_step_compile", compiled)):
        net = Gpt(fused=True, **GPT2).cuda()
        adam = torch.optim.AdamW(net.parameters(), 1e-4, fused=True)

        def loss_of(x, y):
            with torch.autocast("cuda", torch.bfloat16):
                return torch.nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())

        loss_of = how(loss_of)

        def step():
            begin = torch.randint(0, GPT2_TOKENS - context, (GPT2_BATCH, 1), device="cuda")
            places = begin + torch.arange(context, device="cuda")
            adam.zero_grad(set_to_none=True)
            loss = loss_of(text[places], text[places + 1])
            loss.backward()
            adam.step()
            return loss

        for _ in range(3):
            step().item()
        start = time.perf_counter()
        for _ in range(GPT2_STEPS):
            loss = step()
        loss.item()
        print(name, (time.perf_counter() - start) / GPT2_STEPS, flush=True)
        del net, adam, loss, loss_of, step


{"device": device, "shapes": shapes, "programs": programs, "steps": steps}[part]()
