// Tensors of another shape with the same elements.

#include "absl/strings/str_cat.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

// {before, after} of each axis from ((1, 2), None, (0, 1)), where None leaves an axis as it is:
// pad's is (0, 0), shrink's (0, n).
SymIntPairs PairsOf(nb::handle object, const Tensor& tensor, bool whole, const At& at) {
  SymIntPairs pairs;
  int64_t axis = 0;
  for (const nb::handle item : object) {
    if (item.is_none()) {
      pairs.emplace_back(0, whole ? tensor.size(axis, at) : SymInt(0));
    } else {
      pairs.push_back(PairOf(item));
    }
    ++axis;
  }
  return pairs;
}

// As shape says, where None keeps a dimension.
SymShape SizesKeeping(const Tensor& x, const nb::args& shape, const At& at) {
  SymShape sizes;
  for (const nb::handle item : ItemsOf(shape)) {
    const std::optional<SymInt> size =
        item.is_none() ? x.size(static_cast<int64_t>(sizes.size()), at) : SizeOf(item);
    if (!size) throw nb::type_error("a shape has ints");
    sizes.push_back(*size);
  }
  return sizes;
}

Tensor Reshape(const Tensor& x, const nb::args& shape) {
  const At at = Here();
  return x.reshape(SizesKeeping(x, shape, at), at);
}

Tensor Unflatten(const Tensor& x, int64_t dim, const Dims& sizes) {
  const At at = Here();
  const int rank = x.rank(at);
  if (dim < -rank || dim >= rank)
    ThrowInvalid(at, absl::StrCat("unflatten: no axis ", dim, " in ", rank));
  SymShape shape;
  for (int axis = 0; axis < rank; ++axis) {
    if (axis == (dim + rank) % rank)
      shape.insert(shape.end(), sizes.begin(), sizes.end());
    else
      shape.push_back(x.size(axis, at));
  }
  return x.reshape(shape, at);
}

Tensor ShrinkTo(const Tensor& x, const nb::args& shape) {
  const At at = Here();
  SymIntPairs ranges;
  for (const SymInt& size : SizesKeeping(x, shape, at)) ranges.emplace_back(0, size);
  return x.shrink(ranges, at);
}

Tensor PadTo(const Tensor& x, const nb::args& shape, double value) {
  const At at = Here();
  SymIntPairs sides;
  for (const SymInt& size : SizesKeeping(x, shape, at)) {
    const auto axis = static_cast<int64_t>(sides.size());
    if (axis >= x.rank(at)) ThrowInvalid(at, "pad_to: more sizes than axes");
    sides.emplace_back(0, size - x.size(axis, at));
  }
  return x.pad(sides, value, at);
}

}  // namespace

void BindMovement(nb::module_&, TensorClass& tensor) {
  tensor
      .def("reshape", &Reshape, "shape"_a,
           "Of the same elements; one dimension may be -1, None keeps one.")
      .def("view", &Reshape, "shape"_a, "Another name of reshape.")
      .def(
          "flatten",
          [](const Tensor& x, int64_t first, int64_t last) {
            return x.flatten(first, last, Here());
          },
          "start_dim"_a = 0, "end_dim"_a = -1)
      .def(
          "unsqueeze", [](const Tensor& x, int64_t dim) { return x.unsqueeze(dim, Here()); },
          "dim"_a)
      .def(
          "squeeze",
          [](const Tensor& x, std::optional<int64_t> dim) {
            return dim ? x.squeeze(*dim, Here()) : x.squeeze(Here());
          },
          "dim"_a = nb::none())
      .def(
          "expand",
          [](const Tensor& x, const nb::args& shape) { return x.expand(SizesOf(shape), Here()); },
          "shape"_a)
      .def(
          "permute",
          [](const Tensor& x, const nb::args& order) { return x.permute(DimsOf(order), Here()); },
          "order"_a)
      .def(
          "transpose",
          [](const Tensor& x, int64_t a, int64_t b) { return x.transpose(a, b, Here()); },
          "dim0"_a = 1, "dim1"_a = 0)
      .def_prop_ro("T", [](const Tensor& x) { return x.transpose(-2, -1, Here()); })
      .def(
          "flip",
          [](const Tensor& x, const nb::args& axis) { return x.flip(Axes(DimsOf(axis)), Here()); },
          "axis"_a)
      .def(
          "shrink",
          [](const Tensor& x, nb::handle arg) {
            return x.shrink(PairsOf(arg, x, true, Here()), Here());
          },
          "arg"_a, "The part [begin, end) of each axis; None keeps one whole.")
      .def("unflatten", &Unflatten, "dim"_a, "sizes"_a)
      .def("shrink_to", &ShrinkTo, "shape"_a,
           "The first so many of each axis; None keeps one whole.")
      .def("pad_to", &PadTo, "shape"_a, "value"_a = 0.0, "With `value` behind what is there.")
      .def(
          "repeat",
          [](const Tensor& x, const nb::args& repeats) {
            return x.repeat(DimsOf(repeats), Here());
          },
          "repeats"_a)
      .def(
          "split",
          [](const Tensor& x, const std::variant<int64_t, Dims>& sizes, int64_t dim) {
            const At at = Here();
            const std::vector<Tensor> parts =
                std::visit([&](const auto& size) { return x.split(size, dim, at); }, sizes);
            nb::list list;
            for (const Tensor& part : parts) list.append(part);
            return nb::tuple(list);
          },
          "sizes"_a, "dim"_a = 0)
      .def(
          "chunk",
          [](const Tensor& x, int64_t chunks, int64_t dim) { return x.chunk(chunks, dim, Here()); },
          "chunks"_a, "dim"_a = 0)
      .def(
          "cat",
          [](const Tensor& x, const nb::args& others, int64_t dim) {
            std::vector<Tensor> parts = {x};
            for (const nb::handle other : others) parts.push_back(nb::cast<Tensor>(other));
            return Tensor::cat(parts, dim, Here());
          },
          "args"_a, "dim"_a = 0)
      .def(
          "stack",
          [](const Tensor& x, const nb::args& others, int64_t dim) {
            std::vector<Tensor> parts = {x};
            for (const nb::handle other : others) parts.push_back(nb::cast<Tensor>(other));
            return Tensor::stack(parts, dim, Here());
          },
          "args"_a, "dim"_a = 0);
}

}  // namespace outboard::python
