#!/usr/bin/python3
"""Times PyTorch on the GPU: one line "name seconds" for each time of a part.

    torch_gpu.py PART            exits with 3 without a GPU or PyTorch
    torch_gpu.py --names PART    only the names

Parts, each the peer of a group of scripts/bench: device (gpu_device_figures.cc), shapes (gpu_shape_figures.cc), programs
(gpu_program_figures.cc), steps (gpu_step_figures.cc).
"""
import statistics
import sys
import time

SHAPES = [(8192, 768, 2304), (8192, 768, 768), (8192, 768, 3072), (8192, 3072, 768), (4096, 4096, 12288),
          (4096, 4096, 4096), (4096, 4096, 11008), (4096, 11008, 4096)]
ATTENTION = [(width, rows, causal) for width in (64, 128) for rows in (1024, 2048, 4096, 8192, 16384)
             for causal in (False, True)]
TOKENS, WIDTH = 16384, 2048
# Channels, side, filters, kernel and stride of every kind of ResNet-50's convolutions.
CONVOLUTIONS = [(3, 224, 64, 7, 2), (64, 56, 64, 1, 1), (256, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1),
                (256, 56, 128, 1, 1), (128, 56, 128, 3, 2), (128, 28, 512, 1, 1), (256, 56, 512, 1, 2),
                (512, 28, 128, 1, 1), (128, 28, 128, 3, 1), (512, 28, 256, 1, 1), (256, 28, 256, 3, 2),
                (256, 14, 1024, 1, 1), (512, 28, 1024, 1, 2), (1024, 14, 256, 1, 1), (256, 14, 256, 3, 1),
                (1024, 14, 512, 1, 1), (512, 14, 512, 3, 2), (512, 7, 2048, 1, 1), (1024, 14, 2048, 1, 2),
                (2048, 7, 512, 1, 1), (512, 7, 512, 3, 1)]
PICTURES, MNIST_BATCH, MNIST_PICTURES, MNIST_STEPS = 32, 512, 60000, 50
# Of a model of 1.5 thousand million parameters (GPT-2 XL), and of its last tokens, which are written in each round.
LAYERS, LAYER_WIDTH, LAYER_HEADS, WORDS, CACHE, TOKENS_WRITTEN = 48, 1600, 25, 50257, 1024, 64
STREAM_BYTES, COLUMNS, PRODUCT, REPEATS, ROUNDS = 4 << 30, 4096, 8192, 20, 5
GPT2 = {"vocabulary": 50257, "layers": 12, "width": 768, "heads": 12, "context": 1024}
GPT2_BATCH, GPT2_TOKENS, GPT2_STEPS = 8, 1_000_000, 4


def shape_name(m, k, n):
    return f"matmul_shape_{m}x{k}x{n}"


def attention_name(way, width, rows, causal):
    return f"attention_{way}_{width}_{rows}{'_causal' if causal else ''}"


def conv_name(way, channels, side, filters, kernel, stride):
    return f"conv_{way}_{channels}x{side}x{filters}_{kernel}_{stride}"


NAMES = {
    "device": [f"matmul_{name}" for name in ("bf16", "fp32", "fp32_error", "fp8")] +
              [f"stream_{name}" for name in ("elementwise", "reduce", "softmax", "layer_norm", "adamw")],
    "shapes": [shape_name(*shape) for shape in SHAPES] +
              [attention_name(way, *case) for case in ATTENTION for way in ("forward", "backward")],
    "programs": ["mnist_step", "mnist_step_eager", "decode_1b5",
                 *(conv_name(way, *shape) for shape in CONVOLUTIONS for way in ("forward", "step"))],
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
torch.backends.cudnn.allow_tf32 = False  # convolutions of f32 as ours: True by default


def seconds(run):
    for _ in range(3):
        run()
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def seconds_by_host(step, steps):
    """Of a step with what its host does: the median of rounds of so many steps, whose last result is read."""
    for _ in range(3):
        step().item()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(steps):
            loss = step()
        loss.item()
        times.append((time.perf_counter() - start) / steps)
    return statistics.median(times)


def recorded(run):
    """`run` as a CUDA graph, as ours are: what the device does, without the host's calls."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def tell(name, run):
    try:
        print(name, seconds(run), flush=True)
    except RuntimeError as error:  # the others are still of use
        print(f"{name}: {error}", file=sys.stderr)


def compiled(body):
    return torch.compile(body, dynamic=False)


def drawn_matrix():
    """The numbers of gpu_plan.cc: 2^20 of them from 0.125 to 1, over and over."""
    numbers, state = [], 0x9e3779b97f4a7c15
    for _ in range(1 << 20):
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xffffffffffffffff
        numbers.append(0.125 + 0.875 * (state >> 11) * 2.0**-53)
    piece = torch.tensor(numbers, dtype=torch.float64).float().cuda()
    return piece.repeat(-(-PRODUCT * PRODUCT // len(piece)))[:PRODUCT * PRODUCT].view(PRODUCT, PRODUCT)


def fp32_error():
    """Of the product that gpu_device_figures.cc measures the error of: the same rows of the same matrices."""
    a = drawn_matrix()
    rows = [i * PRODUCT // 16 for i in range(16)]
    exact = a[rows].double() @ a.double()
    return (((a @ a)[rows].double() - exact).abs() / exact).max().item()


def stream_rows(matrices):
    """As StreamRows of gpu_device_figures.cc."""
    row, rows, memory = matrices * COLUMNS * 4, 1, torch.cuda.get_device_properties(0).total_memory
    while rows * row < STREAM_BYTES:
        rows *= 2
    while rows > 1 and rows * row > memory // 2:
        rows //= 2
    return rows


def tell_stream(name, matrices, inputs, body):
    """Times body(*inputs), which reads and writes so many matrices together."""
    torch.cuda.empty_cache()
    drawn = [torch.rand(stream_rows(matrices), COLUMNS, device="cuda") for _ in range(inputs)]
    tell(f"stream_{name}", lambda: body(*drawn))


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
    print("matmul_fp32_error", fp32_error(), flush=True)

    def adamw(p, d, first, second):
        first.lerp_(d, 0.1)
        second.lerp_(d * d, 0.001)
        p.mul_(1 - 1e-5).sub_(1e-3 * first / (second.sqrt() + 1e-8))

    tell_stream("elementwise", 3, 2, compiled(lambda a, b: a * 3 + b))
    tell_stream("reduce", 1, 1, compiled(lambda a: a.sum()))
    tell_stream("softmax", 2, 1, compiled(lambda a: torch.softmax(a, 1)))
    tell_stream("layer_norm", 2, 1, compiled(lambda a: torch.nn.functional.layer_norm(a, (COLUMNS,))))
    tell_stream("adamw", 7, 4, compiled(adamw))


def attention(width, rows, causal):
    """The best backend of scaled_dot_product_attention for each way; "backward" is a whole step, with gradients."""
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
                backward = min(backward, seconds(lambda: torch.autograd.grad(run(), (q, k, v), gradient)))
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
        loss = loss_of(pictures[rows].float() / 255, labels[rows])
        loss.backward()
        adam.step()
        return loss

    return step


def convolution(shape, layout):
    """Seconds of the device of a layer, and of it with both gradients, as pairs with their way."""
    channels, side, filters, kernel, stride = shape
    picture = torch.rand(PICTURES, channels, side, side, device="cuda").bfloat16().to(memory_format=layout)
    weight = torch.rand(filters, channels, kernel, kernel, device="cuda").bfloat16().to(memory_format=layout)

    def forward():
        return torch.nn.functional.conv2d(picture, weight, stride=stride, padding=kernel // 2)

    yield "forward", seconds(recorded(forward))
    gradient = torch.rand_like(forward())
    picture.requires_grad_()
    weight.requires_grad_()
    yield "step", seconds(recorded(lambda: torch.autograd.grad(forward(), (picture, weight), gradient)))


def programs():
    for name, how in (("mnist_step", torch.compile(mode="reduce-overhead", dynamic=False)),  # with CUDA graphs
                      ("mnist_step_eager", lambda body: body)):
        try:
            print(name, seconds_by_host(mnist_step(how), MNIST_STEPS), flush=True)
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
    torch.backends.cudnn.benchmark = True
    for shape in CONVOLUTIONS:
        best = {}
        for layout in (torch.channels_last, torch.contiguous_format):
            try:
                for way, taken in convolution(shape, layout):
                    best[way] = min(taken, best.get(way, taken))
            except RuntimeError as error:  # the other layout is still of use
                print(f"{conv_name('*', *shape)}: {error}", file=sys.stderr)
        for way, taken in best.items():
            print(conv_name(way, *shape), taken, flush=True)
    decode()  # last: torch.compile takes minutes for 48 layers


class DecodeLayer(torch.nn.Module):
    """A layer that writes one token: its keys and values go into caches of CACHE tokens."""

    def __init__(self):
        super().__init__()
        width, head = LAYER_WIDTH, LAYER_WIDTH // LAYER_HEADS
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.three, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.rand(1, LAYER_HEADS, CACHE, head) / 100)

    def forward(self, x, place, seen):
        q, k, v = self.three(self.norm1(x)).view(1, 1, 3, LAYER_HEADS, -1).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        x = x + self.out(mixed.reshape(1, LAYER_WIDTH))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Decoder(torch.nn.Module):
    """The model of gpu_decode_figures.cc: the likeliest token after `token`, at `place`."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = (torch.nn.Embedding(count, LAYER_WIDTH) for count in (WORDS, CACHE))
        self.layers = torch.nn.ModuleList(DecodeLayer() for _ in range(LAYERS))
        self.norm = torch.nn.LayerNorm(LAYER_WIDTH)

    def forward(self, token, place):
        x = self.tokens(token) + self.positions(place)
        seen = (torch.arange(CACHE, device=x.device) <= place).view(1, 1, 1, CACHE)
        for layer in self.layers:
            x = layer(x, place, seen)
        return (self.norm(x) @ self.tokens.weight.T).argmax(-1)


def decode():
    with torch.device("cuda"):
        model = Decoder().bfloat16()
    step = torch.compile(model, mode="reduce-overhead", dynamic=False)  # with CUDA graphs
    places = [torch.tensor([CACHE - TOKENS_WRITTEN + i], device="cuda") for i in range(TOKENS_WRITTEN)]
    times = []
    with torch.no_grad():
        for _ in range(ROUNDS + 1):
            token = torch.ones(1, dtype=torch.long, device="cuda")
            torch.cuda.synchronize()
            start = time.perf_counter()
            for place in places:
                token = step(token, place).clone()  # the graph's own memory is written again
            token.item()
            times.append((time.perf_counter() - start) / TOKENS_WRITTEN)
    print("decode_1b5", statistics.median(times[1:]), flush=True)


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

        print(name, seconds_by_host(step, GPT2_STEPS), flush=True)
        del net, adam, loss_of, step


{"device": device, "shapes": shapes, "programs": programs, "steps": steps}[part]()
