"""The types of elements under tinygrad's names: `dtypes.float32`, `dtypes.int` ...

Wherever a dtype is asked for its name will do: `x.cast("half")`. There are no weak types: a number of Python takes the
type of the tensor that it meets. Of the eight-bit floats there are the two of OCP.
"""
from builtins import bool as _bool, float as _float, int as _int

from outboard import _core
from outboard._core import DType, promote


def _default(kind: str, is_kind: str, get, set_) -> property:
    """A default that can be set by a dtype or its name. ValueError: none of the kind."""

    def change(cls, dtype: "DType | str") -> None:
        dtype = to_dtype(dtype)
        if not getattr(cls, is_kind)(dtype):
            raise ValueError(f"{dtype} is no {kind}")
        set_(dtype)

    return property(lambda cls: get(), change)


class _DTypes(type):
    """What can be set of `dtypes`: the defaults, for tensors made from then on, in all threads of the process."""

    # What a float of Python is in a tensor of its own, and an integer that becomes a float.
    default_float = _default("float", "is_float", _core.default_float, _core.set_default_float)
    # What an int of Python is in a tensor of its own.
    default_int = _default("integer", "is_int", _core.default_int, _core.set_default_int)

    def __setattr__(cls, name, value):
        if not isinstance(vars(_DTypes).get(name), property):
            raise AttributeError(f"dtypes.{name} cannot be changed")
        super().__setattr__(name, value)


class dtypes(metaclass=_DTypes):
    """The dtypes, and groups of them: `dtypes.floats`, `ints`, `uints`, `sints`, `all`.

    default_float and default_int may be set; everything else is fixed (AttributeError).
    """
    bool = DType.bool
    int8 = char = DType.int8
    uint8 = uchar = DType.uint8
    int16 = short = DType.int16
    uint16 = ushort = DType.uint16
    int32 = int = DType.int32
    uint32 = uint = DType.uint32
    int64 = long = DType.int64
    uint64 = ulong = DType.uint64
    fp8e4m3 = DType.fp8e4m3
    fp8e5m2 = DType.fp8e5m2
    float16 = half = DType.float16
    bfloat16 = DType.bfloat16
    float32 = float = DType.float32
    float64 = double = DType.float64

    fp8s = fp8_ocp = (fp8e4m3, fp8e5m2)
    floats = (*fp8s, float16, bfloat16, float32, float64)
    int8s = (uint8, int8)
    int16s = (uint16, int16)
    int32s = (uint32, int32)
    int64s = (uint64, int64)
    uints = (uint8, uint16, uint32, uint64)
    sints = (int8, int16, int32, int64)
    ints = uints + sints
    all = (*floats, *ints, bool)

    @staticmethod
    def is_float(x: DType) -> _bool:
        """Whether x is a float of any size."""
        return x in dtypes.floats

    @staticmethod
    def is_int(x: DType) -> _bool:
        """Whether x is an integer, signed or not. bool is none."""
        return x in dtypes.ints

    @staticmethod
    def is_unsigned(x: DType) -> _bool:
        """Whether x is an integer without a sign."""
        return x in dtypes.uints

    @staticmethod
    def is_bool(x: DType) -> _bool:
        """Whether x is bool."""
        return x == DType.bool

    @staticmethod
    def from_py(x) -> DType:
        """The type of a tensor made of these numbers. Raises RuntimeError for what is no number."""
        if isinstance(x, _bool):
            return DType.bool
        if isinstance(x, _float):
            return dtypes.default_float
        if isinstance(x, _int):
            return dtypes.default_int
        if isinstance(x, (list, tuple)):
            return least_upper_dtype(*map(dtypes.from_py, x)) if x else dtypes.default_float
        raise RuntimeError(f"{type(x).__name__} is no number: what dtype has {x!r}?")

    @staticmethod
    def finfo(dtype: DType) -> tuple[_int, _int]:
        """Bits of the exponent and of the mantissa. Raises ValueError for what is no float."""
        bits = {"fp8e4m3": (4, 3), "fp8e5m2": (5, 2), "float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23),
                "float64": (11, 52)}.get(dtype.name)
        if bits is None:
            raise ValueError(f"{dtype} is no float")
        return bits


def least_upper_dtype(*types: DType) -> DType:
    """The smallest type that holds all of these. Raises TypeError where there is none: uint64 with a signed one."""
    result = types[0]
    for other in types[1:]:
        result = promote(result, other)
    return result


def to_dtype(dtype: DType | str) -> DType:
    """A dtype, by itself or by its name. Raises AttributeError for another name."""
    return dtype if isinstance(dtype, DType) else getattr(dtypes, dtype.lower())
