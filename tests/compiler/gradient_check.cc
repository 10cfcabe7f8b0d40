#include "tests/compiler/gradient_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compiler/gradient/gradient.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/reference/interpret.h"

namespace outboard {
namespace {

HostTensor ToHost(const Input& input) {
  HostTensor tensor{input.param->dtype, input.dims(), {}};
  const int width = ByteWidth(tensor.dtype);
  tensor.bytes.resize(input.values.size() * width);
  for (size_t i = 0; i < input.values.size(); ++i) {
    char* const at = tensor.bytes.data() + i * width;
    if (IsFloat(tensor.dtype))
      StoreFloat(tensor.dtype, input.values[i], at);
    else
      StoreInt(tensor.dtype, static_cast<int64_t>(input.values[i]), at);
  }
  return tensor;
}

// Uneven, of both signs, none near 0.
std::vector<double> Weights(int64_t count, int salt) {
  std::vector<double> weights;
  for (int64_t i = 0; i < count; ++i) {
    const double w = std::sin(1.7 * static_cast<double>(i) + salt);
    weights.push_back(w + std::copysign(0.25, w));
  }
  return weights;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<double>>> Evaluate(Graph& g, Sources roots,
                                                          const std::vector<Input>& inputs,
                                                          const std::vector<Binding>& bindings) {
  std::vector<HostTensor> params;
  for (const Input& input : inputs) {
    params.resize(std::max<size_t>(params.size(), ParamOf(input.param).slot() + 1));
    params[ParamOf(input.param).slot()] = ToHost(input);
  }
  OB_ASSIGN_OR_RETURN(const std::vector<HostTensor> results,
                      Interpret(Sink(g, roots), params, bindings));
  std::vector<std::vector<double>> values;
  for (const HostTensor& result : results) {
    std::vector<double>& out = values.emplace_back();
    for (int64_t i = 0; i < result.ElementCount(); ++i) {
      const char* const at = result.bytes.data() + i * ByteWidth(result.dtype);
      out.push_back(IsFloat(result.dtype) ? LoadFloat(result.dtype, at)
                                          : static_cast<double>(LoadInt(result.dtype, at)));
    }
  }
  return values;
}

void ExpectGradients(Graph& g, const UOp* y, const std::vector<Input>& given, int order,
                     const std::vector<Binding>& bindings) {
  std::vector<Input> inputs = given;
  const auto value = [&](const UOp* root) {
    return ValueOrDie(Evaluate(g, {root}, inputs, bindings))[0];
  };
  int64_t slot = 100 * order;
  const auto weighted = [&](const UOp* node, const std::vector<int64_t>& dims,
                            std::vector<double> weights) {
    const UOp* const w = Param(g, slot++, node->dtype, node->shape);
    inputs.push_back({w, std::move(weights), dims});
    return w;
  };

  const std::vector<double> weights = Weights(static_cast<int64_t>(value(y).size()), order);
  std::vector<int64_t> y_dims;
  if (IsStatic(y->shape))
    y_dims = StaticDims(y->shape);
  else
    y_dims = given[0].dims();  // symbolic tests keep the shape of their first input
  const UOp* const dy = weighted(y, y_dims, weights);

  std::vector<const UOp*> wrt;
  for (const Input& input : given)
    if (input.param->dtype == DType::kF64) wrt.push_back(input.param);
  const auto gradients = Gradient(g, y, dy, wrt);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  ASSERT_EQ(gradients->size(), wrt.size());

  const auto loss = [&] {
    const std::vector<double> values = value(y);
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
    return sum;
  };
  const auto computed = Evaluate(g, *gradients, inputs, bindings);
  ASSERT_TRUE(computed.ok()) << computed.status();
  size_t next = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].param->dtype != DType::kF64) continue;
    const UOp* const gradient = (*gradients)[next];
    const std::vector<double>& found = (*computed)[next++];
    ASSERT_EQ(gradient->dtype, given[i].param->dtype);
    ASSERT_EQ(gradient->shape, given[i].param->shape);
    ASSERT_EQ(found.size(), given[i].values.size());
    for (size_t j = 0; j < found.size(); ++j) {
      const double at = given[i].values[j], step = 1e-5;
      inputs[i].values[j] = at + step;
      const double above = loss();
      inputs[i].values[j] = at - step;
      const double below = loss();
      inputs[i].values[j] = at;
      const double expected = (above - below) / (2 * step);
      ASSERT_NEAR(found[j], expected, 2e-6 * (1 + std::abs(expected)))
          << "order left " << order << ", input " << i << ", element " << j << "\n"
          << GraphToString(Sink(g, {y}));
    }
  }
  if (order <= 1) return;

  // One scalar that depends on every gradient.
  const UOp* sum = nullptr;
  for (size_t i = 0; i < gradients->size(); ++i) {
    const UOp* const gradient = (*gradients)[i];
    std::vector<int64_t> axes, dims;
    for (int a = 0; a < gradient->rank(); ++a) axes.push_back(a);
    for (const Input& input : given)
      if (input.param == wrt[i]) dims = input.dims();
    const auto count = static_cast<int64_t>((*computed)[i].size());
    const UOp* const w = weighted(gradient, dims, Weights(count, static_cast<int>(i) + 7));
    const UOp* const part = Reshape(g, Reduce(g, Op::kAdd, Mul(g, gradient, w), axes), {});
    sum = sum == nullptr ? part : Add(g, sum, part);
  }
  ExpectGradients(g, sum, inputs, order - 1, bindings);
}

}  // namespace outboard
