// Products of one row, and of a few, with a matrix of weights, as decoding tokens has them, on a
// GPU: that packed weights are never expanded in memory, and how many sectors the PTX machine
// counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/nn/ggml.h"
#include "client/tensor/tensor.h"
#include "compiler/compile.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/interpret.h"
#include "compiler/schedule/schedule.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/harness.h"
#include "tests/compiler/kernel_run.h"
#include "tests/gpu/ptx/machine.h"

namespace outboard::test {
namespace {

constexpr int64_t kRows = 96, kTerms = 2048;
constexpr int kMultiprocessors = 132;

enum class Weights { kBf16, kInt8, kQ8, kQ4 };

// Bytes of the weights.
int64_t BytesOf(Weights weights) {
  constexpr int64_t kBlock = 32;
  switch (weights) {
    case Weights::kBf16: return kRows * kTerms * 2;
    case Weights::kInt8: return kRows * kTerms;
    case Weights::kQ8: return kRows * kTerms / kBlock * 34;
    case Weights::kQ4: return kRows * kTerms / kBlock * 18;
  }
  return 0;
}

const UOp* RowsByWeights(Graph& graph, int64_t rows, Weights weights) {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  const Tensor x = Tensor::zeros({rows, kTerms}, DType::kBF16).state_();
  Tensor w;
  switch (weights) {
    case Weights::kBf16: w = Tensor::zeros({kRows, kTerms}, DType::kBF16).state_(); break;
    case Weights::kInt8:
      w = Tensor::zeros({kRows, kTerms}, DType::kI8).state_().cast(DType::kF32) *
          Tensor::zeros({kRows, 1}).state_();
      break;
    case Weights::kQ8:
    case Weights::kQ4: {
      const int64_t bytes = BytesOf(weights) * 32 / (kRows * kTerms);  // of a block
      w = nn::dequantize(Tensor::zeros({BytesOf(weights) / bytes, bytes}, DType::kU8).state_(),
                         weights == Weights::kQ8 ? files::GgmlType::kQ8_0 : files::GgmlType::kQ4_0)
              .reshape({kRows, kTerms});
      break;
    }
  }
  realize(std::vector<Tensor>{x.cast(w.dtype()).matmul(w.transpose(), DType::kF32)});
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, *session->last.graph));
  SetSession(nullptr);
  return sink;
}

// Small numbers; of packed weights the scales of blocks, f16 in the first two bytes, too.
std::string RandomBytes(const UOp* param, Weights weights, std::mt19937& random) {
  const HostTensor shape{param->dtype, StaticDims(param->shape), {}};
  std::string bytes(static_cast<size_t>(shape.ElementCount() * ByteWidth(param->dtype)), '\0');
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    char* const at = bytes.data() + i * ByteWidth(param->dtype);
    if (IsFloat(param->dtype))
      StoreFloat(param->dtype, static_cast<double>(random() % 17) / 8 - 1, at);
    else
      *at = static_cast<char>(random());
  }
  if (param->dtype == DType::kU8) {
    const int64_t block = weights == Weights::kQ8 ? 34 : 18;
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(block))
      StoreFloat(DType::kF16, 0.125, bytes.data() + at);
  }
  return bytes;
}

// The most bytes of f32 sums that are kept for a while: of parts of a sum that blocks share. Of the
// weights that is a small part: their scales fit, too.
int64_t BytesOfSums(int64_t rows) {
  constexpr int64_t kParts = 4, kScalesOfRow = kTerms / 32;
  return kRows * 4 * std::max(rows * kParts, kScalesOfRow);
}

absl::Status Launch(const CompiledKernel& kernel, const std::vector<uint64_t>& addresses,
                    ptx::Machine& machine) {
  OB_ASSIGN_OR_RETURN(const auto module, machine.Load(kernel.object));
  ptx::LaunchConfig config;
  for (size_t axis = 0; axis < 3; ++axis) {
    config.grid[axis] = static_cast<uint32_t>(kernel.blocks[axis]);
    config.block[axis] = static_cast<uint32_t>(kernel.threads[axis]);
  }
  config.parameters.resize(addresses.size() * sizeof(uint64_t));
  std::memcpy(config.parameters.data(), addresses.data(), config.parameters.size());
  OB_RETURN_IF_ERROR(machine.Launch(*module, kernel.symbol, config));
  if (machine.reports().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(machine.reports()[0].ToString());
}

// Sectors to the fewest: weights once, and for each result the row.
double CheckDecoded(int64_t rows, Weights weights) {
  using Kind = schedule::ScheduledBuffer::Kind;
  Graph recorded, graph;
  const UOp* const sink = RowsByWeights(recorded, rows, weights);
  std::mt19937 random(1);
  std::vector<HostTensor> params;
  for (const UOp* param : ParamsOf(sink))
    params.push_back({param->dtype, StaticDims(param->shape), RandomBytes(param, weights, random)});
  const std::vector<double> want = FloatsOf(ValueOrDie(Interpret(sink, params))[0]);
  const Target target = CudaTarget("sm_90", kMultiprocessors);
  const auto schedule = ValueOrDie(schedule::MakeSchedule(graph, sink, target));
  ptx::DeviceMemory memory;
  ptx::Machine machine(&memory);
  std::vector<uint64_t> addresses;
  uint64_t result = 0;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers) {
    addresses.push_back(memory.Allocate(static_cast<size_t>(buffer.bytes())));
    if (buffer.kind == Kind::kTemporary) {
      EXPECT_LE(buffer.bytes(), BytesOfSums(rows)) << "weights are expanded in memory";
    }
    if (buffer.kind == Kind::kOutput) result = addresses.back();
    if (buffer.kind == Kind::kInput) {
      const std::string& bytes = params[buffer.index].bytes;
      OB_CHECK(memory.Write(addresses.back(), bytes.data(), bytes.size()));
    }
  }
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    std::vector<uint64_t> own;
    for (const int i : kernel.buffers) own.push_back(addresses[i]);
    const CompiledKernel compiled = ValueOrDie(
        CompileKernel(kernel.ast, {.target = target, .dump = std::getenv("DUMP") != nullptr}));
    const absl::Status ran = Launch(compiled, own, machine);
    EXPECT_EQ(ran, absl::OkStatus()) << ran;
  }
  std::vector<float> got(want.size());
  OB_CHECK(memory.Read(result, got.data(), got.size() * sizeof(float)));
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-4 * (1 + std::abs(want[i]))) << i;
  const double least = static_cast<double>(BytesOf(weights) + rows * kRows * kTerms * 2) / 32;
  return static_cast<double>(machine.counters().global_sectors) / least;
}

constexpr std::pair<Weights, const char*> kAll[] = {{Weights::kBf16, "bf16"},
                                                    {Weights::kInt8, "int8"},
                                                    {Weights::kQ8, "Q8_0"},
                                                    {Weights::kQ4, "Q4_0"}};

TEST(DecodeKernels, PackedWeightsAreUnpackedInRegisters) {
  for (const auto& [weights, name] : kAll) {
    SCOPED_TRACE(name);
    const double ratio = CheckDecoded(1, weights);
    // Blocks of 34 and 18 bytes are read number by number.
    const bool in_blocks = weights == Weights::kQ8 || weights == Weights::kQ4;
    EXPECT_LE(ratio, in_blocks ? 3.1 : 1.05);
    std::printf("sectors of a row by %s weights: %.3f of the fewest\n", name, ratio);
  }
}

// A small batch, or guesses of the next tokens that are checked together.
TEST(DecodeKernels, PackedWeightsOfAFewRowsAreUnpackedInRegisters) {
  for (const int64_t rows : {4, 8, 16, 64}) {
    for (const auto& [weights, name] : kAll) {
      SCOPED_TRACE(absl::StrCat(rows, " rows, ", name));
      const double ratio = CheckDecoded(rows, weights);
      std::printf("sectors of %d rows by %s weights: %.3f of the fewest\n", static_cast<int>(rows),
                  name, ratio);
    }
  }
}

}  // namespace
}  // namespace outboard::test
