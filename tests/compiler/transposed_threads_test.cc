// What threads do of kernels that read along another axis than they write (transpositions, copies
// to another layout): the sectors that the PTX machine counts, the widths of accesses, the results.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/threads/thread_opts.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::test {
namespace {

struct Case {
  const char* what;
  std::vector<int64_t> dims;  // of the operand
  std::vector<int> order;     // of its axes, in the result
  double most = 1.05;         // sectors, of the least
};

const UOp* Permuted(Graph& g, DType dtype, const Case& c, bool plus) {
  std::vector<const UOp*> result, operand(c.dims.size());
  std::vector<int64_t> result_dims;
  int64_t elements = 1;
  for (const int axis : c.order) {
    const int64_t extent = c.dims[static_cast<size_t>(axis)];
    result.push_back(Range(g, static_cast<int64_t>(result.size()), extent));
    operand[static_cast<size_t>(axis)] = result.back();
    result_dims.push_back(extent);
    elements *= extent;
  }
  const UOp* const index = RowMajor(g, result, result_dims);
  const UOp* value = LoadAt(g, 1, dtype, elements, RowMajor(g, operand, c.dims));
  if (plus) value = Add(g, LoadAt(g, 2, dtype, elements, index), value);
  return Sink(g, {StoreAt(g, 0, elements, index, value)});
}

TEST(TransposedThreads, Explore) {
  const char* opts = std::getenv("OPTS");
  const std::vector<Case> cases = {
      {"1024^2", {1024, 1024}, {1, 0}},     {"200x300", {200, 300}, {1, 0}},
      {"300x200", {300, 200}, {1, 0}},      {"1000x999", {1000, 999}, {1, 0}},
      {"999x1000", {999, 1000}, {1, 0}},    {"0,2,1", {8, 96, 160}, {0, 2, 1}},
      {"2,1,0", {64, 10, 96}, {2, 1, 0}},   {"1,0,2", {20, 30, 64}, {1, 0, 2}},
      {"nhwc3", {8, 3, 56, 56}, {0, 2, 3, 1}}, {"nhwc64", {4, 64, 28, 28}, {0, 2, 3, 1}},
      {"nhwc64_7", {8, 64, 7, 7}, {0, 2, 3, 1}}, {"nchw64", {4, 28, 28, 64}, {0, 3, 1, 2}},
  };
  for (const Case& c : cases)
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8})
      for (const bool plus : {false, true}) {
        if (std::getenv("ONLY") && std::string(std::getenv("ONLY")) != c.what) continue;
        if (opts != nullptr && (plus || dtype != DType::kF32)) continue;
        Graph g;
        const UOp* const sink = Permuted(g, dtype, c, plus);
        CompileOptions options{.target = CudaTarget("sm_90", 132)};
        if (opts != nullptr) {
          auto parsed = codegen::ParseOpts(opts);
          ASSERT_TRUE(parsed.ok()) << parsed.status();
          options.opts = *parsed;
        }
        const auto compiled = CompileKernel(sink, options);
        ASSERT_TRUE(compiled.ok()) << compiled.status();
        const Buffers start = RandomBuffers(sink, 1);
        Buffers got = start;
        MachineCounts counts;
        const absl::Status ran = RunOnPtxMachine(*compiled, got, {}, 1, nullptr, &counts);
        ASSERT_TRUE(ran.ok()) << ran << compiled->object;
        uint64_t bytes = 0;
        for (const std::string& buffer : start) bytes += buffer.size();
        std::printf("%-9s %-5s %d: %.3f  instr/element %.2f blocks %lld  %s\n", c.what,
                    std::string(Name(dtype)).c_str(), plus,
                    counts.global_sectors / (bytes / 32.0),
                    32.0 * counts.warp_instructions / (bytes / ByteWidth(dtype) / (2 + plus)),
                    (long long)(compiled->blocks[0] * compiled->blocks[1]),
                    codegen::OptsToString(options.opts ? *options.opts : codegen::ThreadOpts(*codegen::AnalyzeKernel(sink), options.target)).c_str());
        if (std::getenv("SHOW")) std::printf("%s\n", compiled->object.c_str());
      }
}

}  // namespace
}  // namespace outboard::test
