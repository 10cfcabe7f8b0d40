// Attention of a decoded token on a GPU: that its values are divided among blocks, and that what is
// joined of them is what the interpreter says, on the PTX machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/binding.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/schedule.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/decoded_attention.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

constexpr int kMultiprocessors = 132;

struct Ran {
  size_t launches = 0;
  int64_t blocks = 0;  // of the kernel that reads the values
  std::string result;
};

// Runs the kernels one after the other. Memory is 0xA5 before.
Ran RunOn(int multiprocessors, const DecodedGraph& recorded, std::span<const HostTensor> params) {
  using Kind = schedule::ScheduledBuffer::Kind;
  Graph graph;
  const Target target = CudaTarget("sm_90", multiprocessors);
  const auto schedule = ValueOrDie(schedule::MakeSchedule(graph, recorded.sink, target));
  if (std::getenv("DUMP") != nullptr) std::printf("%s", ScheduleToString(schedule).c_str());
  std::vector<int64_t> vars;
  for (const Binding& binding : recorded.bindings) {
    vars.resize(std::max(vars.size(), static_cast<size_t>(binding.slot) + 1));
    vars[binding.slot] = binding.value;
  }
  Buffers memory;
  int values = -1;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers) {
    memory.emplace_back(static_cast<size_t>(buffer.bytes()), '\xa5');
    if (buffer.kind != Kind::kInput) continue;
    memory.back() = params[buffer.index].bytes;
    const bool last = buffer.index + 1 == static_cast<int64_t>(params.size());
    if (last) values = static_cast<int>(memory.size()) - 1;
  }
  Ran ran{.launches = schedule.kernels.size()};
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    const CompiledKernel compiled = ValueOrDie(CompileKernel(kernel.ast, {.target = target}));
    Buffers own;
    for (const int i : kernel.buffers) own.push_back(memory[i]);
    const absl::Status status = RunOnPtxMachine(compiled, own, vars);
    EXPECT_EQ(status, absl::OkStatus()) << status;
    for (size_t slot = 0; slot < own.size(); ++slot) memory[kernel.buffers[slot]] = own[slot];
    if (std::count(kernel.buffers.begin(), kernel.buffers.end(), values) > 0)
      ran.blocks = compiled.tasks;
  }
  for (size_t i = 0; i < schedule.buffers.size(); ++i)
    if (schedule.buffers[i].kind == Kind::kOutput) ran.result = memory[i];
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
  // A kernel of maxima, one of sums and one of values: what joins their parts is computed where it
  // is read. One multiprocessor is full without parts.
  EXPECT_EQ(divided.launches, whole.launches + 3);
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
