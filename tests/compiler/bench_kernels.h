// Kernels by name for benchmarks of generated code: those of a small convolutional network,
// products of matrices, elementwise functions and reductions.
#pragma once

#include <functional>
#include <string>

#include "tests/compiler/kernel_shapes.h"

namespace outboard::test {

using MakeKernel = std::function<const UOp*(Graph&)>;

// Calls `run` with each kernel's name and what makes it.
inline void ForBenchKernels(
    const std::function<void(const std::string& name, const MakeKernel& make)>& run) {
  const Conv conv1{128, 1, 32, 5, 28, 28}, conv2{128, 32, 32, 5, 24, 24},
      conv3{128, 32, 64, 3, 10, 10}, conv4{128, 64, 64, 3, 8, 8};
  const std::pair<const char*, Conv> convs[] = {
      {"1", conv1}, {"2", conv2}, {"3", conv3}, {"4", conv4}};
  for (const auto& [n, c] : convs) {
    const auto name = [n = n](const char* what) { return std::string("conv") + n + " " + what; };
    run(name("forward"), [&c = c](Graph& g) { return ConvForward(g, c); });
    run(name("weight gradient"), [&c = c](Graph& g) { return ConvWeightGradient(g, c); });
    run(name("input gradient"), [&c = c](Graph& g) { return ConvInputGradient(g, c, false); });
    run(name("input gradient, gated"),
        [&c = c](Graph& g) { return ConvInputGradient(g, c, true); });
  }
  run("matmul 512", [](Graph& g) { return MatMul(g, 512, 512, 512); });
  run("matmul 512 transposed", [](Graph& g) { return MatMul(g, 512, 512, 512, true); });
  run("matmul 1024", [](Graph& g) { return MatMul(g, 1024, 1024, 1024); });
  run("matmul 1024 transposed", [](Graph& g) { return MatMul(g, 1024, 1024, 1024, true); });
  run("matmul 2048", [](Graph& g) { return MatMul(g, 2048, 2048, 2048); });
  run("matmul 4096", [](Graph& g) { return MatMul(g, 4096, 4096, 4096); });
  const auto weights = [&run](const char* name, int64_t rows, int64_t columns, int64_t tokens) {
    run(name, [=](Graph& g) {
      const UOp *i = Range(g, 0, rows), *j = Range(g, 1, columns), *k = ReduceRange(g, 2, tokens);
      const UOp* const x =
          LoadAt(g, 1, DType::kF32, tokens * rows, RowMajor(g, {k, i}, {tokens, rows}));
      const UOp* const y =
          LoadAt(g, 2, DType::kF32, tokens * columns, RowMajor(g, {k, j}, {tokens, columns}));
      return Sink(g, {StoreAt(g, 0, rows * columns, RowMajor(g, {i, j}, {rows, columns}),
                              Fold(g, Op::kAdd, Mul(g, x, y), {k}))});
    });
  };
  weights("weights 512x128 of 768", 512, 128, 768);
  weights("weights 128x512 of 768", 128, 512, 768);
  weights("weights 128x128 of 768", 128, 128, 768);
  weights("weights 1024x256 of 512", 1024, 256, 512);
  weights("weights 256x1024 of 512", 256, 1024, 512);
  weights("weights 256x256 of 512", 256, 256, 512);
  run("matmul 128x10x576", [](Graph& g) { return MatMul(g, 128, 10, 576); });
  run("matmul 128x10x576 transp.", [](Graph& g) { return MatMul(g, 128, 10, 576, true); });
  run("elementwise", [](Graph& g) {
    const int64_t n = 128 * 32 * 20 * 20;
    const UOp* const i = Range(g, 0, n);
    const UOp *a = LoadAt(g, 1, DType::kF32, n, i), *b = LoadAt(g, 2, DType::kF32, n, i);
    return Sink(
        g, {StoreAt(g, 0, n, i,
                    Alu(g, Op::kMax, Add(g, Mul(g, a, b), a), ConstFloat(g, DType::kF32, 0)))});
  });
  // NEG is what reading and writing costs.
  for (const Op op :
       {Op::kNeg, Op::kExp, Op::kExp2, Op::kLog, Op::kLog2, Op::kSin, Op::kCos, Op::kTanh})
    run(std::string(Name(op)), [op](Graph& g) {
      const int64_t n = 1 << 18;
      const UOp* const i = Range(g, 0, n);
      return Sink(g, {StoreAt(g, 0, n, i, Alu(g, op, LoadAt(g, 1, DType::kF32, n, i)))});
    });
  run("batch statistics", [](Graph& g) {
    const UOp *c = Range(g, 0, 32), *b = ReduceRange(g, 1, 128), *p = ReduceRange(g, 2, 400);
    const UOp* const x =
        LoadAt(g, 1, DType::kF32, 128 * 32 * 400, RowMajor(g, {b, c, p}, {128, 32, 400}));
    return Sink(g, {StoreAt(g, 0, 32, c, Fold(g, Op::kAdd, x, {b, p})),
                    StoreAt(g, 2, 32, c, Fold(g, Op::kAdd, Mul(g, x, x), {b, p}))});
  });
  run("sum of all", [](Graph& g) {
    const UOp* const k = ReduceRange(g, 0, 1 << 20);
    return Sink(g, {StoreAt(g, 0, 1, ConstIndex(g, 0),
                            Fold(g, Op::kAdd, LoadAt(g, 1, DType::kF32, 1 << 20, k), {k}))});
  });
  run("sum of columns", [](Graph& g) {
    const UOp *j = Range(g, 0, 320), *k = ReduceRange(g, 1, 4096);
    const UOp* const x = LoadAt(g, 1, DType::kF32, 4096 * 320, RowMajor(g, {k, j}, {4096, 320}));
    return Sink(g, {StoreAt(g, 0, 320, j, Fold(g, Op::kAdd, x, {k}))});
  });
  run("max pool", [](Graph& g) {
    const UOp *a = Range(g, 0, 128 * 32), *h = Range(g, 1, 10), *w = Range(g, 2, 10);
    const UOp *i = ReduceRange(g, 3, 2), *j = ReduceRange(g, 4, 2);
    const UOp* const two = ConstIndex(g, 2);
    const UOp* const x = LoadAt(
        g, 1, DType::kF32, 128 * 32 * 400,
        RowMajor(g, {a, Add(g, Mul(g, h, two), i), Add(g, Mul(g, w, two), j)}, {128 * 32, 20, 20}));
    return Sink(g, {StoreAt(g, 0, 128 * 3200, RowMajor(g, {a, h, w}, {4096, 10, 10}),
                            Fold(g, Op::kMax, x, {i, j}))});
  });
  run("transpose", [](Graph& g) {
    const UOp *i = Range(g, 0, 1024), *j = Range(g, 1, 1024);
    return Sink(g,
                {StoreAt(g, 0, 1 << 20, RowMajor(g, {i, j}, {1024, 1024}),
                         LoadAt(g, 1, DType::kF32, 1 << 20, RowMajor(g, {j, i}, {1024, 1024})))});
  });
}

}  // namespace outboard::test
