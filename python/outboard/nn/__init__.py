"""Networks: layers here, optimisers in nn.optim, states and their files in nn.state, data sets in nn.datasets."""
from outboard.nn import datasets, optim, state
from outboard.nn.layers import (BatchNorm, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d,
                                Embedding, GroupNorm, InstanceNorm, LayerNorm, LayerNorm2d, Linear, LSTMCell, RMSNorm)

__all__ = ["BatchNorm", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d",
           "Embedding", "GroupNorm", "InstanceNorm", "LayerNorm", "LayerNorm2d", "Linear", "LSTMCell", "RMSNorm",
           "datasets", "optim", "state"]
