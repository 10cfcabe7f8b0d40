// GFLOP/s and GB/s of compiled kernels on one core, and what compiling them takes. An argument
// picks kernels by name. OPTS="VECTOR:1:16 ..." is used instead of the heuristic's; DUMP=1 prints
// expression, plan and IR; OBJECT=<path> keeps the object.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/accessors.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/kernel_shapes.h"

namespace outboard::test {
namespace {

// Of this thread's own processor time: others that use the machine cost cache misses at most.
double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void Measure(const char* name, const UOp* sink) {
  const bool dump = std::getenv("DUMP") != nullptr;
  CompileOptions options{.dump = dump};
  if (const char* opts = std::getenv("OPTS")) options.opts = ValueOrDie(codegen::ParseOpts(opts));
  const double start = Now();
  CompiledKernel kernel = ValueOrDie(CompileKernel(sink, options));
  const double compile_ms = (Now() - start) * 1e3;
  if (const char* path = std::getenv("OBJECT")) {
    std::FILE* const file = std::fopen(path, "wb");
    std::fwrite(kernel.object.data(), 1, kernel.object.size(), file);
    std::fclose(file);
  }
  const auto loaded = ValueOrDie(LoadedKernel::Load(std::move(kernel)));
  std::vector<std::vector<char>> memory;
  std::vector<void*> buffers;
  for (const UOp* node : PostOrder(sink)) {
    if (node->op != Op::kGlobal) continue;
    const auto slot = static_cast<size_t>(GlobalOf(node).slot());
    if (memory.size() <= slot) memory.resize(slot + 1);
    memory[slot].resize(GlobalOf(node).elements() * ByteWidth(node->dtype) + 64);
    if (node->dtype == DType::kF32)
      for (int64_t i = 0; i < GlobalOf(node).elements(); ++i)
        reinterpret_cast<float*>(memory[slot].data())[i] = 0.25f * (i % 7);
  }
  for (auto& bytes : memory)
    buffers.push_back(
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) & ~uintptr_t{63}));
  const CompiledKernel& k = loaded->kernel();
  double best = 1e9, spent = 0;
  for (int i = 0; i < 100 && (i < 3 || spent < 0.3); ++i) {
    const double t = Now();
    loaded->Run(buffers.data(), 0, k.tasks);
    const double seconds = Now() - t;
    spent += seconds;
    best = std::min(best, seconds);
  }
  std::printf(
      "%-26s %9.3f ms %8.1f GFLOP/s %7.1f GB/s  tasks %6ld  compile %6.1f ms  object %6zu B\n",
      name, best * 1e3, static_cast<double>(k.flops) / best / 1e9,
      static_cast<double>(k.bytes) / best / 1e9, static_cast<long>(k.tasks), compile_ms,
      k.object.size());
}

}  // namespace
}  // namespace outboard::test

int main(int argc, char** argv) {
  using namespace outboard;        // NOLINT
  using namespace outboard::test;  // NOLINT
  WarmUpCompiler();
  const auto run = [&](const char* name, const std::function<const UOp*(Graph&)>& make) {
    if (argc > 1 && std::strstr(name, argv[1]) == nullptr) return;
    Graph g;
    Measure(name, make(g));
  };
  const Conv conv1{128, 1, 32, 5, 28, 28}, conv2{128, 32, 32, 5, 24, 24},
      conv3{128, 32, 64, 3, 10, 10}, conv4{128, 64, 64, 3, 8, 8};
  const std::pair<const char*, Conv> convs[] = {
      {"1", conv1}, {"2", conv2}, {"3", conv3}, {"4", conv4}};
  for (const auto& [n, c] : convs) {
    const auto name = [n = n](const char* what) { return std::string("conv") + n + " " + what; };
    run(name("forward").c_str(), [&c = c](Graph& g) { return ConvForward(g, c); });
    run(name("weight gradient").c_str(), [&c = c](Graph& g) { return ConvWeightGradient(g, c); });
    run(name("input gradient").c_str(),
        [&c = c](Graph& g) { return ConvInputGradient(g, c, false); });
    run(name("input gradient, gated").c_str(),
        [&c = c](Graph& g) { return ConvInputGradient(g, c, true); });
  }
  run("matmul 512", [](Graph& g) { return MatMul(g, 512, 512, 512); });
  run("matmul 512 transposed", [](Graph& g) { return MatMul(g, 512, 512, 512, true); });
  run("matmul 1024", [](Graph& g) { return MatMul(g, 1024, 1024, 1024); });
  run("matmul 1024 transposed", [](Graph& g) { return MatMul(g, 1024, 1024, 1024, true); });
  run("matmul 2048", [](Graph& g) { return MatMul(g, 2048, 2048, 2048); });
  run("matmul 4096", [](Graph& g) { return MatMul(g, 4096, 4096, 4096); });
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
    run(std::string(Name(op)).c_str(), [op](Graph& g) {
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
  return 0;
}
