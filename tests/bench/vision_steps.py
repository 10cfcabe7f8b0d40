"""Milliseconds of a training step of a vision network: resnet18_train_vs_torch and vit_train_vs_torch.

    build/venv/bin/python tests/bench/vision_steps.py resnet18|vit [--steps N]     # with PYTHONPATH=build/python

resnet18  the network of He et al. (2015, arXiv:1512.03385) for ImageNet, on 32 pictures of 64 x 64; SGD with momentum.
vit       a vision transformer (Dosovitskiy et al., 2020, arXiv:2010.11929) of width 192, 6 layers and 3 heads, on 16
          pictures of 64 x 64 in patches of 8 x 8; AdamW.

The loss is read every step. Prints {"first_step_s", "step_ms": median}. torch_steps.py has the same in PyTorch.
"""
import argparse
import json
import statistics
import time

from outboard import Context, Device, Tensor, TinyJit, nn

CLASSES, SIZE = 1000, 64


class ResidualBlock:
    def __init__(self, channels_in, channels, stride):
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm(channels)
        self.shortcut = []
        if stride != 1 or channels_in != channels:
            self.shortcut = [nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False), nn.BatchNorm(channels)]

    def __call__(self, x):
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        return (y + x.sequential(self.shortcut)).relu()


class ResNet18:
    def __init__(self):
        self.stem, self.norm = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm(64)
        widths = [64, 64, 128, 256, 512]
        self.blocks = []
        for i in range(4):
            self.blocks += [ResidualBlock(widths[i], widths[i + 1], 1 if i == 0 else 2),
                            ResidualBlock(widths[i + 1], widths[i + 1], 1)]
        self.head = nn.Linear(512, CLASSES)

    def __call__(self, x):
        x = self.norm(self.stem(x)).relu().max_pool2d((3, 3), stride=2, padding=1)
        return self.head(x.sequential(self.blocks).mean((2, 3)))


class TransformerBlock:
    def __init__(self, width, heads):
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).chunk(3)
        mixed = q.squeeze(0).scaled_dot_product_attention(k.squeeze(0), v.squeeze(0))
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def __call__(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.up(self.norm2(x)).gelu())


class ViT:
    def __init__(self, width=192, layers=6, heads=3, patch=8):
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = Tensor.zeros(1, 1, width)
        self.positions = Tensor.normal(1, (SIZE // patch)**2 + 1, width, std=0.02)
        self.blocks = [TransformerBlock(width, heads) for _ in range(layers)]
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def __call__(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = self.class_token.expand(x.shape[0], 1, -1).cat(x, dim=1) + self.positions
        return self.head(self.norm(x.sequential(self.blocks))[:, 0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=["resnet18", "vit"])
    parser.add_argument("--steps", type=int, default=10)
    flags = parser.parse_args()
    net, batch = (ResNet18(), 32) if flags.net == "resnet18" else (ViT(), 16)
    params = nn.state.get_parameters(net)
    if flags.net == "resnet18":
        optimiser = nn.optim.SGD(params, lr=0.01, momentum=0.9)
    else:
        optimiser = nn.optim.AdamW(params, lr=1e-3)
    images = Tensor.rand(batch, 3, SIZE, SIZE).realize()
    labels = Tensor.randint(batch, high=CLASSES).realize()
    Tensor.realize(*params)
    Device[Device.DEFAULT].synchronize()

    @TinyJit
    def step(images, labels):
        optimiser.zero_grad()
        loss = net(images).sparse_categorical_crossentropy(labels).backward()
        return loss.realize(*optimiser.schedule_step())

    times = []
    with Context(TRAINING=1):
        for _ in range(3 + flags.steps):
            begin = time.perf_counter()
            step(images, labels).item()
            times.append(time.perf_counter() - begin)
    print(json.dumps({"first_step_s": times[0], "step_ms": 1e3 * statistics.median(times[3:])}))


if __name__ == "__main__":
    main()
