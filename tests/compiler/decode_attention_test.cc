// Attention of a decoded token on a GPU: that its values are divided among blocks, and that what is
// joined of them is what the interpreter says, on the PTX machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/encoding.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/schedule.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/decoded_attention.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

constexpr int kMultiprocessors = GpuSchedule::kMultiprocessors;

struct Ran {
  size_t launches = 0;
  int64_t blocks = 0;  // of the kernel that reads the values
  std::string result;
};

Ran RunOn(int multiprocessors, const DecodedGraph& recorded, std::span<const HostTensor> params) {
  const GpuSchedule gpu(recorded.sink, "sm_90", schedule::ScorePolicy::kByCost, multiprocessors);
  Ran ran{.launches = gpu.compiled().size()};
  const std::vector<schedule::ScheduledBuffer>& buffers = gpu.schedule().buffers;
  const auto values = std::ranges::find_if(buffers, [&](const schedule::ScheduledBuffer& buffer) {
    return buffer.kind == schedule::ScheduledBuffer::Kind::kInput &&
           buffer.index + 1 == static_cast<int64_t>(params.size());
  });
  for (size_t k = 0; k < gpu.compiled().size(); ++k)
    if (std::ranges::count(gpu.schedule().kernels[k].buffers, values - buffers.begin()) > 0)
      ran.blocks = gpu.compiled()[k].tasks;
  ran.result = gpu.Run(params, VarsOf(recorded.bindings))[0];
  return ran;
}

// With the keys divided and whole.
struct Both {
  Ran divided, whole;
};

Both CheckDecoded(const Decoded& d) {
  SCOPED_TRACE(testing::Message() << d.heads << " times " << d.group << " heads, " << d.keys
                                  << " keys, width " << d.width << ", " << d.length << " bound");
  Graph graph;
  const DecodedGraph recorded = d.Record(graph);
  const std::vector<HostTensor> params = RandomFloats(recorded.sink);
  const std::vector<double> want =
      FloatsOf(ValueOrDie(Interpret(recorded.sink, params, recorded.bindings))[0]);
  const Both both{RunOn(kMultiprocessors, recorded, params), RunOn(1, recorded, params)};
  const auto* const got = reinterpret_cast<const float*>(both.divided.result.data());
  // A weight may round the other way.
  const double tolerance = d.dtype == DType::kF32 ? 1e-4 : 1e-2;
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << i;
  EXPECT_EQ(RunOn(kMultiprocessors, recorded, params).result, both.divided.result) << "other bits";
  EXPECT_EQ(both.divided.launches, both.whole.launches + 1);
  return both;
}

void CheckBlocks(const Decoded& d) {
  const auto [divided, whole] = CheckDecoded(d);
  std::printf("%lld blocks read the values, %lld undivided; %zu launches, %zu undivided\n",
              static_cast<long long>(divided.blocks), static_cast<long long>(whole.blocks),
              divided.launches, whole.launches);
  EXPECT_GE(divided.blocks, kMultiprocessors * 3 / 4);
  EXPECT_LT(whole.blocks, kMultiprocessors / 8);
}

TEST(DecodeAttention, KeysOfAFixedNumber) { CheckBlocks({}); }

TEST(DecodeAttention, KeysThatAVarCounts) {
  for (const int64_t length : {1, 70, 1000})
    CheckBlocks({.dtype = DType::kF32, .length = length});
}

TEST(DecodeAttention, MasksAndSharedValues) {
  CheckDecoded({.heads = 2, .group = 2, .keys = 1030, .mask = true});
  CheckDecoded({.heads = 1, .group = 3, .keys = 700, .length = 555, .mask = true});
}

TEST(DecodeAttention, RandomShapes) {
  std::mt19937 random(7);
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint32_t>(most - least + 1));
  };
  for (int i = 0; i < 6; ++i) {
    Decoded d{.heads = from(1, 3), .group = from(1, 3), .keys = from(512, 900),
              .width = from(8, 40)};
    if (random() % 2 == 0) d.dtype = random() % 2 == 0 ? DType::kF32 : DType::kF16;
    if (random() % 2 == 0) d.length = from(1, d.keys);
    d.mask = random() % 2 == 0 && d.length != 1;  // which hides the first key
    CheckDecoded(d);
  }
}

TEST(DecodeAttention, MaximaAndSumsOfVeryManyKeysAreDivided) {
  const Decoded d{.heads = 2, .keys = 1 << 15, .width = 8, .mask = true};
  Graph graph;
  const DecodedGraph recorded = d.Record(graph);
  const std::vector<HostTensor> params = RandomFloats(recorded.sink);
  const std::vector<double> want =
      FloatsOf(ValueOrDie(Interpret(recorded.sink, params, recorded.bindings))[0]);
  const Ran divided = RunOn(kMultiprocessors, recorded, params),
            whole = RunOn(1, recorded, params);
  const auto* const got = reinterpret_cast<const float*>(divided.result.data());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-2 * (1 + std::abs(want[i]))) << i;
  EXPECT_EQ(RunOn(kMultiprocessors, recorded, params).result, divided.result) << "other bits";
  // A kernel of maxima, and one of sums: what joins their parts is computed where it is read. The
  // values are divided in both.
  EXPECT_EQ(divided.launches, whole.launches + 2);
}

TEST(DecodeAttention, ShortRowsAndRowsWithoutADivisorStayWhole) {
  const Decoded whole[] = {{.keys = 1 << 14}, {.keys = 32771}, {.keys = 1 << 15, .length = 9}};
  for (const Decoded& d : whole) {
    Graph recorded, one, many;
    const UOp* const sink = d.Record(recorded).sink;
    const auto on = [&](Graph& graph, int multiprocessors) {
      return ValueOrDie(
          schedule::MakeSchedule(graph, sink, CudaTarget("sm_90", multiprocessors)));
    };
    EXPECT_EQ(on(many, kMultiprocessors).kernels.size(), on(one, 1).kernels.size() + 1);
  }
}

// Where a kernel more costs more than it saves, there is none.
TEST(DecodeAttention, FewKeysAndManyRowsStayWhole) {
  const Decoded whole[] = {{.keys = 256}, {.heads = 128}, {.group = 16, .dtype = DType::kF32},
                           {.width = 4}};
  for (const Decoded& d : whole) {
    Graph recorded, one, many;
    const UOp* const sink = d.Record(recorded).sink;
    const auto on = [&](Graph& graph, int multiprocessors) {
      return ValueOrDie(
          schedule::MakeSchedule(graph, sink, CudaTarget("sm_90", multiprocessors)));
    };
    EXPECT_EQ(on(many, kMultiprocessors).kernels.size(), on(one, 1).kernels.size());
  }
}

// Probabilities times numbers of their own: each row is a block's, and rows fill the device.
TEST(DecodeAttention, SumsOverRowsStayWhole) {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  const Tensor x = Tensor::zeros({64, 4096}).state_(), y = Tensor::zeros({64, 4096}).state_();
  realize(std::vector<Tensor>{(x.softmax() * y).sum(-1)});
  Graph recorded, one, many;
  const UOp* const sink = ValueOrDie(DecodeGraph(recorded, *session->last.graph));
  SetSession(nullptr);
  const auto on = [&](Graph& graph, int multiprocessors) {
    return ScheduleToString(ValueOrDie(
        schedule::MakeSchedule(graph, sink, CudaTarget("sm_90", multiprocessors))));
  };
  EXPECT_EQ(on(many, kMultiprocessors), on(one, 1));
}

// A gate has exponentials, too, and its product reads weights along the axis that is summed.
TEST(DecodeAttention, ProductsAfterActivationsStayWhole) {
  for (const bool is_gelu : {true, false}) {
    const auto session = std::make_shared<FakeSession>();
    session->evaluate = false;
    SetSession(session);
    const Tensor x = Tensor::zeros({1, 3072}).state_(), w = Tensor::zeros({768, 3072}).state_();
    realize(std::vector<Tensor>{(is_gelu ? x.gelu() : x.silu()).matmul(w.transpose())});
    Graph recorded, one, many;
    const UOp* const sink = ValueOrDie(DecodeGraph(recorded, *session->last.graph));
    SetSession(nullptr);
    const auto on = [&](Graph& graph, int multiprocessors) {
      return ScheduleToString(ValueOrDie(
          schedule::MakeSchedule(graph, sink, CudaTarget("sm_90", multiprocessors))));
    };
    EXPECT_EQ(on(many, kMultiprocessors), on(one, 1));
  }
}

}  // namespace
}  // namespace outboard::test
