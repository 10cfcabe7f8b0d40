// A training step of a small convolutional network, kernel by kernel: what each compiles to and how
// fast it runs on one core. DUMP=<number> prints a kernel's expression, plan and IR;
// OPTS="<number> <opts>" compiles that kernel with these Opts.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/gradient/gradient.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Network {
 public:
  const UOp* Step(int64_t batch) {
    const UOp* x = Input({batch, 1, 28, 28});
    x = Relu(Bias(Conv(x, Weight({32, 1, 5, 5})), Weight({32})));
    x = Relu(Bias(Conv(x, Weight({32, 32, 5, 5})), Weight({32})));
    x = MaxPool(BatchNorm(x));
    x = Relu(Bias(Conv(x, Weight({64, 32, 3, 3})), Weight({64})));
    x = Relu(Bias(Conv(x, Weight({64, 64, 3, 3})), Weight({64})));
    x = MaxPool(BatchNorm(x));
    x = Reshape(g_, x, {batch, 576});
    const UOp* const logits =
        Add(g_, MatMul(x, Weight({576, 10})), Spread(Weight({10}), {batch, 10}, {1}));
    const UOp* const labels = BufferNode(g_, handle_++, DType::kI32, {batch});
    const UOp* const loss = CrossEntropy(logits, labels);
    std::vector<const UOp*> results = {loss};
    const auto gradients = ValueOrDie(Gradient(g_, loss, nullptr, weights_));
    for (size_t i = 0; i < weights_.size(); ++i) Adam(weights_[i], gradients[i], results);
    return Sink(g_, results);
  }

  Graph& graph() { return g_; }

 private:
  const UOp* Input(const Shape& dims) { return BufferNode(g_, handle_++, DType::kF32, dims); }
  const UOp* Weight(const Shape& dims) {
    weights_.push_back(Input(dims));
    return weights_.back();
  }
  const UOp* Number(double value, ShapeView dims) {
    return Full(g_, ConstFloat(g_, DType::kF32, value), dims);
  }
  const UOp* Scale(const UOp* x, double by) { return Mul(g_, x, Number(by, x->shape)); }
  const UOp* Minus(const UOp* a, const UOp* b) { return Add(g_, a, Alu(g_, Op::kNeg, b)); }
  const UOp* Relu(const UOp* x) { return Alu(g_, Op::kMax, x, Number(0, x->shape)); }
  // `x`, whose dims are those of `axes`, along them.
  const UOp* Spread(const UOp* x, const Shape& dims, const std::vector<int>& axes) {
    Shape ones(dims.size(), Dim(1));
    for (const int axis : axes) ones[axis] = dims[axis];
    return Expand(g_, Reshape(g_, x, ones), dims);
  }
  const UOp* Bias(const UOp* x, const UOp* b) {
    return Add(g_, x, Spread(b, Shape(x->shape.begin(), x->shape.end()), {1}));
  }

  const UOp* Windows(const UOp* x, int axis, int64_t kernel) {
    const int64_t length = x->shape[axis].value(), places = length - kernel + 1;
    Shape dims(x->shape.begin(), x->shape.end());
    dims.insert(dims.begin() + axis, {Dim(places), Dim(kernel)});
    const auto along = [&](int64_t n, int where) {
      return Spread(Iota(g_, DType::kI32, Dim(n)), dims, {where});
    };
    const UOp* const place = Add(g_, along(places, axis), along(kernel, axis + 1));
    Shape ones(x->shape.begin(), x->shape.end());
    ones.insert(ones.begin() + axis, {Dim(1), Dim(1)});
    const UOp* const spread = Expand(g_, Reshape(g_, x, ones), dims);
    const UOp* const hot =
        Where(g_, Alu(g_, Op::kCmpEq, along(length, axis + 2), place), spread, Number(0, dims));
    Shape result = dims;
    result.erase(result.begin() + axis + 2);
    return Reshape(g_, Reduce(g_, Op::kAdd, hot, {axis + 2}), result);
  }
  const UOp* Conv(const UOp* x, const UOp* w) {
    const int64_t k = w->shape[2].value();
    const UOp* const turned = Permute(g_, Windows(Windows(x, 2, k), 4, k), {0, 2, 4, 1, 3, 5});
    const Shape s(turned->shape.begin(), turned->shape.end());
    const Dim o = w->shape[0];
    const Shape full = {s[0], o, s[1], s[2], s[3], s[4], s[5]};
    const UOp* const left =
        Expand(g_, Reshape(g_, turned, {s[0], 1, s[1], s[2], s[3], s[4], s[5]}), full);
    const UOp* const right = Expand(g_, Reshape(g_, w, {1, o, 1, 1, s[3], s[4], s[5]}), full);
    return Reshape(g_, Reduce(g_, Op::kAdd, Mul(g_, left, right), {4, 5, 6}),
                   {s[0], o, s[1], s[2]});
  }
  const UOp* MatMul(const UOp* a, const UOp* b) {
    const Shape full = {a->shape[0], a->shape[1], b->shape[1]};
    const UOp* const left = Expand(g_, Reshape(g_, a, {full[0], full[1], 1}), full);
    const UOp* const right = Expand(g_, Reshape(g_, b, {1, full[1], full[2]}), full);
    return Reshape(g_, Reduce(g_, Op::kAdd, Mul(g_, left, right), {1}), {full[0], full[2]});
  }
  const UOp* MaxPool(const UOp* x) {
    const Shape s(x->shape.begin(), x->shape.end());
    const int64_t h = s[2].value() / 2, w = s[3].value() / 2;
    const UOp* const cut = Shrink(g_, x, {0, s[0], 0, s[1], 0, 2 * h, 0, 2 * w});
    return Reshape(g_, Reduce(g_, Op::kMax, Reshape(g_, cut, {s[0], s[1], h, 2, w, 2}), {3, 5}),
                   {s[0], s[1], h, w});
  }
  const UOp* BatchNorm(const UOp* x) {
    const Shape s(x->shape.begin(), x->shape.end()), c = {s[1]};
    const double count = static_cast<double>(s[0].value() * s[2].value() * s[3].value());
    const auto mean = [&](const UOp* v) {
      return Reshape(g_, Scale(Reduce(g_, Op::kAdd, v, {0, 2, 3}), 1 / count), c);
    };
    const UOp* const centred = Minus(x, Spread(mean(x), s, {1}));
    const UOp* const variance = mean(Mul(g_, centred, centred));
    const UOp* const deviation = Alu(g_, Op::kSqrt, Add(g_, variance, Number(1e-5, c)));
    const UOp* const normal = Alu(g_, Op::kFDiv, centred, Spread(deviation, s, {1}));
    return Add(g_, Mul(g_, normal, Spread(Weight(c), s, {1})), Spread(Weight(c), s, {1}));
  }
  const UOp* CrossEntropy(const UOp* logits, const UOp* labels) {
    const Shape s(logits->shape.begin(), logits->shape.end());
    const UOp* const most =
        Expand(g_, Reduce(g_, Op::kMax, Alu(g_, Op::kNeg, Alu(g_, Op::kNeg, logits)), {1}), s);
    const UOp* const shifted = Minus(logits, g_.MakeChecked(Op::kDetach, DType::kVoid, {most}));
    const UOp* const sum =
        Reduce(g_, Op::kAdd, Alu(g_, Op::kExp2, Scale(shifted, 1.4426950408889634)), {1});
    const UOp* const log = Scale(Alu(g_, Op::kLog2, sum), 0.6931471805599453);
    const UOp* const hot =
        Alu(g_, Op::kCmpEq, Spread(Iota(g_, DType::kI32, s[1]), s, {1}), Spread(labels, s, {0}));
    const UOp* const picked = Where(g_, hot, Minus(Expand(g_, log, s), shifted), Number(0, s));
    return Scale(Reshape(g_, Reduce(g_, Op::kAdd, picked, {0, 1}), {}),
                 1.0 / static_cast<double>(s[0].value()));
  }
  void Adam(const UOp* w, const UOp* gradient, std::vector<const UOp*>& results) {
    const Shape s(w->shape.begin(), w->shape.end());
    const UOp* const m = Add(g_, Scale(Input(s), 0.9), Scale(gradient, 0.1));
    const UOp* const v = Add(g_, Scale(Input(s), 0.999), Scale(Mul(g_, gradient, gradient), 0.001));
    const UOp* const step = Alu(g_, Op::kFDiv, m, Add(g_, Alu(g_, Op::kSqrt, v), Number(1e-8, s)));
    results.insert(results.end(), {Minus(w, Scale(step, 1e-3)), m, v});
  }

  Graph g_;
  uint64_t handle_ = 1;
  std::vector<const UOp*> weights_;
};

int Run(int64_t batch) {
  Network network;
  double start = Now();
  const UOp* const step = network.Step(batch);
  const auto encoded = ValueOrDie(EncodeGraph(step));
  Graph g;
  const UOp* const sink = ValueOrDie(DecodeGraph(g, encoded.bytes));
  std::printf("graph %.1f ms, %zu nodes\n", (Now() - start) * 1e3, PostOrder(sink).size());
  start = Now();
  const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, HostTarget()));
  std::printf("schedule %.1f ms, %zu kernels, %.1f MB of temporaries\n", (Now() - start) * 1e3,
              schedule.kernels.size(), static_cast<double>(schedule.arena_bytes) / 1e6);
  std::vector<const UOp*> kernels;
  for (const auto& kernel : schedule.kernels) kernels.push_back(kernel.ast);
  WarmUpCompiler();
  std::vector<std::optional<std::vector<codegen::Opt>>> opts(kernels.size());
  if (const char* const given = std::getenv("OPTS")) {
    char* rest = nullptr;
    const size_t kernel = std::strtoul(given, &rest, 10);
    OB_CHECK(kernel < opts.size());
    opts[kernel] = ValueOrDie(codegen::ParseOpts(rest));
  }
  start = Now();
  Compiler compiler;
  std::vector<absl::StatusOr<CompiledKernel>> compiled;
  for (size_t k = 0; k < kernels.size(); ++k)
    compiled.push_back(compiler.Compile(kernels[k], opts[k]));
  std::printf("compile %.1f ms\n", (Now() - start) * 1e3);

  const char* const dump = std::getenv("DUMP");
  double total = 0, flops = 0;
  for (size_t k = 0; k < kernels.size(); ++k) {
    if (!compiled[k].ok()) {
      std::printf("%3zu %s\n", k, compiled[k].status().ToString().c_str());
      continue;
    }
    if (dump != nullptr && std::atoi(dump) == static_cast<int>(k))
      (void)CompileKernel(kernels[k], {.dump = true, .opts = opts[k]});
    const auto loaded = ValueOrDie(LoadedKernel::Load(*compiled[k]));
    std::vector<std::vector<char>> memory;
    std::vector<void*> buffers;
    for (const int b : schedule.kernels[k].buffers) {
      memory.emplace_back(schedule.buffers[b].bytes() + 64);
      buffers.push_back(reinterpret_cast<void*>(
          (reinterpret_cast<uintptr_t>(memory.back().data()) + 63) & ~uintptr_t{63}));
    }
    double best = 1e9, spent = 0;
    for (int i = 0; i < 20 && (i < 2 || spent < 0.1); ++i) {
      const double t = Now();
      loaded->Run(buffers.data(), 0, loaded->kernel().tasks);
      spent += Now() - t;
      best = std::min(best, Now() - t);
    }
    std::string loops;
    for (const UOp* node : PostOrder(kernels[k]))
      if (node->op == Op::kRange)
        loops += (IsRange(node, RangeKind::kOutput) ? " r" : " k") +
                 std::to_string(RangeOf(node).id()) + ":" + std::to_string(RangeOf(node).extent());
    start = Now();
    (void)CompileKernel(kernels[k]);
    const double compile_ms = (Now() - start) * 1e3;
    std::printf(
        "%3zu %9.3f ms %7.1f GFLOP/s %6.1f GB/s tasks %6ld compile %5.1f ms stores %zu loops%s\n",
        k, best * 1e3, static_cast<double>(compiled[k]->flops) / best / 1e9,
        static_cast<double>(compiled[k]->bytes) / best / 1e9, static_cast<long>(compiled[k]->tasks),
        compile_ms, kernels[k]->src.size(), loops.c_str());
    total += best;
    flops += static_cast<double>(compiled[k]->flops);
  }
  std::printf("step %.2f ms on one core, %.1f GFLOP/s\n", total * 1e3, flops / total / 1e9);
  return 0;
}

}  // namespace
}  // namespace outboard::test

int main(int argc, char** argv) { return outboard::test::Run(argc > 1 ? std::atoi(argv[1]) : 128); }
