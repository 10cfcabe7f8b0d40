// Convolutions, pools, padding and resizing, over any number of axes whatever their names say.
#include "client/ops/shape/shape.h"
#include "client/ops/window/window.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

using Numbers = std::variant<int64_t, std::vector<int64_t>>;

PerAxis PerAxisOf(const Numbers& numbers) {
  if (const auto* all = std::get_if<int64_t>(&numbers)) return *all;
  return std::get<std::vector<int64_t>>(numbers);
}

// Of a kernel: one number stands for two axes.
Dims KernelOf(const Numbers& numbers) {
  if (const auto* both = std::get_if<int64_t>(&numbers)) return {*both, *both};
  return std::get<std::vector<int64_t>>(numbers);
}

// (last before, last after, the one before it before ...) as one pair for each axis.
Padding SidesOf(const std::vector<int64_t>& flat) {
  std::vector<Padding::Side> sides;
  for (size_t i = flat.size(); i >= 2; i -= 2) sides.emplace_back(flat[i - 2], flat[i - 1]);
  return sides;
}

Padding PaddingOf(const Numbers& numbers, size_t axes) {
  if (const auto* all = std::get_if<int64_t>(&numbers)) return *all;
  const auto& list = std::get<std::vector<int64_t>>(numbers);
  if (list.size() == 2 * axes) return SidesOf(list);
  if (list.size() == axes) return PerAxis(list);
  throw nb::value_error(("padding is an int, or has " + std::to_string(axes) + " or " +
                         std::to_string(2 * axes) + " ints, not " + std::to_string(list.size()))
                            .c_str());
}

size_t KernelAxes(const Tensor& weight) {
  return static_cast<size_t>(std::max(weight.rank() - 2, 0));
}

PoolOptions PoolOptionsOf(const Numbers& kernel, const std::optional<Numbers>& stride,
                          const Numbers& dilation, const Numbers& padding, bool ceil_mode) {
  const Dims axes = KernelOf(kernel);
  return {.kernel = axes,
          .stride = stride ? PerAxisOf(*stride) : PerAxis(),
          .dilation = PerAxisOf(dilation),
          .padding = PaddingOf(padding, axes.size()),
          .ceil_mode = ceil_mode};
}

nb::object MaxPool2d(const Tensor& x, const Numbers& kernel, const std::optional<Numbers>& stride,
                     const Numbers& dilation, const Numbers& padding, bool ceil_mode,
                     bool return_indices) {
  const PoolOptions options = PoolOptionsOf(kernel, stride, dilation, padding, ceil_mode);
  if (!return_indices) return nb::cast(max_pool(x, options));
  const MaxPooled pooled = max_pool_with_places(x, options);
  return nb::make_tuple(pooled.values, pooled.places);
}

Tensor MaxUnpool2d(const Tensor& x, const Tensor& indices, const Numbers& kernel,
                   const std::optional<Numbers>& stride, const Numbers& dilation,
                   const Numbers& padding, const std::optional<std::vector<int64_t>>& output_size) {
  const size_t axes = KernelAxes(x);
  PoolOptions options = {.kernel = PerAxisOf(kernel),
                         .stride = stride ? PerAxisOf(*stride) : PerAxis(),
                         .dilation = PerAxisOf(dilation),
                         .padding = PaddingOf(padding, axes)};
  Dims size;
  if (output_size) {  // of the whole tensor, or of its last axes
    const size_t count = std::min(axes, output_size->size());
    size.assign(output_size->end() - static_cast<int64_t>(count), output_size->end());
  }
  return max_unpool(x, indices, options, size);
}

PadMode PadModeOf(const std::string& name) {
  if (name == "constant") return PadMode::kConstant;
  if (name == "reflect") return PadMode::kReflect;
  if (name == "replicate") return PadMode::kReplicate;
  if (name == "circular") return PadMode::kCircular;
  PyErr_Format(PyExc_NotImplementedError, "pad: no mode %s", name.c_str());
  throw nb::python_error();
}

// ((before, after), None ...), one for each axis; or flat, from the last axis on.
SymIntPairs PairsOf(const Tensor& x, nb::handle padding) {
  SymIntPairs pairs;
  std::vector<SymInt> flat;
  for (const nb::handle item : padding) {
    if (const std::optional<SymInt> size = SizeOf(item)) {
      flat.push_back(*size);
    } else if (item.is_none()) {
      pairs.emplace_back(0, 0);
    } else {
      pairs.push_back(PairOf(item));
    }
  }
  if (flat.empty()) return pairs;
  const auto rank = static_cast<size_t>(x.rank());
  if (!pairs.empty() || flat.size() % 2 != 0 || flat.size() > 2 * rank)
    throw nb::value_error("pad: ints come in pairs, for as many of the last axes");
  pairs.assign(rank - flat.size() / 2, {0, 0});
  for (size_t i = flat.size(); i >= 2; i -= 2) pairs.emplace_back(flat[i - 2], flat[i - 1]);
  return pairs;
}

Interpolation InterpolationOf(const std::string& name) {
  if (name == "linear") return Interpolation::kLinear;
  if (name == "nearest") return Interpolation::kNearest;
  if (name == "nearest-exact") return Interpolation::kNearestExact;
  ThrowInvalid("interpolate: no mode " + name, Mistake::kCheck);
}

void BindConvolutions(TensorClass& tensor) {
  tensor
      .def(
          "conv2d",
          [](const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
             int64_t groups, const Numbers& stride, const Numbers& dilation, const Numbers& padding,
             const DTypeArgument& dtype) {
            return convolution(x, weight, bias.value_or(Tensor()),
                               {.groups = groups,
                                .stride = PerAxisOf(stride),
                                .dilation = PerAxisOf(dilation),
                                .padding = PaddingOf(padding, KernelAxes(weight)),
                                .dtype = dtype.given()});
          },
          "weight"_a, "bias"_a = nb::none(), "groups"_a = 1, "stride"_a = 1, "dilation"_a = 1,
          "padding"_a = 0, "dtype"_a = nb::none(),
          "(B, C, D...) with weight (O, C / groups, K...) and bias (O,) is (B, O, P...), over as "
          "many axes as the\n"
          "kernel has. `padding` is one int, one for each axis, or (last before, last after, "
          "the one before it ...);\n"
          "a negative one cuts. `dtype` is that of the sums and the result.")
      .def(
          "conv_transpose2d",
          [](const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
             int64_t groups, const Numbers& stride, const Numbers& dilation, const Numbers& padding,
             const Numbers& output_padding) {
            return transposed_convolution(x, weight, bias.value_or(Tensor()),
                                          {.groups = groups,
                                           .stride = PerAxisOf(stride),
                                           .dilation = PerAxisOf(dilation),
                                           .padding = PaddingOf(padding, KernelAxes(weight)),
                                           .output_padding = PerAxisOf(output_padding)});
          },
          "weight"_a, "bias"_a = nb::none(), "groups"_a = 1, "stride"_a = 1, "dilation"_a = 1,
          "padding"_a = 0, "output_padding"_a = 0,
          "The way back of conv2d's shapes: (B, C, D...) with weight (C, O / groups, K...).");
}

void BindPools(TensorClass& tensor) {
  const nb::tuple two = nb::make_tuple(2, 2);
  tensor
      .def(
          "avg_pool2d",
          [](const Tensor& x, const Numbers& kernel, const std::optional<Numbers>& stride,
             const Numbers& dilation, const Numbers& padding, bool ceil_mode,
             bool count_include_pad) {
            return avg_pool(x, PoolOptionsOf(kernel, stride, dilation, padding, ceil_mode),
                            count_include_pad);
          },
          "kernel_size"_a = two, "stride"_a = nb::none(), "dilation"_a = 1, "padding"_a = 0,
          "ceil_mode"_a = false, "count_include_pad"_a = true,
          "The mean of each window over the last axes, as many as the kernel has. `stride` is the "
          "kernel's size by default.")
      .def(
          "max_pool2d", &MaxPool2d, "kernel_size"_a = two, "stride"_a = nb::none(),
          "dilation"_a = 1, "padding"_a = 0, "ceil_mode"_a = false, "return_indices"_a = false,
          nb::sig("def max_pool2d(self, kernel_size: int | collections.abc.Sequence[int] = (2, 2), "
                  "stride: int | collections.abc.Sequence[int] | None = None, "
                  "dilation: int | collections.abc.Sequence[int] = 1, "
                  "padding: int | collections.abc.Sequence[int] = 0, ceil_mode: bool = False, "
                  "return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]"),
          "The largest of each window over the last axes, as many as the kernel has; with "
          "return_indices also where\n"
          "it is in these axes, flattened.")
      .def("max_unpool2d", &MaxUnpool2d, "indices"_a, "kernel_size"_a = two,
           "stride"_a = nb::none(), "dilation"_a = 1, "padding"_a = 0, "output_size"_a = nb::none(),
           "The values of max_pool2d at their places, zeros elsewhere.");
}

}  // namespace

void BindWindows(nb::module_&, TensorClass& tensor) {
  BindConvolutions(tensor);
  BindPools(tensor);
  tensor
      .def(
          "pad",
          [](const Tensor& x, nb::handle padding, const std::string& mode, const Operand& value) {
            return pad(x, PairsOf(x, padding), PadModeOf(mode), value);
          },
          "padding"_a, "mode"_a = "constant", "value"_a = 0.0,
          nb::sig("def pad(self, padding: collections.abc.Sequence, mode: str = 'constant', "
                  "value: float | int | bool = 0.0) -> Tensor"),
          "`padding` is ((before, after), None ...), one for each axis, or (last before, last "
          "after, the one before it ...).\n"
          "Negative: cuts. Modes: constant, reflect, replicate, circular.")
      .def(
          "interpolate",
          [](const Tensor& x, const std::vector<int64_t>& size, const std::string& mode,
             bool align_corners) {
            return interpolate(x, size, InterpolationOf(mode), align_corners);
          },
          "size"_a, "mode"_a = "linear", "align_corners"_a = false,
          "The last axes resized: mode linear, nearest or nearest-exact.");
}

}  // namespace outboard::python
