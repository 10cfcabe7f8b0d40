// What a program's graphs do on GPUs that are not here.
#include "cli/estimate/scheduled_work.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"

namespace outboard::cli {
namespace {

using session::KernelWork;
using session::ProductKind;

// [n, k] times [k, m], with a sum in f32.
const UOp* Product(Graph& g, const UOp* a, const UOp* b) {
  const Dim n = a->shape[0], k = a->shape[1], m = b->shape[1];
  const auto wide = [&](const UOp* x) {
    return x->dtype == DType::kF32 ? x : Cast(g, x, DType::kF32);
  };
  const UOp* const left = Expand(g, Reshape(g, wide(a), {n, k, 1}), {n, k, m});
  const UOp* const right = Expand(g, Reshape(g, wide(b), {1, k, m}), {n, k, m});
  return Reshape(g, Reduce(g, Op::kAdd, Mul(g, left, right), {1}), {n, m});
}

std::vector<KernelWork> KernelsOf(const UOp* result, const Target& target,
                                  std::vector<Binding> bindings = {}) {
  Graph graph;
  const EncodedGraph encoded = ValueOrDie(EncodeGraph(Sink(graph, {result})));
  return ValueOrDie(ScheduledKernels(
      {.encoding = std::make_shared<const std::string>(encoded.bytes),
       .bindings = std::move(bindings), .steps = 1},
      target));
}

// 1,024 by 1,024 times 1,024 by 512.
KernelWork ProductOn(const Target& target, DType dtype) {
  Graph g;
  const UOp* const a = Param(g, 0, dtype, {1024, 1024});
  const UOp* const b = Param(g, 1, dtype, {1024, 512});
  const std::vector<KernelWork> kernels = KernelsOf(Product(g, a, b), target);
  EXPECT_EQ(kernels.size(), 1u) << target.arch;
  return kernels[0];
}

TEST(ScheduledWork, AProduct_IsComputedByTheMatrixUnitThatTheGpuHasForIt) {
  const Target cdna = AmdTarget("gfx942", 304), rdna = AmdTarget("gfx1100", 96),
               hopper = CudaTarget("sm_90a", 132), ampere = CudaTarget("sm_80", 108),
               ada = CudaTarget("sm_89", 142);
  for (const Target& target : {cdna, rdna, hopper, ampere, ada}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const KernelWork work = ProductOn(target, dtype);
      EXPECT_EQ(work.kind, ProductKind::kHalf) << target.arch;
      EXPECT_EQ(work.products, 2.0 * 1024 * 1024 * 512) << target.arch;
      EXPECT_EQ(work.bytes, 2.0 * (1024 * 1024 + 1024 * 512) + 4.0 * 1024 * 512) << target.arch;
    }
  }
  EXPECT_EQ(ProductOn(ampere, DType::kF32).kind, ProductKind::kThreeTf32);
  EXPECT_EQ(ProductOn(hopper, DType::kF32).kind, ProductKind::kThreeTf32);
  // Three products of TF32 take as long as one of f32 there; AMD's units have none for f32.
  EXPECT_EQ(ProductOn(ada, DType::kF32).kind, ProductKind::kF32);
  EXPECT_EQ(ProductOn(cdna, DType::kF32).kind, ProductKind::kF32);
  EXPECT_EQ(ProductOn(hopper, DType::kF8E4M3).kind, ProductKind::kF8);
}

TEST(ScheduledWork, WhatIsComputedTogether_IsOneKernel_AndReadsEachArrayOnce) {
  Graph g;
  const UOp* const a = Param(g, 0, DType::kBF16, {1024, 1024});
  const UOp* const b = Param(g, 1, DType::kBF16, {1024, 512});
  const UOp* const bias = Param(g, 2, DType::kF32, {1024, 512});
  const UOp* const sum = Add(g, Product(g, a, b), bias);
  for (const Target& target : {AmdTarget("gfx942", 304), CudaTarget("sm_90a", 132)}) {
    const std::vector<KernelWork> kernels = KernelsOf(Mul(g, sum, sum), target);
    ASSERT_EQ(kernels.size(), 1u) << target.arch;
    EXPECT_EQ(kernels[0].others, 2 * 1024 * 512) << target.arch;
    EXPECT_EQ(kernels[0].bytes, 2.0 * (1024 * 1024 + 1024 * 512) + 8.0 * 1024 * 512);
  }
}

// Blocks of a cluster divide such a sum, as in a worker's plans; warps leave its parts to a second.
TEST(ScheduledWork, ASumThatBlocksDivide_IsOneKernel) {
  Graph g;
  const UOp* const product = Product(g, Param(g, 0, DType::kBF16, {128, 4096}),
                                     Param(g, 1, DType::kBF16, {4096, 128}));
  EXPECT_EQ(KernelsOf(product, CudaTarget("sm_90a", 132)).size(), 1u);
  EXPECT_EQ(KernelsOf(product, CudaTarget("sm_90", 132)).size(), 2u);
}

TEST(ScheduledWork, AVariable_HasTheValueOfItsBinding) {
  Graph g;
  const UOp* const n = Var(g, 0, 1, 100'000);
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(n)});
  const Target target = CudaTarget("sm_90a", 132);
  const auto bytes = [&](int64_t value) {
    return KernelsOf(Add(g, x, x), target, {{0, value}}).at(0).bytes;
  };
  EXPECT_EQ(bytes(1'000), 8'000);
  EXPECT_EQ(bytes(50'000), 400'000);
}

TEST(ScheduledWork, OfAProgram_CountsEachGraphAsOftenAsItRan) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {1 << 20});
  const EncodedGraph encoded = ValueOrDie(EncodeGraph(Sink(g, {Add(g, x, x)})));
  const session::SentGraph sent{.encoding = std::make_shared<const std::string>(encoded.bytes),
                                .steps = 7};
  const session::RecordedWork before{.runs = 7, .steps = 7, .graphs = 1,
                                     .kernels = {{.products = 1}}};
  const session::RecordedWork work = ScheduledFor(AmdTarget("gfx942", 304), before, {sent});
  ASSERT_EQ(work.kernels.size(), 1u);
  EXPECT_EQ(work.kernels[0].count, 7);
  EXPECT_EQ(work.kernels[0].bytes, 8 << 20);
  const session::SentGraph broken{.encoding = std::make_shared<const std::string>("no graph"),
                                  .steps = 1};
  EXPECT_NE(ScheduledFor(AmdTarget("gfx942", 304), before, {broken}).unknown, "");
  // A program that has not written all its graphs.
  for (const std::vector<session::SentGraph>& graphs :
       {std::vector<session::SentGraph>{}, {sent, sent}}) {
    const session::RecordedWork counted = ScheduledFor(AmdTarget("gfx942", 304), before, graphs);
    EXPECT_FALSE(HasAllGraphs(before, graphs));
    EXPECT_EQ(counted.kernels, before.kernels) << graphs.size();
    EXPECT_EQ(counted.unknown, "");
  }
}

}  // namespace
}  // namespace outboard::cli
