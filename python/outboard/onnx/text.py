"""Counts of n-grams in lists of integers. Strings are no type of ours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outboard import Tensor, dtypes
from outboard.onnx.registry import op


@op("TfIdfVectorizer")
def tf_idf_vectorizer(
    x: Tensor,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int],
    weights: Sequence[float] | None = None,
) -> Tensor:
    """x [length] or [batch, length]. The pool has 1-grams, then 2-grams ..., from the places `ngram_counts` on."""
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    ends = [*list(ngram_counts)[1:], len(pool_int64s)]
    nothing = Tensor.zeros(rows.shape[0])
    columns: list[Tensor] = []  # in the order of the pool
    for n, (begin, end) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        grams = np.array(pool_int64s[begin:end]).reshape(-1, n)
        for gram in grams:
            counted = min_gram_length <= n <= max_gram_length
            skips = max_skip_count if n > 1 else 0
            columns.append(_count(rows, gram.tolist(), skips) if counted else nothing)
    place_of = {column: i for i, column in enumerate(ngram_indexes)}
    ordered = [columns[place_of[i]] if i in place_of else nothing for i in range(max(ngram_indexes) + 1)]
    counts = Tensor.stack(*ordered, dim=1)
    if mode != "TF":
        scale = [1.0] * len(ordered)
        for i, weight in zip(ngram_indexes, weights or (), strict=False):
            scale[i] = weight
        counts = ((counts > 0).cast(dtypes.float32) if mode == "IDF" else counts) * Tensor(scale)
    return counts.reshape(-1) if x.ndim == 1 else counts


def _count(rows: Tensor, gram: list[int], skips: int) -> Tensor:
    """How often the gram stands in each row, with the same number of elements left out between any two of its own."""
    count, length = Tensor.zeros(rows.shape[0]), rows.shape[1]
    for skip in range(skips + 1):
        places = length - (len(gram) - 1) * (skip + 1)
        if places <= 0:
            break
        found = None
        for i, item in enumerate(gram):
            here = rows[:, i * (skip + 1) : i * (skip + 1) + places] == item
            found = here if found is None else found & here
        count = count + found.cast(dtypes.float32).sum(1)
    return count
