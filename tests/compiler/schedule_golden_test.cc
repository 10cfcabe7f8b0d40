// What the schedule makes of programs that people write: how many kernels, and that they compute
// what the interpreter does. A count may only go down. SHOW=<name> prints a program's kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/proof/in_range.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/schedule_check.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

constexpr char kKernels[] = R"(
softmax                       1
softmax_backward              1
log_softmax                   1
cross_entropy                 3
layer_norm                    1
layer_norm_backward           2
batch_norm                    2
batch_norm_backward           2
variance                      1
attention                     1
attention_backward            8
embedding_backward            4
sort                         68
conv_chain                    3
conv_chain_backward          10
strided_windows_backward      9
sgd_step                      1
adamw_step                    3
mnist_forward                 9
mnist_forward_backward       35
mnist_step                   37
transformer_block             9
transformer_block_backward   36
gpt_step_1_layer             50
gpt_step_2_layers            86
gpt_step_12_layers          446
)";

TEST(ScheduleGolden, Kernels) {
  const char* const show = std::getenv("SHOW");
  std::string kernels = "\n";
  for (const Program& program : Programs()) {
    Graph g;
    const UOp* const sink = RecordProgram(g, program, Size::kReal);
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget()));
    if (show != nullptr && program.name == show)
      std::fputs(ScheduleToString(schedule).c_str(), stdout);
    absl::StrAppendFormat(&kernels, "%-28s%3d\n", program.name, schedule.kernels.size());
  }
  EXPECT_EQ(kernels, kKernels) << "the new table:" << kernels;
}

// Whether some reduction is computed again in each step of another one.
bool RepeatsReduction(const UOp* ast) {
  absl::flat_hash_map<const UOp*, std::set<const UOp*>> loops;  // open ones that a node depends on
  for (const UOp* node : PostOrder(ast)) {
    std::set<const UOp*>& mine = loops[node];
    if (IsRange(node, RangeKind::kReduce)) mine.insert(node);
    const size_t values = node->op == Op::kReduceLoop ? 1 : node->src.size();
    for (size_t i = 0; i < values; ++i)
      mine.insert(loops.at(node->src[i]).begin(), loops.at(node->src[i]).end());
    if (node->op != Op::kReduceLoop) continue;
    for (size_t i = 1; i < node->src.size(); ++i) mine.erase(node->src[i]);
    if (!mine.empty()) return true;
  }
  return false;
}

// Where scores are kept: panels repeat them (attention_test.cc).
TEST(ScheduleGolden, KernelsRepeatNothingAndStayInTheirBuffers) {
  for (const Program& program : Programs()) {
    Graph g;
    const UOp* const sink = RecordProgram(g, program, Size::kReal);
    const auto schedule = ValueOrDie(schedule::MakeSchedule(
        g, sink, TestTarget(), {}, {.scores = schedule::ScorePolicy::kKeep}));
    for (size_t k = 0; k < schedule.kernels.size(); ++k) {
      SCOPED_TRACE(program.name + ": " + KernelToString(schedule, k));
      EXPECT_FALSE(RepeatsReduction(schedule.kernels[k].ast))
          << "a reduction in another one's loop";
      EXPECT_EQ(proof::CheckInRange({schedule.kernels[k].ast}), absl::OkStatus());
    }
    EXPECT_LE(schedule.arena_bytes, 1.1 * schedule.arena_bytes_least) << program.name;
  }
}

// Bytes of results that programs with state ask memory for: losses and what is drawn; weights,
// moments and running means are written over the old ones.
constexpr char kFreshBytes[] = R"(
batch_norm                    9437184 of   9437440
sgd_step                            0 of   1048576
adamw_step                          0 of   1575944
mnist_forward                    5120 of      5888
mnist_step                          4 of   1054988
gpt_step_1_layer                    4 of  10076180
gpt_step_2_layers                   4 of  19553300
gpt_step_12_layers                  4 of 114324500
)";

TEST(ScheduleGolden, StateIsWrittenInPlace) {
  std::string fresh_bytes = "\n";
  for (const Program& program : Programs()) {
    Graph g;
    std::vector<int64_t> donated;
    const UOp* const sink = RecordProgram(g, program, Size::kReal, &donated);
    if (donated.empty()) continue;
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget(), donated));
    int64_t fresh = 0, results = 0;
    for (const schedule::ScheduledBuffer& buffer : schedule.buffers) {
      if (buffer.kind != schedule::ScheduledBuffer::Kind::kOutput) continue;
      results += buffer.bytes();
      if (schedule.over[buffer.index] == schedule::kNoInput) fresh += buffer.bytes();
    }
    absl::StrAppendFormat(&fresh_bytes, "%-28s%9d of %9d\n", program.name, fresh, results);
    EXPECT_LE(schedule.arena_bytes, 1.1 * schedule.arena_bytes_least) << program.name;
  }
  EXPECT_EQ(fresh_bytes, kFreshBytes) << "the new table:" << fresh_bytes;
}

// A step of a model whose logits are most of its memory needs them once, not twice: the gradient of
// the loss is written over them. That is one kernel more, the logits at the labels. In mixed
// precision both are of the products' type, and nothing of their size is in f32.
TEST(ScheduleGolden, OneArrayOfLogits) {
  constexpr int64_t kVocabulary = 32768, kContext = 64, kBatch = 4;
  constexpr int64_t kLogits = kBatch * kContext * kVocabulary;
  for (const DType products : {DType::kF32, DType::kBF16, DType::kF16}) {
    const int64_t logits_bytes = kLogits * ByteWidth(products);
    const Program program = GptStep("gpt_step_large_vocabulary",
                                    {.vocabulary = kVocabulary,
                                     .layers = 1,
                                     .width = 32,
                                     .heads = 2,
                                     .context = kContext,
                                     .products = products},
                                    kBatch);
    for (const Target& target : {TestTarget(), CudaTarget("sm_90a", 132)}) {
      SCOPED_TRACE(testing::Message() << Name(products) << " for " << target.arch);
      Graph g;
      std::vector<int64_t> donated;
      const UOp* const sink = RecordProgram(g, program, Size::kReal, &donated);
      const auto make = [&](schedule::OverwritePolicy policy) {
        return ValueOrDie(schedule::MakeSchedule(g, sink, target, donated, {.overwrites = policy}));
      };
      const schedule::Schedule apart = make(schedule::OverwritePolicy::kNever),
                               over = make(schedule::ScheduleOptions{}.overwrites);
      EXPECT_LE(over.arena_bytes, apart.arena_bytes - logits_bytes * 9 / 10);
      EXPECT_LE(over.arena_bytes, logits_bytes * 14 / 10);
      EXPECT_LE(over.kernels.size(), apart.kernels.size() + 1);
      int arrays = 0;
      for (const schedule::ScheduledBuffer& buffer : over.buffers)
        if (buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary &&
            buffer.elements >= kLogits) {
          ++arrays;
          EXPECT_EQ(buffer.dtype, products);
        }
      EXPECT_EQ(arrays, 1);
      const auto launches = [](const schedule::Schedule& schedule) {
        return std::count_if(schedule.kernels.begin(), schedule.kernels.end(),
                             [](const auto& kernel) { return kernel.together > 0; });
      };
      EXPECT_LE(launches(over), launches(apart) + 1);
      for (const schedule::ScheduledKernel& kernel : over.kernels)
        EXPECT_EQ(proof::CheckInRange({kernel.ast}), absl::OkStatus());
    }
  }
}

class ScheduleValues : public testing::TestWithParam<std::string> {};

TEST_P(ScheduleValues, AsInterpreted) {
  for (const Program& program : Programs()) {
    if (program.name != GetParam()) continue;
    Graph g;
    const UOp* const sink = RecordProgram(g, program, Size::kSmall);
    // Inputs over 0: some of them are averages of squares.
    ExpectAsInterpreted(sink, 1e-4, 0.1);
  }
}

std::vector<std::string> SmallPrograms() {
  std::vector<std::string> names;
  for (const Program& program : Programs())
    if (program.has_small) names.push_back(program.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Programs, ScheduleValues, testing::ValuesIn(SmallPrograms()),
                         [](const auto& program) { return program.param; });

}  // namespace
}  // namespace outboard::test
