#!/usr/bin/python3
"""Says which fast libraries this PyTorch has: one line of JSON, judged by torch_peer.cc. Exits with 3 without PyTorch."""
import json
import sys

try:
    import torch
except ImportError:
    sys.exit(3)

# Which library a "generic" BLAS uses can be seen only after a product, among the libraries loaded.
a = torch.ones(64, 64)
(a @ a).sum().item()
with open("/proc/self/maps") as maps:
    loaded = maps.read()
# PyTorch's own wheels link MKL or OpenBLAS into their libraries, or bring it beside them.
config = torch.__config__.show()
print(json.dumps({
    "version": torch.__version__,
    "mkl": torch.backends.mkl.is_available() or "libmkl" in loaded,
    "openblas": "openblas" in loaded or "BLAS_INFO=open" in config,
    "onednn": torch.backends.mkldnn.is_available(),
}))
