// The launches of whole programs, as people train them, as PTX: each is compiled, leaves nothing to
// a stack (but for StackBytesMax) and is assembled where NVIDIA's assembler is there. Prints what
// compiling takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/copies.h"
#include "compiler/optimize/opt.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "compiler/starting_opts.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

// Bytes that a launch of a step leaves to the stack, where it does: sums of weights' gradients with
// their updates, in several copies.
int64_t StackBytesMax(const std::string& program) {
  static const std::map<std::string, int64_t>* const known = new std::map<std::string, int64_t>{
      {"gpt_step_1_layer", 8}, {"gpt_step_12_layers", 16}};
  const auto found = known->find(program);
  return found == known->end() ? 0 : found->second;
}

class PtxPrograms : public testing::TestWithParam<Program> {};

// Of this thread's own processor time.
double NowMs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

// Layers of a program, and programs of the same layers, have the same kernels but for their names:
// each text is assembled once. Returns the bytes that it left to the stack.
absl::StatusOr<int64_t> AssembleOnce(const std::string& ptxas, const CompiledKernel& kernel,
                                     const std::string& arch) {
  static std::map<std::string, absl::StatusOr<int64_t>>* const known =
      new std::map<std::string, absl::StatusOr<int64_t>>();
  const std::string text = absl::StrReplaceAll(kernel.object, {{kernel.symbol, "kernel"}});
  const auto found = known->find(text);
  if (found != known->end()) return found->second;
  return known->emplace(text, StackBytesOf(ptxas, kernel.object, arch)).first->second;
}

// Those of a worker: its schedule, with results over the inputs that the client gives up, and equal
// kernels in one launch. None of these is refused for its parameters.
TEST_P(PtxPrograms, EveryLaunch_IsPtxThatIsAssembled) {
  constexpr char kArch[] = "sm_90a";
  const Target target = CudaTarget(kArch, /*multiprocessors=*/132);
  const std::string ptxas = FindPtxas();
  Graph g;
  std::vector<int64_t> donated;
  const UOp* const sink = RecordProgram(g, GetParam(), Size::kReal, &donated);
  const auto schedule =
      ValueOrDie(schedule::MakeSchedule(g, sink, target, donated, ScheduleOptionsFor(target)));
  Compiler compiler({.target = target});
  std::set<const UOp*> known;
  std::vector<double> ms;
  int assembled = 0, launches = 0;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const schedule::ScheduledKernel& kernel = schedule.kernels[k];
    if (kernel.together == 0) continue;
    ++launches;
    const UOp* const launch = WithCopies(g, kernel.ast, kernel.together);
    if (!known.insert(launch).second) continue;
    const double start = NowMs();
    const auto compiled = compiler.Compile(launch);
    ms.push_back(NowMs() - start);
    ASSERT_TRUE(compiled.ok()) << compiled.status() << KernelToString(schedule, k);
    EXPECT_FALSE(absl::StrContains(compiled->object, ".local")) << compiled->object;
    if (ptxas.empty() || compiled->tasks == 0) continue;
    const auto spilled = AssembleOnce(ptxas, *compiled, kArch);
    ASSERT_TRUE(spilled.ok()) << spilled.status() << KernelToString(schedule, k);
    EXPECT_LE(*spilled, StackBytesMax(GetParam().name)) << KernelToString(schedule, k);
    ++assembled;
  }
  constexpr int kLaunchesOfGpt2 = 260;  // wanted at most of 12 layers
  if (absl::StartsWith(GetParam().name, "gpt2_step")) EXPECT_LE(launches, kLaunchesOfGpt2);
  std::sort(ms.begin(), ms.end());
  if (!ms.empty())
    std::printf(
        "%s: %d launches, %zu distinct ones, %d assembled; PTX in %.2f ms (median), %.2f ms "
        "(longest)\n",
        GetParam().name.c_str(), launches, ms.size(), assembled, ms[ms.size() / 2], ms.back());
}

// What a step of a model with GPT-2's vocabulary does with its logits: kernels that need each row
// of them several times have it in a cluster of blocks, by vectors of 8 or 16 bytes, and spill
// nothing.
TEST(PtxLogits, OfALargeVocabularyAreReadByClusters) {
  constexpr int64_t kVocabulary = 50257, kContext = 64, kBatch = 8;
  const Target target = CudaTarget("sm_90a", /*multiprocessors=*/132);
  const std::string ptxas = FindPtxas();
  for (const DType products : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(Name(products));
    const Program program = GptStep("gpt_step",
                                    {.vocabulary = kVocabulary,
                                     .layers = 1,
                                     .width = 32,
                                     .heads = 2,
                                     .context = kContext,
                                     .products = products},
                                    kBatch);
    Graph g;
    std::vector<int64_t> donated;
    const UOp* const sink = RecordProgram(g, program, Size::kReal, &donated);
    int clusters = 0;
    for (const schedule::ScheduledKernel& kernel :
         ValueOrDie(schedule::MakeSchedule(g, sink, target, donated, ScheduleOptionsFor(target)))
             .kernels) {
      const std::string opts =
          codegen::OptsToString(ValueOrDie(StartingOpts(kernel.ast, target)).front());
      if (!absl::StartsWith(opts, "CLUSTER:")) continue;
      ++clusters;
      const auto compiled = CompileKernel(kernel.ast, {.target = target});
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      EXPECT_TRUE(absl::StrContains(compiled->object, "ld.global.v")) << opts;
      EXPECT_TRUE(absl::StrContains(compiled->object, "st.global.v")) << opts;
      if (ptxas.empty()) continue;
      const auto assembled = AssembleKernel(ptxas, compiled->object, target.arch);
      ASSERT_TRUE(assembled.ok()) << assembled.status();
      EXPECT_EQ(assembled->spill_bytes + assembled->stack_bytes, 0) << opts;
    }
    EXPECT_GE(clusters, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PtxPrograms, testing::ValuesIn(Programs()),
                         [](const auto& info) { return info.param.name; });
// Of 12 layers: as many equal kernels as one launch has no room for.
INSTANTIATE_TEST_SUITE_P(Gpt2, PtxPrograms,
                         testing::Values(Gpt2Step("gpt2_step_f32"),
                                         Gpt2Step("gpt2_step_bf16", DType::kBF16)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace outboard::test
