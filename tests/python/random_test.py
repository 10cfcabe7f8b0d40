"""Random tensors: the same for a seed, of the distributions that they are named after."""
import numpy as np
import pytest

from outboard import Tensor, dtypes

MAKERS = {
    "rand": lambda: Tensor.rand(40), "randn": lambda: Tensor.randn(5, 8), "uniform": lambda: Tensor.uniform(40, low=2, high=5),
    "normal": lambda: Tensor.normal(40, mean=1, std=2), "randint": lambda: Tensor.randint(40, low=-5, high=100),
    "scaled_uniform": lambda: Tensor.scaled_uniform(5, 8), "glorot_uniform": lambda: Tensor.glorot_uniform(5, 8),
    "kaiming_uniform": lambda: Tensor.kaiming_uniform(5, 8), "kaiming_normal": lambda: Tensor.kaiming_normal((5, 8)),
    "randperm": lambda: Tensor.randperm(40),
    "multinomial": lambda: Tensor.ones(5, 20).multinomial(8), "multinomial again": lambda: Tensor.ones(9).multinomial(40, True),
    "rand_like": lambda: Tensor.zeros(5, 8).rand_like(), "randn_like": lambda: Tensor.zeros(5, 8).randn_like(),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_seed_fixes_the_numbers(name):
    Tensor.manual_seed(42)
    first, second = MAKERS[name]().numpy(), MAKERS[name]().numpy()
    Tensor.manual_seed(42)
    np.testing.assert_array_equal(MAKERS[name]().numpy(), first)
    Tensor.manual_seed(43)
    assert first.size == 40 and not np.array_equal(first, second) and not np.array_equal(MAKERS[name]().numpy(), first)


@pytest.mark.parametrize("make, mean, std, low, high", [
    (lambda n: Tensor.rand(n), 0.5, 12 ** -0.5, 0, 1),
    (lambda n: Tensor.randn(n), 0, 1, -9, 9),
    (lambda n: Tensor.uniform(n, low=-1, high=3), 1, 4 / 12 ** 0.5, -1, 3),
    (lambda n: Tensor.normal(n, mean=5, std=0.5), 5, 0.5, 0, 9),
    (lambda n: Tensor.randint(n, low=1, high=7), 3.5, (35 / 12) ** 0.5, 1, 6),
    (lambda n: Tensor.scaled_uniform(n), 0, 60000 ** -0.5, -0.00708, 0.00708),
    (lambda n: Tensor.glorot_uniform(n // 20, 20), 0, (2 / 1020) ** 0.5, -0.0767, 0.0767),
    (lambda n: Tensor.kaiming_uniform(n // 10, 10, a=0), 0, 0.2 ** 0.5, -0.775, 0.775),
    (lambda n: Tensor.kaiming_normal(n // 10, 10, a=0), 0, 0.2 ** 0.5, -3, 3)])
def test_distributions(make, mean, std, low, high):
    Tensor.manual_seed(7)
    values = make(20000).numpy()
    assert values.mean() == pytest.approx(mean, abs=0.03 * std)
    assert values.std() == pytest.approx(std, rel=0.03)
    assert low <= values.min() and values.max() <= high


def test_integers_reach_both_ends():
    Tensor.manual_seed(1)
    assert set(Tensor.randint(500, low=-2, high=3).tolist()) == {-2, -1, 0, 1, 2}
    assert set(Tensor.randint(500).tolist()) == set(range(10))
    assert set(Tensor.uniform(500, low=-2, high=3, dtype="int").tolist()) == {-2, -1, 0, 1, 2}
    bytes_ = Tensor.randint((50, 100), low=0, high=256, dtype="uint8")
    assert bytes_.dtype == dtypes.uint8 and bytes_.shape == (50, 100) and bytes_.max().item() == 255


def test_permutations_and_samples():
    assert sorted(Tensor.randperm(30).tolist()) == list(range(30)) and Tensor.randperm(3, dtype="int64").dtype == dtypes.int64
    weights = Tensor([[0.0, 1, 0, 3], [2, 0, 5, 0]])
    assert [sorted(row) for row in weights.multinomial(2).tolist()] == [[1, 3], [0, 2]]
    drawn = np.bincount(Tensor([0, 1, 3]).multinomial(4000, replacement=True).numpy(), minlength=3)
    np.testing.assert_allclose(drawn / 4000, [0, 0.25, 0.75], atol=0.03)
    with pytest.raises(ValueError):
        Tensor([1.0, 2.0]).multinomial(3)


def test_types_and_shapes():
    assert Tensor.rand(2, 3).shape == Tensor.rand((2, 3)).shape == (2, 3) and Tensor.rand().shape == ()
    assert Tensor.rand(2, dtype="half").dtype == dtypes.half and Tensor.randn(2, dtype=dtypes.float64).dtype == dtypes.float64
    x = Tensor.zeros(2, 3, dtype="bfloat16")
    assert x.rand_like().dtype == dtypes.bfloat16 and x.rand_like(dtype="float32").dtype == dtypes.float32
    assert Tensor([1, 2]).randn_like().dtype == dtypes.int32


@pytest.mark.parametrize("call", [lambda: Tensor.rand(2, dtype="int"), lambda: Tensor.randint(2, low=3, high=2),
                                  lambda: Tensor.uniform(2, low=1, high=1), lambda: Tensor.normal(2, std=-1),
                                  lambda: Tensor.rand(-1), lambda: Tensor([1]).rand_like(), lambda: Tensor([1.0]).dropout(2)])
def test_mistakes(call):
    with pytest.raises(ValueError):
        call()


def test_bounds_are_whole_numbers():
    with pytest.raises(TypeError):
        Tensor.randint(2, low=0.5)


def test_dropout_is_nothing_outside_of_training():
    x = Tensor.ones(100)
    assert x.dropout(0.5).tolist() == [1] * 100 and x.dropout(0).tolist() == [1] * 100
