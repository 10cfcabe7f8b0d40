"""Models of ONNX, run by the operators of Tensor.

    from outboard.onnx import OnnxRunner
    run = OnnxRunner("model.onnx")
    run({"x": Tensor.rand(1, 3, 224, 224)})["y"].numpy()

docs/onnx.md lists the operators. A model that needs others is refused when it is loaded, by UnsupportedModel, which
names all that is missing. NumPy is needed.
"""

from outboard.onnx.graph import UnsupportedModel
from outboard.onnx.runner import OnnxRunner, OnnxValue
from outboard.onnx.values import UnsupportedType

__all__ = ["OnnxRunner", "OnnxValue", "UnsupportedModel", "UnsupportedType"]
