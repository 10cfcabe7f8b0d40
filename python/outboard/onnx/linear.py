"""Products of matrices, and what is built of them."""

from __future__ import annotations

from outboard import Tensor, dtypes
from outboard.onnx.registry import op

op("MatMul")(Tensor.matmul)


@op("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803: ONNX's names
    transB: int = 0,  # noqa: N803
    broadcast: int = 0,  # of version 6 and before; all of C's shapes broadcast as they do now
) -> Tensor:
    product = (a.transpose() if transA else a).matmul(b.transpose() if transB else b)
    product = product if alpha == 1 else product * alpha
    if c is None or beta == 0:
        return product
    return product + (c if beta == 1 else c * beta)


@op("Einsum")
def einsum(*inputs: Tensor, equation: str) -> Tensor:
    return Tensor.einsum(equation, *inputs)


@op("Det")
def det(x: Tensor) -> Tensor:
    """By elimination with the largest pivot of each column."""
    n, batch = x.shape[-1], x.shape[:-2]
    x = x.reshape(-1, n, n)
    rows = Tensor.arange(n).reshape(1, n, 1)
    result = Tensor.ones(x.shape[0], dtype=x.dtype)
    for column in range(n):
        below = rows >= column
        pivot = below.where(x[:, :, column : column + 1].abs(), -1).argmax(1, keepdim=True)  # [batch, 1, 1]
        chosen = rows == pivot
        row = chosen.where(x, 0).sum(1, keepdim=True)
        # The row of the pivot and the row at `column` change places; that changes the sign if they are two.
        x = (rows == column).where(row, chosen.where(x[:, column : column + 1], x))
        value = row[:, 0, column]
        result = result * (pivot.reshape(-1) == column).where(value, -value)
        factor = (rows > column).where(x[:, :, column : column + 1], 0) / (row[:, :, column : column + 1] + 0)
        x = x - (row[:, :, column : column + 1] == 0).where(0, factor * row)
    return result.reshape(batch)


@op("Attention", since=23)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
):
    flat = q.ndim == 3
    if flat:  # [batch, length, heads * width]
        q, k, v = (
            x.reshape(*x.shape[:2], heads, -1).permute(0, 2, 1, 3)
            for x, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
        )
    k = k if past_key is None else past_key.cat(k, dim=2)
    v = v if past_value is None else past_value.cat(v, dim=2)
    present_key, present_value = k, v
    if q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q.matmul(k.transpose()) * (q.shape[-1] ** -0.5 if scale is None else scale)
    stages = [scores]
    if attn_mask is not None:
        blocked = -float("inf")
        scores = attn_mask.where(scores, blocked) if attn_mask.dtype == dtypes.bool else scores + attn_mask
    if is_causal:
        visible = Tensor.ones(*scores.shape[-2:], dtype=dtypes.bool).tril()
        scores = visible.where(scores, -float("inf"))
    stages.append(scores)
    if softcap:
        scores = (scores / softcap).tanh() * softcap
    stages.append(scores)
    weights = scores.softmax(-1)
    stages.append(weights)
    y = weights.matmul(v).cast(q.dtype)
    y = y.permute(0, 2, 1, 3).flatten(2) if flat else y
    return y, present_key, present_value, stages[qk_matmul_output_mode]
