"""dtypes, from where tinygrad programs import them: another name of `outboard.dtypes`."""
from outboard.dtypes import DType, dtypes, least_upper_dtype, to_dtype

__all__ = ["DType", "dtypes", "least_upper_dtype", "to_dtype"]
