"""Formulas, grids, diagonals and decompositions, against PyTorch and NumPy."""
import numpy as np
import pytest
import torch

from ops import Case
from outboard import Tensor, dtypes


def einsum(formula, *shapes):
    return Case(f"einsum {formula}", list(shapes), lambda *x: Tensor.einsum(formula, *x),
                lambda *x: torch.einsum(formula, *x))


EINSUM = [
    einsum("ij,jk->ik", (2, 3), (3, 4)),
    einsum("ij,jk", (2, 3), (3, 4)),
    einsum("ij,kj->ki", (2, 3), (4, 3)),
    einsum("bij,bjk->bik", (2, 3, 4), (2, 4, 2)),
    einsum("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    einsum("i,i->", (4,), (4,)),
    einsum("i,i", (4,), (4,)),
    einsum("i,j->ij", (3,), (4,)),
    einsum("ij->ji", (2, 3)),
    einsum("ij->", (2, 3)),
    einsum("ij->j", (2, 3)),
    einsum("ij->i", (2, 3)),
    einsum("ijk->kij", (2, 3, 4)),
    einsum("ba", (2, 3)),
    einsum("ii->", (3, 3)),
    einsum("ii->i", (3, 3)),
    einsum("iij->j", (3, 3, 2)),
    einsum("iji->ij", (3, 2, 3)),
    einsum("iii->i", (3, 3, 3)),
    einsum("ij,ij->", (2, 3), (2, 3)),
    einsum("ij,ij->ij", (2, 3), (2, 3)),
    einsum("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    einsum("ab,cd,ef->acebdf", (2, 2), (1, 2), (2, 1)),
    einsum("abc,cd,b->ad", (2, 3, 4), (4, 2), (3,)),
    einsum("...ij,...jk->...ik", (2, 3, 4), (2, 4, 2)),
    einsum("...ij,jk->...ik", (2, 2, 3, 4), (4, 2)),
    einsum("...i,...i->...", (2, 3, 4), (3, 4)),
    einsum("...ij->...ji", (2, 3, 4)),
    einsum("...ij,...jk", (2, 3, 4), (1, 4, 2)),
    einsum("i...->...", (3, 2, 2)),
    einsum("b...d,d->b...", (2, 3, 2, 4), (4,)),
    einsum(" ij , jk -> ik ", (2, 3), (3, 4)),
]


@pytest.mark.parametrize("case", EINSUM, ids=str)
def test_einsum(case):
    case.check()


def test_einsum_of_lists_and_types():
    x = Tensor([[1, 2], [3, 4]])
    assert Tensor.einsum("ij,jk->ik", [x, x]).tolist() == [[7, 10], [15, 22]]
    assert Tensor.einsum("ij,jk->ik", x, x).dtype == dtypes.int32
    assert Tensor.einsum("ij->i", x, dtype=dtypes.float32).dtype == dtypes.float32
    bytes_ = Tensor([100, 100, 100], dtype=dtypes.uint8)
    assert Tensor.einsum("i->", bytes_).item() == 300


@pytest.mark.parametrize("formula", ["ij,jk->ik", "i->i", "ij->k", "ij->ii", "ij->i->j", "i1->i", "ijk->i"])
def test_einsum_errors(formula):
    with pytest.raises(ValueError, match="einsum"):
        Tensor.einsum(formula, Tensor.zeros(2, 3))


def test_einsum_lengths():
    with pytest.raises(ValueError, match="length"):
        Tensor.einsum("ij,jk->ik", Tensor.zeros(2, 3), Tensor.zeros(2, 3))


# ---- rearrange: what numpy's reshape and transpose make of it --------------------------------------------------------

X = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
REARRANGE = [
    ("b c h w -> b h w c", {}, X.transpose(0, 2, 3, 1)),
    ("b c h w -> (b c) h w", {}, X.reshape(6, 4, 6)),
    ("b c h w -> b (h w c)", {}, X.transpose(0, 2, 3, 1).reshape(2, -1)),
    ("b c (h two) w -> b two c h w", {"two": 2}, X.reshape(2, 3, 2, 2, 6).transpose(0, 3, 1, 2, 4)),
    ("b c (h p) (w q) -> b (h w) (p q c)", {"p": 2, "q": 3},
     X.reshape(2, 3, 2, 2, 2, 3).transpose(0, 2, 4, 3, 5, 1).reshape(2, 4, 18)),
    ("... w -> w ...", {}, X.transpose(3, 0, 1, 2)),
    ("b ... -> (b ...)", {}, X.reshape(-1)),
    ("b ... w -> w (...) b", {}, X.transpose(3, 1, 2, 0).reshape(6, 12, 2)),
    ("b c h w -> b 1 c h w ()", {}, X.reshape(2, 1, 3, 4, 6, 1)),
    ("b c h (a b2) -> b c h b2 a", {"a": 2, "b2": 3}, X.reshape(2, 3, 4, 2, 3).transpose(0, 1, 2, 4, 3)),
    ("b c ... -> c b ...", {}, X.transpose(1, 0, 2, 3)),
    ("...->...", {}, X),
]


@pytest.mark.parametrize("formula, sizes, wanted", REARRANGE, ids=[r[0] for r in REARRANGE])
def test_rearrange(formula, sizes, wanted):
    np.testing.assert_array_equal(Tensor(X).rearrange(formula, **sizes).numpy(), wanted)


@pytest.mark.parametrize("formula, sizes", [
    ("a b c d", {}), ("a b c d -> a b c", {}), ("a b c -> c b a", {}), ("a a c d -> a c d", {}), ("(a b c d -> d", {}),
    ("a b c (d e) -> a b c d e", {}), ("a b c (d e) -> a b c d e", {"d": 4}), ("a b c d -> d c b a", {"z": 1}),
    ("a b c d_ -> d_ a b c", {}), ("a (b ...) d -> a b ... d", {}), ("a b c d -> a b c (d", {}),
], ids=str)
def test_rearrange_errors(formula, sizes):
    with pytest.raises(RuntimeError, match="rearrange"):
        Tensor(X).rearrange(formula, **sizes)


# ---- grids and diagonals ---------------------------------------------------------------------------------------------

GRIDS = [
    Case("meshgrid", [(3,), (4,)], lambda x, y: x.meshgrid(y), lambda x, y: torch.meshgrid(x, y, indexing="ij")),
    Case("meshgrid xy", [(3,), (4,)], lambda x, y: x.meshgrid(y, indexing="xy"),
         lambda x, y: torch.meshgrid(x, y, indexing="xy")),
    Case("meshgrid of three", [(3,), (4,), (2,)], lambda x, y, z: Tensor.meshgrid(x, y, z),
         lambda x, y, z: torch.meshgrid(x, y, z, indexing="ij")),
    Case("meshgrid of three, xy", [(3,), (4,), (2,)], lambda x, y, z: x.meshgrid(y, z, indexing="xy"),
         lambda x, y, z: torch.meshgrid(x, y, z, indexing="xy")),
    Case("meshgrid of a scalar", [(3,), ()], lambda x, y: x.meshgrid(y),
         lambda x, y: torch.meshgrid(x, y, indexing="ij")),
    Case("repeat_interleave", [(2, 3)], lambda x: x.repeat_interleave(2)),
    Case("repeat_interleave along 0", [(2, 3)], lambda x: x.repeat_interleave(3, 0)),
    Case("repeat_interleave along -1", [(2, 3)], lambda x: x.repeat_interleave(2, dim=-1)),
    Case("unfold", [(8,)], lambda x: x.unfold(0, 2, 2)),
    Case("unfold with overlap", [(9,)], lambda x: x.unfold(0, 4, 1)),
    Case("unfold of a middle axis", [(2, 7, 3)], lambda x: x.unfold(1, 3, 2)),
    Case("unfold along -1, with gaps", [(3, 3, 8)], lambda x: x.unfold(-1, 2, 3)),
    Case("unfold of all", [(2, 5)], lambda x: x.unfold(1, 5, 1)),
    Case("diag", [(4,)], lambda x: x.diag()),
    Case("diagonal", [(3, 4)], lambda x: x.diagonal()),
    Case("diagonal 1", [(3, 4)], lambda x: x.diagonal(1), lambda x: x.diagonal(1)),
    Case("diagonal 2", [(3, 4)], lambda x: x.diagonal(offset=2)),
    Case("diagonal -1", [(4, 3)], lambda x: x.diagonal(-1)),
    Case("diagonal 5", [(3, 4)], lambda x: x.diagonal(4)),
    Case("diagonal of a batch", [(2, 3, 4)], lambda x: x.diagonal(dim1=1, dim2=2)),
    Case("diagonal of outer axes", [(3, 2, 4)], lambda x: x.diagonal(1, 0, -1)),
    Case("diagonal of axes turned round", [(3, 4)], lambda x: x.diagonal(1, 1, 0)),
    Case("roll", [(5,)], lambda x: x.roll(2, 0)),
    Case("roll back", [(5, 3)], lambda x: x.roll(-1, 0)),
    Case("roll around", [(5, 3)], lambda x: x.roll(12, -1)),
    Case("roll of two axes", [(4, 3)], lambda x: x.roll((1, -1), (0, 1))),
    Case("roll of everything", [(4, 3)], lambda x: x.roll(5)),
    Case("triu", [(3, 4)], lambda x: x.triu()),
    Case("triu 1", [(2, 4, 4)], lambda x: x.triu(1)),
    Case("triu -2", [(5, 4)], lambda x: x.triu(diagonal=-2)),
    Case("tril", [(3, 4)], lambda x: x.tril()),
    Case("tril 1", [(2, 4, 4)], lambda x: x.tril(1)),
    Case("tril -1", [(4, 5)], lambda x: x.tril(diagonal=-1)),
]


@pytest.mark.parametrize("case", GRIDS, ids=str)
def test_grid(case):
    case.check()


@pytest.mark.parametrize("wrong", [
    lambda x: x.unfold(0, 9, 1), lambda x: x.unfold(0, 2, 0), lambda x: x.unfold(0, -1, 1), lambda x: x.diag(),
    lambda x: x.diagonal(dim1=1, dim2=-1), lambda x: x.meshgrid(x), lambda x: x[0].meshgrid(x[0], indexing="ji"),
    lambda x: x.repeat_interleave(-1), lambda x: x.roll((1, 2), 0), lambda x: x[0].triu(),
])
def test_grid_errors(wrong):
    with pytest.raises(RuntimeError):
        wrong(Tensor.zeros(3, 4))


# ---- matrices --------------------------------------------------------------------------------------------------------

SHAPES = [(1, 1), (4, 4), (5, 3), (3, 5), (2, 4, 3), (2, 1, 3), (9, 7)]


def drawn(shape):
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-5)


def unit(x):
    return np.broadcast_to(np.eye(x.shape[-1], dtype=np.float32), x.shape[:-2] + (x.shape[-1],) * 2)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_qr(shape):
    x = drawn(shape)
    q, r = (t.numpy() for t in Tensor(x).qr())
    close(q @ r, x)
    close(np.swapaxes(q, -1, -2) @ q, unit(q))
    assert q.shape == x.shape[:-1] + (x.shape[-2],) and r.shape == x.shape
    assert (np.tril(r, -1) == 0).all()


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_svd(shape, full):
    x = drawn(shape)
    u, s, v = Tensor(x).svd(full_matrices=full)
    Tensor.realize(u, s, v)
    u, s, v = u.numpy(), s.numpy(), v.numpy()
    wanted = np.linalg.svd(x, full_matrices=full)
    assert [y.shape for y in (u, s, v)] == [y.shape for y in wanted]
    close(s, wanted[1])
    k = s.shape[-1]
    close((u[..., :k] * s[..., None, :]) @ v[..., :k, :], x)
    close(np.swapaxes(u, -1, -2) @ u, unit(u))
    close(v @ np.swapaxes(v, -1, -2), unit(np.swapaxes(v, -1, -2)))


def test_svd_of_a_singular_matrix():
    u, s, v = (t.numpy() for t in Tensor(np.ones((4, 3), np.float32)).svd())
    close(s, [12 ** 0.5, 0, 0])
    close(u.T @ u, np.eye(4))
    close(v @ v.T, np.eye(3))


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (2, 3, 4)], ids=str)
def test_newton_schulz(shape):
    x = drawn(shape)
    u, _, v = np.linalg.svd(x, full_matrices=False)
    close(Tensor(x).newton_schulz(steps=30, params=(2, -1.5, 0.5)).numpy(), u @ v)


def test_matrix_errors():
    for wrong in (lambda: Tensor.zeros(3).qr(), lambda: Tensor.zeros(3).svd(), lambda: Tensor([[1, 2]]).qr()):
        with pytest.raises(ValueError):
            wrong()
