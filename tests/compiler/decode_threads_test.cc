// Attention of a decoded token on a processor: that there are tasks for many threads where heads
// are few, that what is joined of them is what the interpreter says, and the same bits however many
// threads take them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/decoded_attention.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {
namespace {

using Kind = schedule::ScheduledBuffer::Kind;

struct Ran {
  int64_t tasks = 0;  // of the kernel that reads the values
  size_t kernels = 0;
  std::string result;
};

// Each kernel in so many pieces, as threads take them. Memory is 0xA5 before.
Ran RunOnThreads(const Target& target, const DecodedGraph& recorded,
                 std::span<const HostTensor> params, int pieces) {
  Graph graph;
  const auto schedule = ValueOrDie(schedule::MakeSchedule(graph, recorded.sink, target));
  if (std::getenv("DUMP") != nullptr) std::printf("%s", ScheduleToString(schedule).c_str());
  OB_CHECK(recorded.bindings.empty());  // RunGuarded takes no VARs
  Buffers memory;
  int values = -1;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers) {
    memory.emplace_back(static_cast<size_t>(buffer.bytes()), '\xa5');
    if (buffer.kind != Kind::kInput) continue;
    memory.back() = params[buffer.index].bytes;
    if (buffer.index + 1 == static_cast<int64_t>(params.size()))
      values = static_cast<int>(memory.size()) - 1;
  }
  Ran ran{.kernels = schedule.kernels.size()};
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    const auto loaded = ValueOrDie(
        LoadedKernel::Load(ValueOrDie(CompileKernel(kernel.ast, {.target = target}))));
    Buffers own;
    for (const int i : kernel.buffers) own.push_back(memory[i]);
    loaded->RunGuarded(own, pieces);
    for (size_t slot = 0; slot < own.size(); ++slot) memory[kernel.buffers[slot]] = own[slot];
    if (std::count(kernel.buffers.begin(), kernel.buffers.end(), values) > 0)
      ran.tasks = loaded->kernel().tasks;
  }
  for (size_t i = 0; i < schedule.buffers.size(); ++i)
    if (schedule.buffers[i].kind == Kind::kOutput) ran.result = memory[i];
  return ran;
}

Ran CheckDecoded(const Decoded& d) {
  SCOPED_TRACE(testing::Message() << d.heads << " times " << d.group << " heads, " << d.keys
                                  << " keys, width " << d.width);
  Graph graph;
  const DecodedGraph recorded = d.Record(graph);
  const std::vector<HostTensor> params = RandomFloats(recorded.sink);
  const std::vector<double> want =
      FloatsOf(ValueOrDie(Interpret(recorded.sink, params, recorded.bindings))[0]);
  const Ran ran = RunOnThreads(HostTarget(), recorded, params, 1);
  const auto* const got = reinterpret_cast<const float*>(ran.result.data());
  // A weight may round the other way.
  const double tolerance = d.dtype == DType::kF32 ? 1e-4 : 1e-2;
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << i;
  for (const int threads : {2, 13}) {
    Target other = HostTarget();
    other.threads = threads;
    EXPECT_EQ(RunOnThreads(other, recorded, params, threads).result, ran.result)
        << threads << " threads";
  }
  Target undivided = HostTarget();
  undivided.costs.tasks_wanted = 1;
  const Ran whole = RunOnThreads(undivided, recorded, params, 1);
  std::printf("%lld tasks read the values, %lld undivided; %zu kernels, %zu undivided\n",
              static_cast<long long>(ran.tasks), static_cast<long long>(whole.tasks), ran.kernels,
              whole.kernels);
  return ran;
}

TEST(DecodeThreads, FewHeadsOfManyKeys_AreTasksForManyThreads) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    EXPECT_GE(CheckDecoded({.heads = 12, .keys = 8192, .dtype = dtype}).tasks, 32);
  EXPECT_GE(CheckDecoded({.heads = 2, .group = 4, .keys = 8192}).tasks, 32);
}

// A cache that a VAR counts: parts take turns, whatever is bound.
TEST(DecodeThreads, KeysThatAVarCounts_AreDividedToo) {
  for (const int64_t length : {1, 70, 4096}) {
    Graph graph, divided, whole;
    const Decoded d{.heads = 2, .keys = 4096, .dtype = DType::kF32, .length = length};
    const DecodedGraph recorded = d.Record(graph);
    ExpectSame(recorded.sink, RandomFloats(recorded.sink), recorded.bindings);
    Target undivided = TestTarget();
    undivided.costs.tasks_wanted = 1;
    const auto kernels = [&](Graph& g, const Target& target) {
      return ValueOrDie(schedule::MakeSchedule(g, recorded.sink, target)).kernels.size();
    };
    EXPECT_EQ(kernels(divided, TestTarget()), kernels(whole, undivided) + 1);
  }
}

// Heads enough, or keys so few that a kernel more costs more than it saves: nothing is divided.
TEST(DecodeThreads, ManyHeadsAndFewKeysStayWhole) {
  const Decoded whole[] = {
      {.heads = 32, .keys = 8192}, {.heads = 12, .keys = 500}, {.heads = 2, .keys = 2048}};
  for (const Decoded& d : whole) {
    Graph recorded, graph;
    const std::string text = ScheduleToString(
        ValueOrDie(schedule::MakeSchedule(graph, d.Record(recorded).sink, TestTarget())));
    const std::string values =
        absl::StrCat("out ", d.heads, "x", d.width, " loop ", d.keys, " reads in2");
    EXPECT_TRUE(absl::StrContains(text, values)) << values << "\n" << text;
  }
}

}  // namespace
}  // namespace outboard::test
