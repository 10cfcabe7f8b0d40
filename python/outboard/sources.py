"""Tensors of bytes that this process can reach: memory at an address, and the file of a URL."""
from __future__ import annotations

import ctypes
import gzip
import io
import math
import os
import pathlib
import urllib.parse
import urllib.request
import zlib

from outboard._core import DType, Tensor
from outboard.dtypes import dtypes, to_dtype

_INFLATED_BYTES_MAX = 1 << 32


def from_blob(ptr: int, shape: tuple[int, ...], device: object = None, dtype: DType | str | None = None,
              requires_grad: bool | None = None) -> Tensor:
    """The elements that lie at the address `ptr` of this process, such as `ctypes.addressof(buffer)`, in C's order.

    Exactly the bytes of `shape` and `dtype` (`dtypes.default_float` without it) are read, and copied before this
    returns: the memory may then change or be freed, which changes nothing here. Nothing can check that it is readable:
    a wrong address ends the process.
    ValueError: a negative address or size, or the null pointer for more than no bytes. TypeError: no ints.
    """
    kind = dtypes.default_float if dtype is None else to_dtype(dtype)
    if isinstance(ptr, bool) or not isinstance(ptr, int):
        raise TypeError(f"from_blob: an address is an int, not {type(ptr).__name__}")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(isinstance(size, int) for size in sizes):
        raise TypeError(f"from_blob: a shape has ints, not {shape!r}")
    if any(size < 0 for size in sizes):
        raise ValueError(f"from_blob: a negative size in {shape!r}")
    count = math.prod(sizes) * kind.itemsize
    if ptr < 0 or (ptr == 0 and count > 0):
        raise ValueError(f"from_blob: no {count} bytes can be read at the address {ptr}")
    copy = bytes((ctypes.c_char * count).from_address(ptr)) if count else b""
    return Tensor(Tensor(copy, dtype=kind).reshape(sizes), device=device, requires_grad=requires_grad)


def from_url(url: str, gunzip: bool = False, device: object = None, dtype: DType | str | None = None,
             requires_grad: bool | None = None) -> Tensor:
    """The bytes of a file of this machine, as uint8 or `dtype`: of `file:///path`, or a path beginning with "/" or ".".

    With `gunzip` they are expanded, to 4 GiB at most. Nothing is downloaded.
    FileNotFoundError: no such file. ValueError: damaged, or too large expanded. NotImplementedError: any other URL.
    """
    path = _path_of(url)
    if not gunzip:
        return Tensor(path, device=device, dtype=dtype, requires_grad=requires_grad)
    return Tensor(_expanded(path), device=device, dtype=dtype, requires_grad=requires_grad)


def _path_of(url: str) -> pathlib.Path:
    if not isinstance(url, str):
        raise TypeError(f"from_url: a URL is a str, not {type(url).__name__}")
    if url.startswith(("/", ".")):
        return pathlib.Path(url)
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise NotImplementedError(f"from_url: {url!r} is no file of this machine, and nothing is downloaded: fetch it "
                                  "by other means, then Tensor(pathlib.Path(...)) reads the file")
    return pathlib.Path(urllib.request.url2pathname(parts.path))


def _expanded(path: "os.PathLike[str]") -> bytes:
    expanded = io.BytesIO()
    try:
        with gzip.open(path) as file:
            while piece := file.read(1 << 20):
                expanded.write(piece)
                if expanded.tell() > _INFLATED_BYTES_MAX:
                    raise ValueError(f"{path}: expands to more than {_INFLATED_BYTES_MAX} bytes")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: {error}") from None
    return expanded.getvalue()
