#include "tests/bench/gpu_shape_figures.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "tests/bench/gpu_plan.h"
#include "tests/compiler/attention_programs.h"
#include "worker/engine/device_target.h"

namespace outboard::bench {
namespace {

constexpr int64_t kTokens = 16384, kColumns = 2048;  // of attention

int64_t Part(int64_t size, int64_t divisor, int64_t least) {
  return std::max(least, size / divisor);
}

const UOp* Product(Graph& g, int64_t m, int64_t k, int64_t n) {
  const auto operand = [&](int64_t slot, const Shape& own, const Shape& spread) {
    const UOp* const x = Reshape(g, Param(g, slot, DType::kBF16, own), spread);
    return Cast(g, Expand(g, x, {m, k, n}), DType::kF32);
  };
  const UOp* const product =
      Mul(g, operand(0, {m, k}, {m, k, 1}), operand(1, {k, n}, {1, k, n}));
  return Sink(g, {Cast(g, Reduce(g, Op::kAdd, product, {1}), DType::kBF16)});
}

// Runs the plan kEqualRuns times and compares all results.
absl::Status CompareRuns(GpuPlan& plan, const std::string& name, EqualBits& measured) {
  std::vector<std::string> first;
  bool equal = true;
  for (int run = 0; run < kEqualRuns; ++run) {
    OB_RETURN_IF_ERROR(plan.Queue());
    OB_ASSIGN_OR_RETURN(std::vector<std::string> results, plan.Results());
    if (run == 0)
      first = std::move(results);
    else
      equal = equal && results == first;
  }
  ++measured.steps;
  measured.equal += equal ? 1 : 0;
  if (!equal) absl::StrAppend(&measured.unequal, " ", name);
  return absl::OkStatus();
}

}  // namespace

std::string ProductShape::Name() const {
  return absl::StrCat("matmul_shape_", rows, "x", steps, "x", columns);
}

std::vector<ProductShape> ModelProducts() {
  return {{8192, 768, 2304},   {8192, 768, 768},    {8192, 768, 3072},  {8192, 3072, 768},
          {4096, 4096, 12288}, {4096, 4096, 4096},  {4096, 4096, 11008}, {4096, 11008, 4096}};
}

std::string AttentionCase::Name(bool backward) const {
  return absl::StrCat("attention_", backward ? "backward" : "forward", "_", width, "_", rows,
                      causal ? "_causal" : "");
}

std::vector<AttentionCase> ModelAttention() {
  std::vector<AttentionCase> cases;
  for (const int64_t width : {64, 128})
    for (const int64_t rows : {1024, 2048, 4096, 8192, 16384})
      for (const bool causal : {false, true}) cases.push_back({width, rows, causal});
  return cases;
}

absl::StatusOr<ShapesMeasured> MeasureModelShapes(
    runtime::Device& device, const GpuTrial& trial, int64_t divisor,
    const std::function<void(const ShapesMeasured&)>& report) {
  const Target target = worker::TargetOfDevice(device.properties());
  ShapesMeasured measured;
  bool searching = false;
  std::vector<GpuProgram> programs;
  for (const ProductShape& shape : ModelProducts())
    programs.push_back({shape.Name(), [=](Graph& g) {
                          return SentProgram{Product(g, Part(shape.rows, divisor, 64),
                                                     Part(shape.steps, divisor, 64),
                                                     Part(shape.columns, divisor, 64))};
                        }});
  for (const AttentionCase& one : ModelAttention())
    for (const bool backward : {false, true}) {
      test::AttentionShape shape = {.queries = Part(one.rows, divisor, 32),
                                    .keys = Part(one.rows, divisor, 32),
                                    .width = one.width,
                                    .causal = one.causal,
                                    .backward = backward,
                                    .dtype = DType::kBF16};
      shape.heads = Part(kColumns / one.width, divisor, 1);
      shape.batch = Part(kTokens / one.rows, divisor, 1);
      programs.push_back({one.Name(backward), [shape](Graph& g) {
                            return SentProgram{test::AttentionGraph(g, shape)};
                          }});
      if (backward)
        programs.back().check = [&, name = one.Name(true)](GpuPlan& plan) {
          return CompareRuns(plan, name, searching ? measured.after_beam : measured.as_chosen);
        };
    }
  GpuTrial reported = trial;
  reported.before_search = [&] {
    if (report != nullptr) report(measured);
    searching = true;
  };
  OB_ASSIGN_OR_RETURN(measured.times, MeasurePrograms(device, target, programs, reported));
  return measured;
}

double MeanRatio(const std::vector<DeviceTimes>& ours, const std::map<std::string, double>& torch,
                 const std::string& prefix, double DeviceTimes::*seconds) {
  double logs = 0;
  int count = 0;
  for (const DeviceTimes& time : ours) {
    if (!absl::StartsWith(time.name, prefix)) continue;
    const auto theirs = torch.find(time.name);
    if (theirs == torch.end() || !(time.*seconds > 0) || !(theirs->second > 0)) return 0;
    logs += std::log(theirs->second / (time.*seconds));
    ++count;
  }
  return count == 0 ? 0 : std::exp(logs / count);
}

}  // namespace outboard::bench
