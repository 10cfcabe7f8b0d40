#include "tests/compiler/schedule_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compiler/ir/check.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/interpret.h"
#include "tests/compiler/schedule_eval.h"

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

}  // namespace

void ExpectAsInterpreted(const schedule::Schedule& schedule, const UOp* sink, double tolerance,
                         double low) {
  std::mt19937_64 random(1);
  std::vector<HostTensor> params;
  for (const UOp* param : ParamsOf(sink)) params.push_back(RandomTensor(param, low, random));
  const auto expected = Interpret(sink, params);
  const auto actual = EvaluateSchedule(schedule, sink, params);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_TRUE(actual.ok()) << actual.status() << "\n" << schedule::ScheduleToString(schedule);
  for (size_t r = 0; r < expected->size(); ++r) {
    const HostTensor &e = (*expected)[r], &a = (*actual)[r];
    EXPECT_EQ(e.dims, a.dims);
    int wrong = 0;
    for (int64_t i = 0; i < e.ElementCount() && wrong < 5; ++i) {
      const int width = ByteWidth(e.dtype);
      if (!IsFloat(e.dtype)) {
        const int64_t x = LoadInt(e.dtype, e.bytes.data() + i * width);
        const int64_t y = LoadInt(e.dtype, a.bytes.data() + i * width);
        EXPECT_EQ(x, y) << "result " << r << " element " << i;
        wrong += x != y;
        continue;
      }
      const double x = LoadFloat(e.dtype, e.bytes.data() + i * width);
      const double y = LoadFloat(e.dtype, a.bytes.data() + i * width);
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      EXPECT_NEAR(x, y, tolerance * (1 + std::abs(x))) << "result " << r << " element " << i;
      wrong += !(std::abs(x - y) <= tolerance * (1 + std::abs(x)));
    }
  }
}

}  // namespace outboard::test
