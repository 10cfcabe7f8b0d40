"""Outboard: tensors whose values live in the cloud, with the names of tinygrad.

    from outboard import Tensor
    x = Tensor.rand(1024, 1024)
    print((x @ x).relu().sum().item())     # the only line that waits

A program without CLOUD=1 starts a private worker on this machine; with CLOUD=1, CLOUD_HOST and CLOUD_KEY the same program
runs there.
"""
import os as _os

from outboard import _core
from outboard._core import DType, Error, Tensor, repeat
from outboard.dtypes import dtypes

_core.set_package_folder(_os.path.dirname(_os.path.abspath(__file__)) + _os.sep)

__all__ = ["DType", "Error", "Tensor", "dtypes", "repeat"]
