// Prints what an NVIDIA GPU would launch for networks, without one: launches, bytes by the sizes of
// buffers, which unit computes each product of matrices, and how long the schedule took.
//   gpu_network_units ARCH PROGRAM ...
// Programs: resnet50, a training step of it as a user writes it, 32 pictures of 224 x 224 in bf16,
// batch norm in f32 after each convolution; gpt2_bf16, one of GPT-2 124M, 8 x 1,024; and
// first:C:S:F:K:T or last:C:S:F:K:T, a convolution of 32 pictures of C channels and S x S places by
// F filters of K x K, that move by T, with its result and both gradients, channels first or last.
// With VERBOSE=1 each kernel is a line.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "client/nn/layers.h"
#include "client/nn/state.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/copies.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/encoding.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::bench {
namespace {

constexpr int kMultiprocessors = 132;  // of an H100
constexpr int64_t kPictures = 32;

Tensor Held(const Dims& dims, DType dtype = DType::kBF16) {
  return Tensor::zeros(dims, dtype).state_();
}

// ---- ResNet-50 (He et al., 2015; strides in the 3 x 3 convolutions, as in PyTorch)

class ResNet50 {
 public:
  Tensor operator()(const Tensor& pictures) {
    Tensor x =
        Layer(pictures, 64, 7, 2).relu().max_pool2d({.kernel = 3, .stride = 2, .padding = 1});
    const int64_t blocks[] = {3, 4, 6, 3};
    int64_t inner = 64;
    for (int stage = 0; stage < 4; ++stage, inner *= 2)
      for (int64_t block = 0; block < blocks[stage]; ++block) {
        const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        const Tensor shortcut = block == 0 ? Layer(x, 4 * inner, 1, stride) : x;
        const Tensor y =
            Layer(Layer(Layer(x, inner, 1, 1).relu(), inner, 3, stride).relu(), 4 * inner, 1, 1);
        x = (y + shortcut).relu();
      }
    const Tensor weight = Weight({2048, 1000}), bias = Weight({1000});
    return x.mean({2, 3}).matmul(weight) + bias;
  }
  const std::vector<Tensor>& leaves() const { return leaves_; }

 private:
  Tensor Weight(const Dims& dims) {
    leaves_.push_back(Held(dims).requires_grad_());
    return leaves_.back();
  }
  // A convolution and its norm.
  Tensor Layer(const Tensor& x, int64_t filters, int64_t kernel, int64_t stride) {
    const Tensor weight = Weight({filters, x.shape()[1], kernel, kernel});
    const nn::BatchNorm2d norm(filters);
    const Tensor y = x.conv2d(weight, {}, {.stride = stride, .padding = kernel / 2});
    nn::StateDict state;
    norm.Collect(state, "norm");
    leaves_.push_back(norm.weight);
    leaves_.push_back(norm.bias);
    return norm(y.cast(DType::kF32)).cast(DType::kBF16);
  }

  std::vector<Tensor> leaves_;
};

void TrainResNet50() {
  const TrainingMode training(true);
  ResNet50 network;
  const Tensor logits = network(Held({kPictures, 3, 224, 224}));
  const Tensor loss =
      logits.cast(DType::kF32).sparse_categorical_crossentropy(Held({kPictures}, DType::kI32));
  std::vector<Tensor> results = {loss};
  for (const Tensor& gradient : loss.gradient(network.leaves())) results.push_back(gradient);
  realize(results);
}

// ---- one convolution

void Convolve(const std::vector<int64_t>& sizes, bool channels_last) {
  const int64_t channels = sizes[0], side = sizes[1], filters = sizes[2], kernel = sizes[3];
  const auto held = [&](int64_t count, int64_t depth, int64_t length) {
    return channels_last ? Held({count, length, length, depth}).permute({0, 3, 1, 2})
                         : Held({count, depth, length, length});
  };
  const auto result = [&](const Tensor& x) { return channels_last ? x.permute({0, 2, 3, 1}) : x; };
  const Tensor x = held(kPictures, channels, side), w = held(filters, channels, kernel);
  const Tensor y = x.conv2d(w, {}, {.stride = sizes[4], .padding = kernel / 2});
  std::vector<Tensor> results = {result(y)};
  for (const Tensor& gradient : y.gradient({x, w}, held(kPictures, filters, y.shape()[2])))
    results.push_back(result(gradient));
  realize(results);
}

test::Program Named(const std::string& name) {
  if (name == "gpt2_bf16") return test::Gpt2Step(name, DType::kBF16);
  if (name == "resnet50") return {name, [](test::Size) { TrainResNet50(); }};
  const std::vector<std::string> parts = absl::StrSplit(name, ':');
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < parts.size(); ++i) {
    sizes.push_back(0);
    OB_CHECK(absl::SimpleAtoi(parts[i], &sizes.back()));
  }
  OB_CHECK(sizes.size() == 5 && (parts[0] == "first" || parts[0] == "last"));
  return {name, [sizes, last = parts[0] == "last"](test::Size) { Convolve(sizes, last); }};
}

// ---- what is launched

// How many output ranges a value depends on, without those of sums in it.
size_t OutputRangesOf(const UOp* value) {
  size_t ranges = 0;
  absl::flat_hash_set<const UOp*> seen = {value};
  std::vector<const UOp*> open = {value};
  while (!open.empty()) {
    const UOp* const node = open.back();
    open.pop_back();
    if (node->op == Op::kReduceLoop) continue;
    if (IsRange(node, RangeKind::kOutput)) ++ranges;
    for (const UOp* s : node->src)
      if (seen.insert(s).second) open.push_back(s);
  }
  return ranges;
}

// Multiplications and additions of a product of matrices, each of which has rows or columns that
// the other one has not: of the largest one. 0 for other kernels.
double Operations(const UOp* ast) {
  double most = 0;
  for (const UOp* node : PostOrder(ast)) {
    const UOp* const product = schedule::ProductSummed(node);
    if (product == nullptr) continue;
    const size_t ranges = OutputRangesOf(product);
    const bool of_matrices =
        std::all_of(product->src.begin(), product->src.end(),
                    [&](const UOp* factor) { return OutputRangesOf(factor) < ranges; });
    if (of_matrices) most = std::max(most, 2 * schedule::TermsOf(node));
  }
  return most;
}

struct Unit {
  char name = '-';
  std::vector<std::string> given_up;
};

// Of one kernel where so many copies of it are over what a launch may have.
Unit UnitOf(Compiler& compiler, const UOp* copies, const UOp* alone) {
  absl::StatusOr<CompiledKernel> compiled = compiler.Compile(copies);
  if (!compiled.ok()) compiled = compiler.Compile(alone);
  if (!compiled.ok()) return {'!', {std::string(compiled.status().message())}};
  const bool warpgroups = absl::StrContains(compiled->object, "wgmma.mma_async"),
             warps = absl::StrContains(compiled->object, "mma.sync");
  return {warpgroups ? 'w' : warps ? 'm' : '-', compiled->given_up};
}

// Of this thread.
double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void Print(const std::string& arch, const std::string& name) {
  const Target target = CudaTarget(arch, kMultiprocessors);
  const bool verbose = std::getenv("VERBOSE") != nullptr;
  Graph graph;
  std::vector<int64_t> donated;
  const UOp* const sink = test::RecordProgram(graph, Named(name), test::Size::kReal, &donated);
  const double before = CpuSeconds();
  const schedule::Schedule schedule =
      ValueOrDie(schedule::MakeSchedule(graph, sink, target, donated, ScheduleOptionsFor(target)));
  const double seconds = CpuSeconds() - before;
  Compiler compiler({.target = target});
  absl::flat_hash_map<GraphId, Unit> units;
  std::map<char, std::pair<int, double>> products;  // by unit: kernels, operations
  std::string launched;
  int launches = 0, given_up = 0;
  double bytes = 0;
  Unit unit;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const schedule::ScheduledKernel& kernel = schedule.kernels[k];
    for (const int buffer : kernel.buffers)
      bytes += static_cast<double>(schedule.buffers[static_cast<size_t>(buffer)].bytes());
    if (kernel.together > 0) {
      const UOp* const ast = WithCopies(graph, kernel.ast, kernel.together);
      const auto [known, fresh] = units.try_emplace(ValueOrDie(EncodeGraph(ast)).id);
      if (fresh) known->second = UnitOf(compiler, ast, kernel.ast);
      unit = known->second;
      ++launches;
      absl::StrAppend(&launched, launched.empty() ? "" : " ", std::string(1, unit.name));
    }
    const double operations = Operations(kernel.ast);
    if (verbose)
      std::printf("%c %8.3f GFLOP  %s%s%s\n", unit.name, operations / 1e9,
                  KernelToString(schedule, k).c_str(), unit.given_up.empty() ? "" : "  given up: ",
                  absl::StrJoin(unit.given_up, "; ").c_str());
    if (operations == 0) continue;
    given_up += unit.name != 'w' && !unit.given_up.empty() ? 1 : 0;
    ++products[unit.name].first;
    products[unit.name].second += operations;
  }
  std::printf("%s for %s: %d launches, %.1f MB, %.1f MB of temporaries", name.c_str(), arch.c_str(),
              launches, bytes / 1e6, static_cast<double>(schedule.arena_bytes) / 1e6);
  for (const auto& [of, count] : products)
    std::printf("; %c: %d products, %.1f GFLOP", of, count.first, count.second / 1e9);
  std::printf("; %d planned for another unit; %.2f s\n", given_up, seconds);
  if (launches <= 32) std::printf("  %s\n", launched.c_str());
}

}  // namespace
}  // namespace outboard::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "gpu_network_units ARCH PROGRAM ...\n");
    return 2;
  }
  for (int i = 2; i < argc; ++i) outboard::bench::Print(argv[1], argv[i]);
  return 0;
}
