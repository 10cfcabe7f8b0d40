// Products of matrices for a GPU's matrix units, and a check that their tests share: a kernel's
// program in the interpreter and its PTX on the PTX machine, both against a walk of the kernel.
#pragma once

#include <gmock/gmock.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/expand.h"
#include "compiler/program/interpret.h"
#include "compiler/proof/in_range.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_check.h"

namespace outboard::test {

using codegen::MmaTile;
using codegen::Opt;
using codegen::OptKind;

inline constexpr int kMultiprocessors = 132;

enum class Epilogue { kNone, kBiasAndRelu, kResidual, kTwoResults, kBiasAndPolynomial };

struct GpuProduct {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  bool a_turned = false, b_turned = false;  // a[k,m], b[n,k]
  DType dtype = DType::kBF16, result = DType::kF32;
  Epilogue epilogue = Epilogue::kNone;
  bool cast_a = false;    // a is of f32 in memory
  int64_t a_rows = 0;     // where not 0, a has only so many; beyond is zero
  bool y_turned = false;  // the result is y[n,m]
  bool tf32 = false;      // operands of f32 may be rounded
  DType of_b = DType::kVoid;  // of b, where it has another type
};

// y[batch,m,n] = f(sum a[batch,m,k] * b[batch,k,n] over k); slots y, a, b, bias[n] or residual.
inline const UOp* KernelOf(Graph& g, const GpuProduct& p) {
  const UOp *batch = Range(g, 0, p.batch), *m = Range(g, 1, p.m), *n = Range(g, 2, p.n);
  const UOp* const k = ReduceRange(g, 3, p.k);
  const int64_t rows = p.a_rows > 0 ? p.a_rows : p.m;
  const UOp* const a_index = p.a_turned ? RowMajor(g, {batch, k, m}, {p.batch, p.k, rows})
                                        : RowMajor(g, {batch, m, k}, {p.batch, rows, p.k});
  const UOp* const b_index = p.b_turned ? RowMajor(g, {batch, n, k}, {p.batch, p.n, p.k})
                                        : RowMajor(g, {batch, k, n}, {p.batch, p.k, p.n});
  const DType of_a = p.cast_a ? DType::kF32 : p.dtype;
  const int64_t a_elements = p.batch * rows * p.k;
  const UOp* a = p.a_rows > 0 ? GatedLoadAt(g, 1, of_a, a_elements, a_index, Within(g, m, rows),
                                            ConstFloat(g, of_a, 0))
                              : LoadAt(g, 1, of_a, a_elements, a_index);
  if (of_a != p.dtype) a = Cast(g, a, p.dtype);
  const UOp* const b = LoadAt(g, 2, p.of_b == DType::kVoid ? p.dtype : p.of_b,
                              p.batch * p.k * p.n, b_index);
  const auto wide = [&](const UOp* x) {
    return x->dtype == DType::kF32 ? x : Cast(g, x, DType::kF32);
  };
  const UOp* y = Fold(g, Op::kAdd, Mul(g, wide(a), wide(b)), {k});
  const int64_t elements = p.batch * p.m * p.n;
  const UOp* const at = p.y_turned ? RowMajor(g, {batch, n, m}, {p.batch, p.n, p.m})
                                   : RowMajor(g, {batch, m, n}, {p.batch, p.m, p.n});
  switch (p.epilogue) {
    case Epilogue::kNone:
    case Epilogue::kTwoResults: break;
    case Epilogue::kBiasAndRelu:
      y = Alu(g, Op::kMax, Add(g, y, LoadAt(g, 3, DType::kF32, p.n, n)),
              ConstFloat(g, DType::kF32, 0));
      break;
    case Epilogue::kBiasAndPolynomial: {
      // More operations for each sum than IsShortOfRegisters (lower_mma.cc) takes for few.
      constexpr int kDegree = 8;
      const UOp* const x = Add(g, y, LoadAt(g, 3, DType::kF32, p.n, n));
      y = x;
      for (int i = 1; i < kDegree; ++i) y = Add(g, Mul(g, y, x), ConstFloat(g, DType::kF32, i));
      break;
    }
    case Epilogue::kResidual: y = Add(g, y, wide(LoadAt(g, 3, p.dtype, elements, at))); break;
  }
  std::vector<const UOp*> stores = {
      StoreAt(g, 0, elements, at, p.result == DType::kF32 ? y : Cast(g, y, p.result))};
  if (p.epilogue == Epilogue::kTwoResults)
    stores.push_back(StoreAt(g, 3, elements, at, Mul(g, y, y)));
  return g.MakeChecked(Op::kSink, DType::kVoid, stores,
                       p.tf32 ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{});
}

inline bool UsesMatrixUnits(const std::string& ptx) {
  return ptx.find("mma.sync") != std::string::npos ||
         ptx.find("wgmma.mma_async") != std::string::npos;
}

// By the tile, or by the heuristic's without one; against a walk of `walked`, or of the kernel.
// Small whole numbers of eighths, whose sums f32 holds exactly.
inline void CheckKernel(const UOp* sink, const MmaTile* tile, int64_t axis, double tolerance,
                        const char* arch = "sm_90", bool interpreted = true,
                        const UOp* walked = nullptr) {
  Target target = CudaTarget(arch, kMultiprocessors);
  const Buffers start = RandomBuffers(sink, 1);
  Buffers want = start;
  ASSERT_EQ(WalkKernel(walked != nullptr ? walked : sink, want), absl::OkStatus());
  CompileOptions options{.target = target, .dump = std::getenv("DUMP") != nullptr};
  if (tile != nullptr) options.opts = {{OptKind::kMma, axis, codegen::MmaAmount(*tile)}};
  if (interpreted) {
    Graph guards;
    const codegen::LoopNest kernel = *codegen::AnalyzeKernel(*proof::GuardUnproved(guards, sink));
    const auto plan = codegen::PlanMma(kernel, target, tile != nullptr ? &*options.opts : nullptr);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_TRUE(plan->has_value());
    const auto program = program::ExpandMma(kernel, **plan);
    ASSERT_TRUE(program.ok()) << program.status();
    for (const uint32_t seed : {1u, 2u}) {
      Buffers got = start;
      const program::RunReport report = program::Interpret(*program, got, {}, {.seed = seed});
      ASSERT_TRUE(report.ok()) << report.message << ToString(*program);
      ExpectClose(sink, got, want, tolerance);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  const auto compiled = CompileKernel(sink, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ASSERT_TRUE(UsesMatrixUnits(compiled->object));
  EXPECT_EQ(compiled->object.find(".local"), std::string::npos);
  Buffers got = start;
  const absl::Status ran = RunOnPtxMachine(*compiled, got);
  ASSERT_TRUE(ran.ok()) << ran << "\n" << compiled->object;
  ExpectClose(sink, got, want, tolerance);
}

inline void CheckGpuProduct(const GpuProduct& p, const MmaTile* tile = nullptr,
                            const char* arch = "sm_90", bool interpreted = true) {
  SCOPED_TRACE(testing::Message() << "batch " << p.batch << " m " << p.m << " n " << p.n << " k "
                                  << p.k << " turned " << p.a_turned << p.b_turned << p.y_turned
                                  << " " << std::string(Name(p.dtype)) << " and "
                                  << std::string(Name(p.of_b)) << " epilogue "
                                  << static_cast<int>(p.epilogue) << " tile "
                                  << (tile == nullptr ? 0 : codegen::MmaAmount(*tile)) << " on "
                                  << arch);
  Graph g;
  const int64_t axis = 2 + (p.batch > 1);
  CheckKernel(KernelOf(g, p), tile, axis, p.result == DType::kF32 ? 0 : 8e-3, arch, interpreted);
}

}  // namespace outboard::test
