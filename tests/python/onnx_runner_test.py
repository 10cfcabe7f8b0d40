"""outboard.onnx around the operators: what is refused and when, files in parts, functions, constants, inputs."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from outboard import Error, Tensor
from outboard.onnx import OnnxRunner, UnsupportedModel
from outboard.onnx.values import Constant


def model(text: str, head: str = 'ir_version: 8, opset_import: ["" : 17]') -> bytes:
    return onnx.parser.parse_model(f"<{head}>\n{text}").SerializeToString()


def with_initialiser(tensor: TensorProto) -> onnx.ModelProto:
    """y = x + w."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
    tensor.name = "w"
    return helper.make_model(helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [tensor]))


def run(text: str, **inputs) -> list:
    results = OnnxRunner(model(text))(inputs).values()
    return [result.tolist() for result in results]


def test_all_that_is_missing_is_named_at_load() -> None:
    text = """g (float[n] x) => (float[n] y) {
      a = Nonsense (x)
      b = Nonsense (a)
      c = Softmax <direction = 3> (b)
      y = Another (c)
    }"""
    with pytest.raises(UnsupportedModel) as raised:
        OnnxRunner(model(text))
    for what in ("Nonsense of version 17 (2x)", "Another of version 17 (1x)", "Softmax with the attribute direction"):
        assert what in str(raised.value)
    assert isinstance(raised.value, NotImplementedError)


def test_ranges_are_computed_in_their_type() -> None:
    text = """g (%s a, %s b, %s c) => (%s[n] y) { y = Range (a, b, c) }"""
    doubles = run(text % (("double",) * 4), a=np.float64(0), b=np.float64(1), c=np.float64(0.1))[0]
    assert doubles == [i * 0.1 for i in range(10)]
    first = 2**60 + 1
    wide = run(text % (("int64",) * 4), a=np.int64(first), b=np.int64(first - 2**62), c=np.int64(-2**61 + 1))[0]
    assert wide == list(range(first, first - 2**62, -2**61 + 1))


def test_missing_in_a_branch() -> None:
    text = """g (bool c, float[n] x) => (float[n] y) {
      y = If (c) <
        then_branch = t () => (float[n] a) { a = Nonsense (x) },
        else_branch = e () => (float[n] b) { b = Abs (x) }>
    }"""
    with pytest.raises(UnsupportedModel, match="Nonsense"):
        OnnxRunner(model(text))


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_damaged_file(cut: int, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model("g (float[n] x) => (float[n] y) { y = Abs (x) }")[:-cut])
    with pytest.raises(ValueError):
        OnnxRunner(path)


def test_empty_and_absent_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    with pytest.raises(ValueError, match="empty"):
        OnnxRunner(tmp_path / "m.onnx")
    with pytest.raises(FileNotFoundError):
        OnnxRunner(tmp_path / "none.onnx")


@pytest.mark.parametrize("dims", [[2], [4], [-3], [2**62, 4], [3, 3]])
def test_data_that_does_not_fit_its_shape(dims: list[int]) -> None:
    tensor = numpy_helper.from_array(np.zeros(3, np.float32))
    tensor.ClearField("dims")
    tensor.dims.extend(dims)
    with pytest.raises(ValueError, match="'w'"):
        OnnxRunner(with_initialiser(tensor).SerializeToString())


def external(tmp_path: pathlib.Path, **where: str) -> pathlib.Path:
    folder = tmp_path / "model"
    folder.mkdir()
    np.arange(8, dtype=np.float32).tofile(folder / "data.bin")
    np.arange(8, dtype=np.float32).tofile(tmp_path / "secret.bin")
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in where.items():
        tensor.external_data.add(key=key, value=value)
    onnx.save(with_initialiser(tensor), folder / "m.onnx")
    return folder / "m.onnx"


def test_data_in_another_file(tmp_path: pathlib.Path) -> None:
    runner = OnnxRunner(external(tmp_path, location="data.bin", offset="8", length="16"))
    assert runner({"x": Tensor([1.0])})["y"].tolist() == [3, 4, 5, 6]


@pytest.mark.parametrize(
    "where",
    [
        {"location": "../secret.bin"},
        {"location": "/etc/passwd"},
        {"location": "data.bin", "offset": "20"},
        {"location": "data.bin", "length": "12"},
        {"location": "data.bin", "offset": "-4"},
    ],
)
def test_data_in_a_file_where_it_cannot_be(where: dict[str, str], tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="'w'"):
        OnnxRunner(external(tmp_path, **where))


def test_external_data_needs_the_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="path"):
        OnnxRunner(external(tmp_path, location="data.bin").read_bytes())


def test_functions_of_the_model() -> None:
    body = [
        onnx.parser.parse_node("t = Constant <value_float: float = @scale> ()"),
        helper.make_node("Mul", ["a", "t"], ["b"]),
    ]
    function = helper.make_function("mine", "Scaled", ["a"], ["b"], body, [helper.make_opsetid("", 17)], ["scale"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    nodes = [
        helper.make_node("Scaled", ["x"], ["h"], domain="mine", scale=3.0),
        helper.make_node("Scaled", ["h"], ["y"], domain="mine", scale=0.5),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    made = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), functions=[function], opset_imports=imports)
    assert OnnxRunner(made.SerializeToString())({"x": [2.0]})["y"].tolist() == [3.0]


def test_function_that_calls_itself() -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    body = [helper.make_node("F", ["a"], ["b"], domain="mine")]
    function = helper.make_function("mine", "F", ["a"], ["b"], body, imports)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="mine")], "g", [x], [y])
    made = helper.make_model(graph, functions=[function], opset_imports=imports)
    with pytest.raises(ValueError, match="calls itself"):
        OnnxRunner(made.SerializeToString())


def test_shapes_are_computed_here() -> None:
    """What Reshape needs is known although its inputs went through six operators."""
    text = """g (float[n, m] x) => (float[a, b] y) {
      s = Shape (x)
      zero = Constant <value = int64 {0}> ()
      one = Constant <value_ints = [1]> ()
      n = Gather <axis = 0> (s, zero)
      axes = Constant <value_ints = [0]> ()
      rows = Unsqueeze (n, axes)
      half = Constant <value_ints = [2]> ()
      less = Div (rows, half)
      rest = Constant <value_ints = [-1]> ()
      shape = Concat <axis = 0> (less, rest)
      y = Reshape (x, shape)
    }"""
    runner = OnnxRunner(model(text))
    values = runner.graph.run({"x": Tensor.zeros(4, 3)})
    assert tuple(values[0].shape) == (2, 6)
    shape = OnnxRunner(model(text.replace("float[a, b] y", "int64[k] shape")))
    assert isinstance(shape.graph.run({"x": Tensor.zeros(4, 3)})[0], Constant)


def test_a_loop_that_sees_what_is_around_it() -> None:
    text = """g (int64 n, float[k] x) => (float[k] y, float[n, k] all) {
      yes = Constant <value = bool {1}> ()
      y, all = Loop (n, yes, x) <body = b (int64 i, bool c, float[k] h) => (bool go, float[k] next, float[k] seen) {
        go = Identity (c)
        next = Add (h, x)
        seen = Identity (next)
      }>
    }"""
    y, every = run(text, n=np.array(3), x=np.array([1.0, 2.0], np.float32))
    assert y == [4, 8]
    assert every == [[2, 4], [3, 6], [4, 8]]


def test_inputs() -> None:
    runner = OnnxRunner(model("g (float[n, 2] x, float[n] z) => (float[n] y) { y = Identity (z) }"))
    assert runner.graph_outputs == ("y",)
    assert runner.graph_inputs["x"].shape == ("n", 2)
    good = {"x": Tensor.zeros(3, 2), "z": Tensor.zeros(3)}
    runner(good)
    for wrong, word in [
        ({"x": good["x"]}, "z"),
        ({**good, "w": good["z"]}, "w"),
        ({**good, "x": Tensor.zeros(3, 3)}, "x"),
        ({**good, "z": Tensor.zeros(4)}, "z"),
        ({**good, "x": Tensor.zeros(3)}, "x"),
    ]:
        with pytest.raises(RuntimeError, match=word):
            runner(wrong)
    with pytest.warns(UserWarning, match="z"):
        runner({**good, "z": np.zeros(3)})


def test_an_error_says_where() -> None:
    runner = OnnxRunner(model("g (float[n] x, float[m] z) => (float[n] y) { y = MatMul (x, z) }"))
    with pytest.raises(Error) as raised:
        runner({"x": Tensor.zeros(3), "z": Tensor.zeros(4)})
    assert pathlib.Path(__file__).name in str(raised.value)
    assert raised.value.__notes__ == ["in the node MatMul(x, z) -> y"]


def test_results_are_tensors_to_go_on_with() -> None:
    runner = OnnxRunner(model("g (float[n] x) => (float[n] y) { y = Mul (x, x) }"))
    x = Tensor([1.0, 2.0, 3.0])
    (gradient,) = runner({"x": x})["y"].sum().gradient(x)
    assert gradient.tolist() == [2, 4, 6]
