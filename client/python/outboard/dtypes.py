"""The types of elements under tinygrad's names: `dtypes.float32`, `dtypes.int` ..."""
from outboard._core import DType


class dtypes:
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
    default_float = DType.float32
    default_int = DType.int32
