"""Tensor, from where tinygrad programs import it, and how one is pickled."""
from outboard._core import Tensor, Variable
from outboard.dtypes import dtypes

__all__ = ["Tensor", "Variable"]


def _unpickled(dtype: str, shape: tuple[int, ...], data: bytes, is_param: bool, requires_grad: bool) -> Tensor:
    """The tensor that `Tensor.__reduce__` took apart."""
    tensor = Tensor(data, dtype=getattr(dtypes, dtype)).reshape(shape).contiguous()
    tensor.is_param = is_param
    if requires_grad:
        tensor.requires_grad_()
    return tensor
