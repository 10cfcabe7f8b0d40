// Tensors of another shape with the same elements.

#include "absl/strings/str_cat.h"
#include "client/lazy/call_site.h"
#include "client/lazy/items.h"
#include "client/ops/index/part_of.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using internal::ViewOf;
using namespace nb::literals;  // NOLINT
namespace {

// {before, after} of each axis from ((1, 2), None, (0, 1)), where None leaves an axis as it is:
// pad's is (0, 0), shrink's (0, n).
SymIntPairs PairsOf(nb::handle object, const Tensor& tensor, bool whole) {
  SymIntPairs pairs;
  int64_t axis = 0;
  for (const nb::handle item : object) {
    if (item.is_none()) {
      pairs.emplace_back(0, whole ? tensor.size(axis) : SymInt(0));
    } else {
      pairs.push_back(PairOf(item));
    }
    ++axis;
  }
  return pairs;
}

// As shape says, where None keeps a dimension.
SymShape SizesKeeping(const Tensor& x, const nb::args& shape) {
  SymShape sizes;
  for (const nb::handle item : ItemsOf(shape)) {
    const std::optional<SymInt> size =
        item.is_none() ? x.size(static_cast<int64_t>(sizes.size())) : SizeOf(item);
    if (!size) throw nb::type_error("a shape has ints");
    sizes.push_back(*size);
  }
  return sizes;
}

// Views (client/ops/index/part_of.h): each with the movement that undoes it.
template <typename Read>
Tensor Reshaped(const Tensor& x, Read read) {
  return ViewOf(x, read, [](const Tensor& whole, const Tensor& value) {
    return value.reshape(SizesOfTensor(whole));
  });
}

template <typename Read>
Tensor SelfInverse(const Tensor& x, Read read) {
  return ViewOf(x, read, [read](const Tensor&, const Tensor& value) { return read(value); });
}

Tensor Reshape(const Tensor& x, const nb::args& shape) {
  return Reshaped(x,
                  [sizes = SizesKeeping(x, shape)](const Tensor& of) { return of.reshape(sizes); });
}

Tensor Transpose(const Tensor& x, int64_t a, int64_t b) {
  return SelfInverse(x, [=](const Tensor& of) { return of.transpose(a, b); });
}

Tensor Permute(const Tensor& x, const nb::args& order) {
  const Dims axes = DimsOf(order);
  return ViewOf(
      x, [axes](const Tensor& of) { return of.permute(axes); },
      [axes](const Tensor& whole, const Tensor& value) {
        const auto rank = static_cast<int64_t>(axes.size());
        Dims back(axes.size());
        for (int64_t i = 0; i < rank; ++i) back[(axes[i] % rank + rank) % rank] = i;
        return value.permute(back);
      });
}

Tensor Expand(const Tensor& x, const nb::args& shape) {
  return ViewOf(
      x, [sizes = SizesOf(shape)](const Tensor& of) { return of.expand(sizes); },
      [](const Tensor& whole, const Tensor& value) -> Tensor {
        if (value.numel() == whole.numel()) return value.reshape(SizesOfTensor(whole));
        ThrowIfError(absl::FailedPreconditionError(
            "a write to an expanded tensor, of which several elements are one; contiguous() is a "
            "copy that can be written to"));
        return whole;
      });
}

Tensor Flip(const Tensor& x, const nb::args& axis) {
  return SelfInverse(x, [axes = Axes(DimsOf(axis))](const Tensor& of) { return of.flip(axes); });
}

// x.reshape(shape=(2, 3)), where Python's *shape would take no name.
template <Tensor (*movement)(const Tensor&, const nb::args&)>
Tensor ByName(const Tensor& x, nb::handle sizes) {
  return movement(x, nb::borrow<nb::args>(nb::make_tuple(sizes)));
}

// The part of x in `ranges`, [begin, end) of each axis.
Tensor Shrink(const Tensor& x, const SymIntPairs& ranges) {
  return ViewOf(
      x, [ranges](const Tensor& of) { return of.shrink(ranges); },
      [ranges](const Tensor& whole, const Tensor& value) {
        std::vector<Index> places;
        for (const auto& [begin, end] : ranges) places.emplace_back(Slice{begin, end});
        return with_items(whole, places, value);
      });
}

Tensor Unflatten(const Tensor& x, int64_t dim, const Dims& sizes) {
  const int rank = x.rank();
  if (dim < -rank || dim >= rank)
    ThrowInvalid(absl::StrCat("unflatten: no axis ", dim, " in ", rank), Mistake::kIndex);
  SymShape shape;
  for (int axis = 0; axis < rank; ++axis) {
    if (axis == (dim + rank) % rank)
      shape.insert(shape.end(), sizes.begin(), sizes.end());
    else
      shape.push_back(x.size(axis));
  }
  return Reshaped(x, [shape](const Tensor& of) { return of.reshape(shape); });
}

Tensor ShrinkTo(const Tensor& x, const nb::args& shape) {
  SymIntPairs ranges;
  for (const SymInt& size : SizesKeeping(x, shape)) ranges.emplace_back(0, size);
  return Shrink(x, ranges);
}

Tensor PadTo(const Tensor& x, const nb::args& shape, double value) {
  SymIntPairs sides;
  for (const SymInt& size : SizesKeeping(x, shape)) {
    const auto axis = static_cast<int64_t>(sides.size());
    if (axis >= x.rank()) ThrowInvalid("pad_to: more sizes than axes");
    sides.emplace_back(0, size - x.size(axis));
  }
  return x.pad(sides, value);
}

// The parts of x along an axis, from lengths that add up to its own.
nb::tuple Parts(const Tensor& x, const std::vector<Tensor>& parts, int64_t dim) {
  const int64_t axis = dim < 0 ? dim + x.rank() : dim;
  nb::list list;
  SymInt begin = 0;
  for (const Tensor& part : parts) {
    const SymInt end = begin + part.size(axis);
    SymIntPairs ranges;
    for (int i = 0; i < x.rank(); ++i)
      i == axis ? ranges.emplace_back(begin, end) : ranges.emplace_back(0, x.size(i));
    list.append(internal::Lasts(*x.value()) ? Shrink(x, ranges) : part);
    begin = end;
  }
  return nb::tuple(list);
}

}  // namespace

void BindMovement(nb::module_&, TensorClass& tensor) {
  tensor
      .def("reshape", &Reshape, "shape"_a,
           "Of the same elements; one dimension may be -1, None keeps one.")
      .def("reshape", &ByName<&Reshape>, "shape"_a)
      .def("view", &Reshape, "shape"_a, "Another name of reshape.")
      .def("view", &ByName<&Reshape>, "shape"_a)
      .def(
          "flatten",
          [](const Tensor& x, int64_t first, int64_t last) {
            return Reshaped(x, [=](const Tensor& of) { return of.flatten(first, last); });
          },
          "start_dim"_a = 0, "end_dim"_a = -1,
          "The axes from start_dim to end_dim become one.")
      .def(
          "unsqueeze",
          [](const Tensor& x, int64_t dim) {
            return Reshaped(x, [=](const Tensor& of) { return of.unsqueeze(dim); });
          },
          "dim"_a,
          "With a new axis of length 1 at `dim`.")
      .def(
          "squeeze",
          [](const Tensor& x, std::optional<int64_t> dim) {
            return Reshaped(
                x, [=](const Tensor& of) { return dim ? of.squeeze(*dim) : of.squeeze(); });
          },
          "dim"_a = nb::none(),
          "Without axis `dim`, or all axes, of length 1.")
      .def("expand", &Expand, "shape"_a,
           "Axes of length 1 stretched, with new ones in front; -1 keeps one. Nothing is copied.")
      .def("expand", &ByName<&Expand>, "shape"_a)
      .def("permute", &Permute, "order"_a, "The axes in another order.")
      .def("permute", &ByName<&Permute>, "order"_a)
      .def("transpose", &Transpose, "dim0"_a = 1, "dim1"_a = 0, "Two axes swapped.")
      .def_prop_ro("T", [](const Tensor& x) { return Transpose(x, -2, -1); })
      .def("flip", &Flip, "axis"_a, "The other way round along the axes.")
      .def("flip", &ByName<&Flip>, "axis"_a)
      .def(
          "shrink",
          [](const Tensor& x, nb::handle arg) { return Shrink(x, PairsOf(arg, x, true)); }, "arg"_a,
          "The part [begin, end) of each axis; None keeps one whole.")
      .def("unflatten", &Unflatten, "dim"_a, "sizes"_a, "Axis `dim` becomes axes of these sizes.")
      .def("shrink_to", &ShrinkTo, "shape"_a,
           "The first so many of each axis; None keeps one whole.")
      .def("pad_to", &PadTo, "shape"_a, "value"_a = 0.0, "With `value` behind what is there.")
      .def(
          "repeat",
          [](const Tensor& x, const nb::args& repeats) { return x.repeat(DimsOf(repeats)); },
          "repeats"_a,
          "So many times along each axis.")
      .def(
          "split",
          [](const Tensor& x, const std::variant<int64_t, Dims>& sizes, int64_t dim) {
            const std::vector<Tensor> parts =
                std::visit([&](const auto& size) { return x.split(size, dim); }, sizes);
            return Parts(x, parts, dim);
          },
          "sizes"_a, "dim"_a = 0,
          "Parts along an axis: of one length, the last may be shorter, or of these lengths.")
      .def(
          "chunk",
          [](const Tensor& x, int64_t chunks, int64_t dim) {
            return nb::list(Parts(x, x.chunk(chunks, dim), dim));
          },
          "chunks"_a, "dim"_a = 0,
          "At most so many parts of equal length along an axis; the last may be shorter.")
      .def(
          "cat",
          [](const Tensor& x, const nb::args& others, int64_t dim) {
            std::vector<Tensor> parts = {x};
            for (const nb::handle other : others) parts.push_back(nb::cast<Tensor>(other));
            return Tensor::cat(parts, dim);
          },
          "args"_a, "dim"_a = 0,
          "One behind the other along an axis; the other axes are equal.")
      .def(
          "stack",
          [](const Tensor& x, const nb::args& others, int64_t dim) {
            std::vector<Tensor> parts = {x};
            for (const nb::handle other : others) parts.push_back(nb::cast<Tensor>(other));
            return Tensor::stack(parts, dim);
          },
          "args"_a, "dim"_a = 0,
          "Tensors of one shape along a new axis.")
      .def(
          "stack",
          [](const nb::sequence& tensors, int64_t dim) {
            std::vector<Tensor> parts;
            for (const nb::handle part : tensors) parts.push_back(nb::cast<Tensor>(part));
            return Tensor::stack(parts, dim);
          },
          "dim"_a = 0, "Tensor.stack([a, b]).");
}

}  // namespace outboard::python
