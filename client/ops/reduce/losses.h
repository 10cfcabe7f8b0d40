// Losses with a choice of reduction; the losses of Tensor itself return the mean.
//
// Shapes: classes lie on axis 1 of [N, C, ...] (axis 0 of [C]), or on the last one where it says
// so; labels have the shape without that axis, of integers. Types: floats; integers become f32. A
// label out of range counts as a loss of 0: its value is not known here. Errors: INVALID_ARGUMENT
// for shapes and types that do not fit. Threads: as tensor.h.
#pragma once

#include <optional>
#include <string_view>

#include "client/tensor/tensor.h"

namespace outboard {

// Reduces the losses to their mean or sum, or returns each.
enum class Reduction { kMean, kSum, kNone };
Tensor reduced(const Tensor& losses, Reduction reduction, At at = At::current());

// -log_softmax(x) at `target`: labels, or probabilities of the shape of x.
Tensor cross_entropy(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::kMean,
                     double label_smoothing = 0, At at = At::current());
// The same with the classes on the last axis. Rows whose label is `ignore_index`, if given, are
// left out.
Tensor sparse_categorical_crossentropy(const Tensor& x, const Tensor& labels,
                                       std::optional<int64_t> ignore_index, double label_smoothing,
                                       Reduction reduction, At at = At::current());
// -x at `labels`, each times the weight of its class ([C], or empty: 1); the mean is over the
// weights. x has log probabilities, [N, C, ...].
Tensor nll_loss(const Tensor& x, const Tensor& labels, const Tensor& weight = {},
                std::optional<int64_t> ignore_index = {}, Reduction reduction = Reduction::kMean,
                At at = At::current());
// -(t log(x) + (1 - t) log(1 - x)), of probabilities.
Tensor binary_crossentropy(const Tensor& x, const Tensor& target,
                           Reduction reduction = Reduction::kMean, At at = At::current());
// The same of x before the sigmoid; the first part times `pos_weight`, where it is not empty.
Tensor binary_crossentropy_logits(const Tensor& x, const Tensor& target, Reduction reduction,
                                  const Tensor& pos_weight = {}, At at = At::current());

}  // namespace outboard
