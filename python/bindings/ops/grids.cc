// Grids, diagonals, windows and turns: elements that move in a pattern.

#include "client/ops/shape/shape.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

nb::tuple MeshGrid(const Tensor& x, const nb::args& others, const std::string& indexing) {
  std::vector<Tensor> parts = {x};
  for (const nb::handle other : others) parts.push_back(nb::cast<Tensor>(other));
  nb::list grids;
  for (const Tensor& grid : meshgrid(parts, indexing)) grids.append(grid);
  return nb::tuple(grids);
}

// An int or a size of a bound Variable.
SymInt DiagonalOf(nb::handle object) {
  const std::optional<SymInt> diagonal = SizeOf(object);
  if (!diagonal) throw nb::type_error("diagonal is an int");
  return *diagonal;
}

}  // namespace

void BindGrids(nb::module_&, TensorClass& tensor) {
  tensor
      .def("meshgrid", &MeshGrid, "args"_a, "indexing"_a = "ij",
           "For each of k tensors of one axis a tensor of k axes, along which its elements run.")
      .def(
          "repeat_interleave",
          [](const Tensor& x, int64_t repeats, std::optional<int64_t> dim) {
            return repeat_interleave(x, repeats, dim);
          },
          "repeats"_a, "dim"_a = nb::none(), "Each element so many times in a row.")
      .def(
          "unfold",
          [](const Tensor& x, int64_t dim, int64_t size, int64_t step) {
            return unfold(x, dim, size, step);
          },
          "dim"_a, "size"_a, "step"_a, "Windows of `size` along an axis, in a new last axis.")
      .def(
          "diag", [](const Tensor& x) { return diag(x); }, "[n] -> [n, n].")
      .def(
          "diagonal",
          [](const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
            return diagonal(x, offset, dim1, dim2);
          },
          "offset"_a = 0, "dim1"_a = 0, "dim2"_a = 1, "The diagonal of two axes, as the last one.")
      .def(
          "roll",
          [](const Tensor& x, const AxisArgument& shifts, const AxisArgument& dims) {
            return x.roll(shifts, dims);
          },
          "shifts"_a, "dims"_a = nb::none(), "Element i goes to i + shift, around the end.")
      .def(
          "triu", [](const Tensor& x, nb::handle diagonal) { return x.triu(DiagonalOf(diagonal)); },
          "diagonal"_a = 0,
          "Zeros below the diagonal of the last two axes.")
      .def(
          "tril", [](const Tensor& x, nb::handle diagonal) { return x.tril(DiagonalOf(diagonal)); },
          "diagonal"_a = 0,
          "Zeros above the diagonal of the last two axes.");
}

}  // namespace outboard::python
