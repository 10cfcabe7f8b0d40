#include "tests/compiler/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compiler/optimize/apply.h"
#include "tests/compiler/kernel_build.h"

namespace outboard::test {
namespace {

constexpr double kEpsilon = 1e-5;

bool HasScale(RowFunction function) {
  return function == RowFunction::kLayerNorm || function == RowFunction::kRmsNorm;
}

struct RowBuilder {
  Graph& g;
  const RowKernel& kernel;
  const UOp* const row = Range(g, 0, kernel.rows);
  const UOp* const column = Range(g, 1, kernel.columns);
  const UOp* const k = ReduceRange(g, 2, kernel.columns);
  const UOp* const l = ReduceRange(g, 3, kernel.columns);

  int64_t elements() const { return kernel.rows * kernel.columns; }
  const UOp* Place(const UOp* at) { return RowMajor(g, {row, at}, {kernel.rows, kernel.columns}); }
  const UOp* Number(double value) { return ConstFloat(g, DType::kF32, value); }
  const UOp* X(const UOp* at) {
    const int64_t slot = kernel.in_place ? 0 : 1;
    return Cast(g, LoadAt(g, slot, kernel.dtype, elements(), Place(at)), DType::kF32);
  }
  const UOp* Scale(int64_t number) {
    const int64_t slot = (kernel.in_place ? 1 : 2) + number;
    return Cast(g, LoadAt(g, slot, kernel.dtype, kernel.columns, column), DType::kF32);
  }
  const UOp* Mean(const UOp* sum) {
    return Alu(g, Op::kFDiv, sum, Number(static_cast<double>(kernel.columns)));
  }
  const UOp* Root(const UOp* variance) {
    return Alu(g, Op::kSqrt, Add(g, variance, Number(kEpsilon)));
  }

  const UOp* Value() {
    if (kernel.function == RowFunction::kRmsNorm) {
      const UOp* const squares = Fold(g, Op::kAdd, Mul(g, X(k), X(k)), {k});
      return Mul(g, Alu(g, Op::kFDiv, X(column), Root(Mean(squares))), Scale(0));
    }
    if (kernel.function == RowFunction::kLayerNorm) {
      const UOp* const minus = Alu(g, Op::kNeg, Mean(Fold(g, Op::kAdd, X(k), {k})));
      const UOp* const apart = Add(g, X(l), minus);
      const UOp* const variance = Mean(Fold(g, Op::kAdd, Mul(g, apart, apart), {l}));
      const UOp* const normal = Alu(g, Op::kFDiv, Add(g, X(column), minus), Root(variance));
      return Add(g, Mul(g, normal, Scale(0)), Scale(1));
    }
    const UOp* const max = Fold(g, Op::kMax, X(k), {k});
    const auto apart = [&](const UOp* at) { return Add(g, X(at), Alu(g, Op::kNeg, max)); };
    const UOp* const sum = Fold(g, Op::kAdd, Alu(g, Op::kExp, apart(l)), {l});
    if (kernel.function == RowFunction::kSoftmax)
      return Alu(g, Op::kFDiv, Alu(g, Op::kExp, apart(column)), sum);
    const UOp* const log = Alu(g, Op::kLog, sum);
    return kernel.function == RowFunction::kStatistics
               ? Add(g, max, log)
               : Add(g, apart(column), Alu(g, Op::kNeg, log));
  }
};

void OneRow(const RowKernel& kernel, const std::vector<double>& x, const std::vector<double>& scale,
            const std::vector<double>& bias, std::vector<double>& out) {
  const auto count = static_cast<double>(x.size());
  double sum = 0, squares = 0, exponentials = 0, max = -INFINITY;
  for (const double value : x) {
    sum += value;
    max = std::max(max, value);
  }
  const double mean = kernel.function == RowFunction::kLayerNorm ? sum / count : 0;
  for (const double value : x) {
    squares += (value - mean) * (value - mean);
    exponentials += std::exp(value - max);
  }
  const double root = std::sqrt(squares / count + kEpsilon);
  if (kernel.function == RowFunction::kStatistics) {
    out.push_back(max + std::log(exponentials));
    return;
  }
  for (size_t c = 0; c < x.size(); ++c) switch (kernel.function) {
      case RowFunction::kSoftmax: out.push_back(std::exp(x[c] - max) / exponentials); break;
      case RowFunction::kLogSoftmax: out.push_back(x[c] - max - std::log(exponentials)); break;
      case RowFunction::kLayerNorm: out.push_back((x[c] - mean) / root * scale[c] + bias[c]); break;
      default: out.push_back(x[c] / root * scale[c]); break;
    }
}

}  // namespace

const char* Name(RowFunction function) {
  switch (function) {
    case RowFunction::kSoftmax: return "softmax";
    case RowFunction::kLogSoftmax: return "log-softmax";
    case RowFunction::kLayerNorm: return "layer norm";
    case RowFunction::kRmsNorm: return "RMS norm";
    case RowFunction::kStatistics: return "statistics of a loss";
  }
  return "";
}

const UOp* MakeRowKernel(Graph& g, const RowKernel& kernel) {
  RowBuilder build{g, kernel};
  if (kernel.function == RowFunction::kStatistics)
    return Sink(g, {StoreAt(g, 0, kernel.rows, build.row, build.Value())});
  return Sink(g, {StoreAt(g, 0, build.elements(), build.Place(build.column),
                          Cast(g, build.Value(), kernel.dtype))});
}

Buffers RowsOf(const RowKernel& kernel, const Buffers& start) {
  const int width = ByteWidth(kernel.dtype);
  const auto numbers = [&](size_t slot, int64_t first) {
    std::vector<double> out;
    for (int64_t c = 0; c < kernel.columns; ++c)
      out.push_back(LoadFloat(kernel.dtype, start[slot].data() + (first + c) * width));
    return out;
  };
  const size_t x = kernel.in_place ? 0 : 1;
  std::vector<double> scale, bias, values;
  if (HasScale(kernel.function)) scale = numbers(x + 1, 0);
  if (kernel.function == RowFunction::kLayerNorm) bias = numbers(x + 2, 0);
  for (int64_t row = 0; row < kernel.rows; ++row)
    OneRow(kernel, numbers(x, row * kernel.columns), scale, bias, values);
  Buffers out = start;
  const DType type = kernel.function == RowFunction::kStatistics ? DType::kF32 : kernel.dtype;
  for (size_t i = 0; i < values.size(); ++i)
    StoreFloat(type, RoundTo(type, values[i]),
               out[0].data() + static_cast<int64_t>(i) * ByteWidth(type));
  return out;
}

void ExpectRows(const RowKernel& kernel, const Buffers& got, const Buffers& want, double tolerance,
                bool absolute) {
  const DType type = kernel.function == RowFunction::kStatistics ? DType::kF32 : kernel.dtype;
  const auto width = static_cast<size_t>(ByteWidth(type));
  for (size_t at = 0; at < want[0].size(); at += width) {
    const double x = LoadFloat(type, got[0].data() + at), y = LoadFloat(type, want[0].data() + at);
    ASSERT_LE(std::abs(x - y), tolerance * std::max(absolute ? 1.0 : 0.0, std::abs(y)))
        << "element " << at / width;
  }
}

uint64_t LeastBytes(const RowKernel& kernel) {
  const auto row = static_cast<uint64_t>(kernel.rows * kernel.columns * ByteWidth(kernel.dtype));
  switch (kernel.function) {
    case RowFunction::kStatistics: return row;
    case RowFunction::kLayerNorm: return 4 * row;
    case RowFunction::kRmsNorm: return 3 * row;
    default: return 2 * row;
  }
}

double SectorsOf(const RowKernel& kernel, const MachineCounts& counts) {
  constexpr uint64_t kSectorBytes = 32;
  return static_cast<double>(counts.global_sectors) /
         static_cast<double>(LeastBytes(kernel) / kSectorBytes);
}

double ToleranceOf(DType dtype) {
  return dtype == DType::kF32 ? 1e-4 : dtype == DType::kF16 ? 0x1p-9 : 0x1p-6;
}

absl::StatusOr<program::Program> ProgramOf(const UOp* sink, const std::string& opts,
                                           const Target& target,
                                           std::vector<program::PassResult>* passes) {
  OB_ASSIGN_OR_RETURN(codegen::LoopNest kernel, codegen::AnalyzeKernel(sink));
  OB_ASSIGN_OR_RETURN(const std::vector<codegen::Opt> list, codegen::ParseOpts(opts));
  OB_ASSIGN_OR_RETURN(const codegen::PlannedKernel planned,
                      codegen::ApplyOpts(std::move(kernel), list, target));
  return program::ExpandPlan(planned.kernel, planned.plan, passes);
}

}  // namespace outboard::test
