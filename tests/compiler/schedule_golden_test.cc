// What the schedule makes of programs that people write: how many kernels, and that they compute
// what the interpreter does. A count may only go down. SHOW=<name> prints a program's kernels.
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_format.h"
#include "compiler/ir/check.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/schedule_check.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

constexpr char kKernels[] = R"(
softmax                       1
softmax_backward              1
log_softmax                   1
cross_entropy                 5
layer_norm                    1
layer_norm_backward           2
batch_norm                    2
batch_norm_backward           2
variance                      2
attention                     3
attention_backward            8
embedding_backward            2
conv_chain                    3
sgd_step                      1
adamw_step                    5
mnist_forward                 9
mnist_forward_backward       34
mnist_step                   39
transformer_block            11
transformer_block_backward   36
gpt_step_1_layer             53
gpt_step_2_layers            89
)";

TEST(ScheduleGolden, Kernels) {
  const char* const show = std::getenv("SHOW");
  std::string kernels = "\n";
  for (const Program& program : Programs()) {
    Graph g;
    const UOp* const sink = RecordProgram(g, program, Size::kReal);
    const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink));
    if (show != nullptr && program.name == show)
      std::fputs(ScheduleToString(schedule).c_str(), stdout);
    absl::StrAppendFormat(&kernels, "%-28s%3d\n", program.name, schedule.kernels.size());
  }
  EXPECT_EQ(kernels, kKernels) << "the new table:" << kernels;
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
