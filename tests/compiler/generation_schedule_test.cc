// What a text that is written comes to on a GPU: the step of a decoder with a cache whose length is
// a VAR, and a prompt of any length. No kernel stores scores, and each is of matrix units.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "client/examples/gpt_decoder.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/encoding.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/panel.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {
namespace {

constexpr int64_t kLayers = 2;

class GenerationSchedule : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    session_->evaluate = false;
    SetSession(session_);
  }
  void TearDown() override { SetSession(nullptr); }

  // Of what was realized last.
  schedule::Schedule ScheduleOfLast() {
    const Target target = CudaTarget(GetParam(), 132);
    return ValueOrDie(schedule::MakeSchedule(scheduled_,
                                             ValueOrDie(DecodeGraph(graph_, *session_->last.graph)),
                                             target, {}, ScheduleOptionsFor(target)));
  }

  // Kernels that compute scores, all of them by matrix units.
  static int64_t KernelsWithScores(const schedule::Schedule& schedule) {
    int64_t found = 0;
    for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
      const codegen::LoopNest nest = ValueOrDie(codegen::AnalyzeKernel(kernel.ast));
      if (codegen::PanelsOf(nest, /*ends=*/true).empty()) continue;
      ++found;
      const CompiledKernel compiled =
          ValueOrDie(CompileKernel(kernel.ast, {.target = CudaTarget(GetParam(), 132)}));
      EXPECT_TRUE(absl::StrContains(compiled.object, "mma.sync") ||
                  absl::StrContains(compiled.object, "wgmma.mma_async"));
    }
    return found;
  }

  static int64_t LargestTemporaryBytes(const schedule::Schedule& schedule) {
    int64_t most = 0;
    for (const schedule::ScheduledBuffer& buffer : schedule.buffers)
      if (buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary)
        most = std::max(most, buffer.bytes());
    return most;
  }

  const std::shared_ptr<FakeSession> session_ = std::make_shared<FakeSession>();
  Graph graph_, scheduled_;
};

TEST_P(GenerationSchedule, AStepOfADecoder_KeepsNoScores) {
  const examples::GptOptions options{
      .vocabulary = 64, .layers = kLayers, .width = 128, .heads = 2, .context = 16384};
  const examples::Gpt net(options);
  examples::GptDecoder decoder(net, options);
  decoder.Step(Tensor::from<int32_t>({1})).argmax(-1).realize();
  const schedule::Schedule schedule = ScheduleOfLast();
  EXPECT_EQ(KernelsWithScores(schedule), kLayers) << ScheduleToString(schedule);
  EXPECT_LT(LargestTemporaryBytes(schedule), options.heads * options.context * 4)
      << ScheduleToString(schedule);
}

TEST_P(GenerationSchedule, APromptOfAnyLength_KeepsNoScores) {
  constexpr int64_t kMax = 2048, kHeads = 2, kHead = 64, kWidth = kHeads * kHead;
  const auto weight = [] { return Tensor::zeros({kWidth, kWidth}, DType::kBF16).state_(); };
  const SymInt n = Variable("n", 1, kMax).bind(100);
  Tensor x = Tensor::zeros({kMax, kWidth}, DType::kBF16).state_().slice(0, 0, n);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const auto split = [&](const Tensor& t) {
      return t.reshape({n, kHeads, kHead}).permute({1, 0, 2});
    };
    const Tensor q = split(x.matmul(weight())), k = split(x.matmul(weight())),
                 v = split(x.matmul(weight()));
    Tensor scores = q.matmul(k.transpose()).cast(DType::kF32) * (1 / std::sqrt(double{kHead}));
    const Tensor place = Tensor::arange(n);
    scores =
        (place > place.reshape({n, 1})).where(-std::numeric_limits<double>::infinity(), scores);
    const Tensor mixed = scores.softmax().cast(DType::kBF16).matmul(v);
    x = x + mixed.permute({1, 0, 2}).reshape({n, kWidth}).matmul(weight());
  }
  realize(std::vector<Tensor>{x.slice(0, n - 1, n)});
  const schedule::Schedule schedule = ScheduleOfLast();
  EXPECT_EQ(KernelsWithScores(schedule), kLayers) << ScheduleToString(schedule);
  EXPECT_LT(LargestTemporaryBytes(schedule), kHeads * kMax * kMax * 2)
      << ScheduleToString(schedule);
}

// Positions are turned into queries (Su et al., "RoFormer", arXiv 2104.09864): these are computed
// before the kernel that reads them. Four queries share keys and values.
TEST_P(GenerationSchedule, TurnedQueriesOfGroups_KeepNoScores) {
  constexpr int64_t kContext = 16384, kHeads = 2, kGroup = 4, kHead = 128;
  const auto input = [](const Dims& dims) { return Tensor::zeros(dims, DType::kBF16).state_(); };
  const SymInt n = Variable("n", 1, kContext).bind(100);
  const Tensor x = input({1, 256});
  const Tensor q = x.matmul(input({256, kHeads * kGroup * kHead})).reshape({kHeads, kGroup, kHead});
  const Tensor angles =
      Tensor::zeros({kContext, kHead / 2}, DType::kF32).state_().slice(0, n - 1, n);
  const Tensor wide = q.cast(DType::kF32);
  const Tensor a = wide.slice(2, 0, kHead / 2), b = wide.slice(2, kHead / 2, kHead);
  const Tensor turned =
      Tensor::cat({a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()}, 2)
          .cast(DType::kBF16);
  const Tensor k = input({kHeads, kContext, kHead}).slice(1, 0, n),
               v = input({kHeads, kContext, kHead}).slice(1, 0, n);
  const Tensor scores =
      turned.matmul(k.transpose()).cast(DType::kF32) * (1 / std::sqrt(double{kHead}));
  realize(std::vector<Tensor>{scores.softmax().cast(DType::kBF16).matmul(v)});
  const schedule::Schedule schedule = ScheduleOfLast();
  EXPECT_EQ(KernelsWithScores(schedule), 1) << ScheduleToString(schedule);
  EXPECT_LT(LargestTemporaryBytes(schedule), kHeads * kGroup * kContext * 2 * 3)
      << ScheduleToString(schedule);
}

// A few tokens at once, as many as a VAR says, are the last of the keys.
TEST_P(GenerationSchedule, AFewTokensAtOnce_KeepNoScores) {
  constexpr int64_t kContext = 16384, kHeads = 2, kHead = 64, kFew = 8;
  const auto input = [](const Dims& dims) { return Tensor::zeros(dims, DType::kBF16).state_(); };
  const SymInt n = Variable("n", 1, kContext).bind(100), m = Variable("m", 1, kFew).bind(3);
  const Tensor q = input({kHeads, kFew, kHead}).slice(1, 0, m),
               k = input({kHeads, kContext, kHead}).slice(1, 0, n),
               v = input({kHeads, kContext, kHead}).slice(1, 0, n);
  Tensor scores = q.matmul(k.transpose()).cast(DType::kF32) * (1 / std::sqrt(double{kHead}));
  scores = (Tensor::arange(n) > Tensor::arange(m).reshape({m, 1}) + (n - m))
               .where(-std::numeric_limits<double>::infinity(), scores);
  realize(std::vector<Tensor>{scores.softmax().cast(DType::kBF16).matmul(v)});
  const schedule::Schedule schedule = ScheduleOfLast();
  EXPECT_EQ(KernelsWithScores(schedule), 1) << ScheduleToString(schedule);
  EXPECT_LT(LargestTemporaryBytes(schedule), kHeads * kFew * kContext * 2)
      << ScheduleToString(schedule);
}

INSTANTIATE_TEST_SUITE_P(Arches, GenerationSchedule, testing::Values("sm_80", "sm_90", "sm_90a"));

}  // namespace
}  // namespace outboard::test
