// Attention with its scores in memory and without (FLASH), on one core, in turns so that both see
// the same machine: time, kernels and temporaries. attention_bench [-b] [-c] [-v] [-w width]
// [-t half|bfloat16] [-n] [-x classes] [length ...]; -b with gradients, -c masked after each row's
// place, -v lists kernels, -w width of a head, -t type of its numbers, -n without the matrix unit;
// -x cross-entropy with its gradients instead, of `length` rows.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/encoding.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {
namespace {

constexpr int64_t kHeads = 4;
int64_t width = 64;
DType dtype = DType::kF32;
bool has_matrix_unit = true;

Target MeasuredTarget() {
  Target target = HostTarget();
  if (!has_matrix_unit && target.bf16 == Bf16Products::kTiles) target.bf16 = Bf16Products::kVectors;
  return target;
}

constexpr double kSecondsMost = 10;  // of one length
constexpr int kRunsMost = 40;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const UOp* Attention(Graph& graph, int64_t time, bool backward, bool causal) {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  const auto leaf = [&] { return Tensor::zeros({1, kHeads, time, width}, dtype).requires_grad_(); };
  const Tensor q = leaf(), k = leaf(), v = leaf();
  // In f32, as scaled_dot_product_attention has them.
  Tensor scores =
      q.matmul(k.transpose(), DType::kF32) * (1 / std::sqrt(static_cast<double>(width)));
  if (causal) {
    const Tensor place = Tensor::arange(time), later = place > place.reshape({time, 1});
    scores = later.where(-std::numeric_limits<double>::infinity(), scores);
  }
  std::vector<Tensor> results = {scores.softmax().cast(dtype).matmul(v)};
  if (backward) {
    const Tensor upstream = Tensor::zeros(results[0].shape(), dtype).state_();
    for (const Tensor& gradient : results[0].gradient({q, k, v}, upstream))
      results.push_back(gradient);
  }
  realize(results);
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, *session->last.graph));
  SetSession(nullptr);
  return sink;
}

// The mean loss of `rows` labels out of `classes`, from products of rows and weights, and the
// gradients of both.
const UOp* CrossEntropy(Graph& graph, int64_t rows, int64_t classes) {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  const Tensor x = Tensor::zeros({rows, width}).requires_grad_();
  const Tensor weights = Tensor::zeros({classes, width}).requires_grad_();
  const Tensor labels = Tensor::zeros({rows}, DType::kI32).state_();
  // Logits of variance 1: exponentials that are subnormal numbers are another matter.
  const Tensor logits = x.matmul(weights.transpose()) * (1 / std::sqrt(static_cast<double>(width)));
  std::vector<Tensor> results = {logits.sparse_categorical_crossentropy(labels)};
  for (const Tensor& gradient : results[0].gradient({x, weights})) results.push_back(gradient);
  realize(results);
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, *session->last.graph));
  SetSession(nullptr);
  return sink;
}

// A schedule, compiled and with memory.
class Program {
 public:
  Program(const UOp* sink, bool flash)
      : schedule_(
            ValueOrDie(schedule::MakeSchedule(graph_, sink, MeasuredTarget(), {},
                                              {.scores = flash ? schedule::ScorePolicy::kRecompute
                                                               : schedule::ScorePolicy::kKeep}))) {
    Compiler compiler({.target = MeasuredTarget()});
    for (const schedule::ScheduledKernel& kernel : schedule_.kernels)
      kernels_.push_back(ValueOrDie(LoadedKernel::Load(ValueOrDie(compiler.Compile(kernel.ast)))));
    best_.assign(kernels_.size(), std::numeric_limits<double>::infinity());
    arena_.resize(schedule_.arena_bytes / sizeof(Line) + 1);
    std::mt19937_64 random(1);
    for (const schedule::ScheduledBuffer& buffer : schedule_.buffers) {
      if (buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary) {
        memory_.push_back(reinterpret_cast<char*>(arena_.data()) + buffer.index);
        continue;
      }
      own_.emplace_back(buffer.bytes() / sizeof(Line) + 1);
      if (!IsFloat(buffer.dtype)) {  // labels: all the first class
        memory_.push_back(own_.back().data());
        continue;
      }
      char* const bytes = reinterpret_cast<char*>(own_.back().data());
      for (int64_t i = 0; i < buffer.elements; ++i)
        StoreFloat(buffer.dtype, std::normal_distribution<>()(random),
                   bytes + i * ByteWidth(buffer.dtype));
      memory_.push_back(bytes);
    }
  }

  void Run() {
    for (size_t k = 0; k < kernels_.size(); ++k) {
      std::vector<void*> buffers;
      for (const int b : schedule_.kernels[k].buffers) buffers.push_back(memory_[b]);
      const double begin = Now();
      kernels_[k]->Run(buffers.data(), 0, kernels_[k]->kernel().tasks);
      best_[k] = std::min(best_[k], Now() - begin);
    }
  }

  double Seconds() const {
    double seconds = 0;
    for (const double kernel : best_) seconds += kernel;
    return seconds;
  }

  void Print(const char* name, bool list) const {
    std::printf("  %-7s %10.3f ms %3zu kernels %10.3f MB of temporaries\n", name, Seconds() * 1e3,
                kernels_.size(), static_cast<double>(schedule_.arena_bytes) / 1e6);
    for (size_t k = 0; list && k < kernels_.size(); ++k)
      std::printf("    %10.3f ms %s\n", best_[k] * 1e3, KernelToString(schedule_, k).c_str());
  }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };

  Graph graph_;
  schedule::Schedule schedule_;
  std::vector<std::unique_ptr<LoadedKernel>> kernels_;
  std::vector<Line> arena_;
  std::vector<std::vector<Line>> own_;
  std::vector<void*> memory_;  // by Schedule::buffers
  std::vector<double> best_;   // seconds, by kernel
};

void Measure(const std::string& what, const UOp* sink, bool list) {
  Program kept(sink, false), flash(sink, true);
  const double begin = Now();
  for (int run = 0; run < kRunsMost && (run < 2 || Now() - begin < kSecondsMost); ++run) {
    kept.Run();
    flash.Run();
  }
  std::printf("%s: %.2f times as fast\n", what.c_str(), kept.Seconds() / flash.Seconds());
  kept.Print("kept", list);
  flash.Print("FLASH=1", list);
}

}  // namespace
}  // namespace outboard::test

int main(int argc, char** argv) {
  bool backward = false, causal = false, list = false;
  int64_t classes = 0;
  std::vector<int64_t> lengths;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "-b") == 0)
      backward = true;
    else if (std::strcmp(argv[i], "-c") == 0)
      causal = true;
    else if (std::strcmp(argv[i], "-v") == 0)
      list = true;
    else if (std::strcmp(argv[i], "-n") == 0)
      outboard::test::has_matrix_unit = false;
    else if (std::strcmp(argv[i], "-t") == 0 && i + 1 < argc)
      outboard::test::dtype =
          std::strcmp(argv[++i], "half") == 0 ? outboard::DType::kF16 : outboard::DType::kBF16;
    else if (std::strcmp(argv[i], "-x") == 0 && i + 1 < argc)
      classes = std::atoll(argv[++i]);
    else if (std::strcmp(argv[i], "-w") == 0 && i + 1 < argc)
      outboard::test::width = std::atoll(argv[++i]);
    else
      lengths.push_back(std::atoll(argv[i]));
  }
  if (lengths.empty()) lengths = {128, 512, 2048, 4096};
  outboard::WarmUpCompiler();
  for (const int64_t length : lengths) {
    outboard::Graph graph;
    const int64_t width = outboard::test::width;
    if (classes > 0) {
      outboard::test::Measure(absl::StrCat(length, " rows of ", width, ", ", classes, " classes"),
                              outboard::test::CrossEntropy(graph, length, classes), list);
      continue;
    }
    outboard::test::Measure(
        absl::StrCat(outboard::test::kHeads, " heads of ", width, ", length ", length,
                     causal ? ", causal" : "", backward ? ", with gradients" : ""),
        outboard::test::Attention(graph, length, backward, causal), list);
  }
}
