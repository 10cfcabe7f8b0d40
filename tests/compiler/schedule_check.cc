#include "tests/compiler/schedule_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/check.h"
#include "compiler/ir/spec.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

HostTensor RandomTensor(const UOp* param, double low, std::mt19937_64& random) {
  HostTensor tensor{param->dtype, StaticDims(param->shape), {}};
  tensor.bytes.resize(tensor.ElementCount() * ByteWidth(param->dtype));
  for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
    char* const at = tensor.bytes.data() + i * ByteWidth(param->dtype);
    if (IsFloat(param->dtype))
      StoreFloat(param->dtype, std::uniform_real_distribution<>(low, 1)(random), at);
    else
      StoreInt(param->dtype, std::uniform_int_distribution<>(0, 3)(random), at);
  }
  return tensor;
}

void ExpectNear(const HostTensor& e, const HostTensor& a, double tolerance) {
  ASSERT_EQ(e.dims, a.dims);
  const int width = ByteWidth(e.dtype);
  for (int64_t i = 0; i < e.ElementCount(); ++i) {
    const char *const x_at = e.bytes.data() + i * width, *const y_at = a.bytes.data() + i * width;
    if (!IsFloat(e.dtype)) {
      ASSERT_EQ(LoadInt(e.dtype, x_at), LoadInt(e.dtype, y_at)) << "element " << i;
      continue;
    }
    const double x = LoadFloat(e.dtype, x_at), y = LoadFloat(e.dtype, y_at);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    ASSERT_NEAR(x, y, tolerance * (1 + std::abs(x))) << "element " << i;
  }
}

}  // namespace

void ExpectAsInterpreted(const UOp* sink, double tolerance, double low) {
  std::mt19937_64 random(1);
  std::vector<HostTensor> params;
  for (const UOp* param : ParamsOf(sink)) params.push_back(RandomTensor(param, low, random));
  Results expected;
  for (const Engine& engine : Engines()) {
    const auto results = engine.run(sink, params, {});
    ASSERT_TRUE(results.ok()) << engine.name << ": " << results.status();
    if (expected.empty()) expected = *results;
    for (size_t r = 0; r < expected.size(); ++r) {
      SCOPED_TRACE(engine.name + ", result " + std::to_string(r));
      ExpectNear(expected[r], (*results)[r], tolerance);
    }
  }
}

}  // namespace outboard::test
