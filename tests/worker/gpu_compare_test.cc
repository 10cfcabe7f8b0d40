// A GPU compares the results of a search's candidates itself (compiler/search/compare.h); its
// driver is the tests' own (tests/gpu/driver).
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/ir/encoding.h"
#include "compiler/search/compare.h"
#include "compiler/search/verify.h"
#include "tests/compiler/kernel_shapes.h"
#include "tests/support/device.h"
#include "tests/support/paths.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/tuning/kernel_measurer.h"

namespace outboard::worker {
namespace {

using search::IsWithinTolerance;
using search::kDifferenceCounts;
using search::Verifier;
using test::LoadAt;
using test::Range;
using test::StoreAt;

class GpuCompare : public ::testing::Test {
 protected:
  GpuCompare() {
    setenv("OUTBOARD_DEVICE", "cuda", 1);
    setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, 1);
    setenv("OUTBOARD_FAKE_CUDA_RUNS", "1", 1);
    setenv("OUTBOARD_FAKE_CUDA_MIB", "16", 1);
    device_ = test::MakeDevice(16 << 20);
    compiler_ = std::make_unique<InProcessCompiler>(
        CompileOptions{.target = TargetOfDevice(device_->properties())});
  }

  CompiledKernel Compiled(const UOp* sink, std::optional<std::string> opts = std::nullopt) {
    const KernelSource source{EncodeGraph(sink)->bytes, std::move(opts)};
    return ValueOrDie(std::move(compiler_->Compile({&source, 1})[0]));
  }

  // What KernelMeasurer needs of one kernel, the right results on the device.
  struct Search {
    std::unique_ptr<KernelMeasurer> measurer;
    Verifier verifier;
  };
  Search Expecting(const UOp* sink) {
    auto measurer = std::make_unique<KernelMeasurer>(EncodeGraph(sink)->bytes, compiler_.get(),
                                                     device_.get(), MeasurerOptions{});
    OB_CHECK_OK(measurer->Open());
    Verifier verifier = ValueOrDie(Verifier::Make(
        sink, Compiled(sink, ""),
        [run = measurer.get()](const CompiledKernel& kernel, std::span<void* const> buffers,
                               int64_t begin, int64_t end) {
          return run->Run(kernel, buffers, begin, end);
        }));
    OB_CHECK_OK(measurer->KeepExpected(verifier.Expected()));
    return {std::move(measurer), std::move(verifier)};
  }

  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<InProcessCompiler> compiler_;
};

// Every type, with all that a number can be, beside itself and beside each other one.
TEST_F(GpuCompare, TheDeviceCountsWhatTheHostWould) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const double values[] = {0,     -0.0,  1,    -1,   1.0005, 1.002,  1.03, 1.07,
                           1.4,   1e-5,  2e-3, 1000, 1000.5, 1002,   1030, 1070,
                           -1e-5, 1400,  240,  416,  448,    kInfinite, -kInfinite, std::nan("")};
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kI8, DType::kI32, DType::kI64,
                            DType::kF8E4M3, DType::kF8E5M2, DType::kF16, DType::kBF16, DType::kF32,
                            DType::kF64}) {
    SCOPED_TRACE(Name(dtype));
    const int width = ByteWidth(dtype);
    std::string got, want;
    int64_t differ = 0;
    const auto add = [&](const char* x, const char* y) {
      got.append(x, width), want.append(y, width);
      const bool equal = IsFloat(dtype)
                             ? IsWithinTolerance(dtype, LoadFloat(dtype, x), LoadFloat(dtype, y))
                             : std::memcmp(x, y, width) == 0;
      differ += !equal;
    };
    for (const double x : values)
      for (const double y : values) {
        char from[8], to[8];
        if (IsFloat(dtype)) {
          StoreFloat(dtype, x, from), StoreFloat(dtype, y, to);
        } else {
          if (!std::isfinite(x) || !std::isfinite(y)) continue;
          StoreInt(dtype, static_cast<int64_t>(x) % (IsBool(dtype) ? 2 : 100), from);
          StoreInt(dtype, static_cast<int64_t>(y) % (IsBool(dtype) ? 2 : 100), to);
        }
        add(from, to);
      }
    // What nobody wrote is no result, not of zeros either.
    const std::string unwritten(8, search::UnwrittenByte(dtype)), zero(8, '\0');
    const int64_t before = differ;
    add(unwritten.data(), zero.data());
    EXPECT_EQ(differ, before + 1);
    ASSERT_GT(differ, 2);
    const auto elements = static_cast<int64_t>(got.size()) / width;
    ASSERT_LT(differ, elements);

    Graph g;
    const UOp* const sink = search::DifferencesKernel(g, dtype, elements);
    const auto kernel = ValueOrDie(device_->Load(Compiled(sink)));
    std::vector<runtime::DeviceBuffer> memory;
    const std::string* const contents[] = {&got, &want};
    memory.push_back(ValueOrDie(device_->Allocate(kDifferenceCounts * sizeof(int32_t))));
    for (const std::string* bytes : contents) {
      memory.push_back(ValueOrDie(device_->Allocate(static_cast<int64_t>(bytes->size()))));
      OB_CHECK_OK(device_->Upload(memory.back().address(), *bytes));
    }
    const runtime::DeviceAddress addresses[] = {memory[0].address(), memory[1].address(),
                                                memory[2].address()};
    ASSERT_EQ(device_->Launch(*kernel, addresses, {}), absl::OkStatus());
    const std::string bytes = test::BytesOf(memory[0]);
    std::vector<int32_t> counts(kDifferenceCounts);
    std::memcpy(counts.data(), bytes.data(), bytes.size());
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), differ);
  }
}

// More elements than one thread counts, and one wrong among them, wherever it is.
TEST_F(GpuCompare, OneWrongElementIsSeen) {
  constexpr int64_t kElements = 40'007;  // no multiple of anything
  Graph g;
  const auto kernel =
      ValueOrDie(device_->Load(Compiled(search::DifferencesKernel(g, DType::kF32, kElements))));
  const auto counts = ValueOrDie(device_->Allocate(kDifferenceCounts * sizeof(int32_t)));
  const auto got = ValueOrDie(device_->Allocate(kElements * 4));
  const auto want = ValueOrDie(device_->Allocate(kElements * 4));
  std::vector<float> values(kElements, 0.5f);
  const auto upload = [&](const runtime::DeviceBuffer& to) {
    OB_CHECK_OK(device_->Upload(to.address(),
                                {reinterpret_cast<const char*>(values.data()), kElements * 4}));
  };
  upload(want);
  for (const int64_t wrong : {int64_t{-1}, int64_t{0}, kElements / 2, kElements - 1}) {
    if (wrong >= 0) values[wrong] = 0.6f;
    upload(got);
    const runtime::DeviceAddress addresses[] = {counts.address(), got.address(), want.address()};
    ASSERT_EQ(device_->Launch(*kernel, addresses, {}), absl::OkStatus());
    const std::string bytes = test::BytesOf(counts);
    std::vector<int32_t> each(kDifferenceCounts);
    std::memcpy(each.data(), bytes.data(), bytes.size());
    EXPECT_EQ(std::accumulate(each.begin(), each.end(), 0), wrong >= 0 ? 1 : 0) << wrong;
    if (wrong >= 0) values[wrong] = 0.5f;
  }
}

TEST_F(GpuCompare, ARightCandidatePassesAndAWrongOneDoesNot) {
  Graph g;
  const UOp* const sink = test::MatMul(g, 20, 24, 12);
  Search search = Expecting(sink);
  EXPECT_EQ(search.measurer->Compare(Compiled(sink)), absl::OkStatus());
  EXPECT_EQ(search.measurer->Compare(Compiled(test::MatMul(g, 20, 24, 11))).code(),
            absl::StatusCode::kDataLoss);
  // The last block is left out: its results are not those of the run before.
  CompiledKernel less = Compiled(sink, "");
  EXPECT_EQ(search.measurer->Compare(less), absl::OkStatus());
  ASSERT_GT(less.blocks[0], 1);
  ASSERT_EQ(less.tasks, less.blocks[0]);
  less.tasks = --less.blocks[0];
  const absl::Status wrong = search.measurer->Compare(less);
  EXPECT_EQ(wrong.code(), absl::StatusCode::kDataLoss);
  // And the time of a run between two comparisons changes nothing.
  EXPECT_TRUE(
      search.measurer->Seconds(Compiled(sink), search.verifier.buffers().pointers(), 1).ok());
  EXPECT_EQ(search.measurer->Compare(Compiled(sink)), absl::OkStatus());
}

// An update reads what it overwrites: each run begins with what was there before the first.
TEST_F(GpuCompare, UpdatesBeginAgain) {
  for (const DType dtype : {DType::kI32, DType::kF16, DType::kF32}) {
    Graph g;
    const UOp* const i = Range(g, 0, 70);
    const UOp *x = LoadAt(g, 0, dtype, 70, i), *y = LoadAt(g, 1, dtype, 70, i);
    const auto sink = [&](const UOp* value) { return Sink(g, {StoreAt(g, 0, 70, i, value)}); };
    const UOp* const sum = sink(Add(g, Add(g, x, y), y));
    Search search = Expecting(sum);
    for (int run = 0; run < 3; ++run)
      EXPECT_EQ(search.measurer->Compare(Compiled(sum)), absl::OkStatus());
    EXPECT_TRUE(
        search.measurer->Seconds(Compiled(sum), search.verifier.buffers().pointers(), 1).ok());
    EXPECT_EQ(search.measurer->Compare(Compiled(sum)), absl::OkStatus());
    EXPECT_EQ(search.measurer->Compare(Compiled(sink(Add(g, x, x)))).code(),
              absl::StatusCode::kDataLoss)
        << Name(dtype);
  }
}

// Of a kernel in several copies each copy's results are compared.
TEST_F(GpuCompare, EveryCopyIsCompared) {
  Graph g;
  const UOp* const i = Range(g, 0, 300);
  const auto sink = [&](double by) {
    return Sink(g, {StoreAt(g, 0, 300, i,
                            Mul(g, LoadAt(g, 1, DType::kF32, 300, i),
                                ConstFloat(g, DType::kF32, by)))});
  };
  const UOp* const copies = WithCopies(g, sink(3), 3);
  ASSERT_EQ(CopiesOf(copies), 3);
  Search search = Expecting(copies);
  EXPECT_EQ(search.measurer->Compare(Compiled(copies)), absl::OkStatus());
  // Blocks of the last copy leave at once.
  CompiledKernel less = Compiled(copies);
  ASSERT_EQ(less.blocks[2], 3);
  const size_t body = less.object.find("{\n", less.object.find(".entry"));
  ASSERT_NE(body, std::string::npos);
  less.object.insert(body + 2,
                     ".reg .pred %leaves;\n.reg .b32 %copy;\nmov.u32 %copy, %ctaid.z;\n"
                     "setp.eq.u32 %leaves, %copy, 2;\n@%leaves ret;\n");
  const absl::Status wrong = search.measurer->Compare(less);
  EXPECT_EQ(wrong.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(wrong.message().find("300 of 300 elements of copy 2"), std::string::npos) << wrong;
}

// Without room for the right results the host compares, as before.
TEST_F(GpuCompare, WithoutRoom_TheHostCompares) {
  Graph g;
  const UOp* const i = Range(g, 0, 1 << 20);
  const UOp* const sink = Sink(
      g, {StoreAt(g, 0, 1 << 20, i, LoadAt(g, 1, DType::kF32, 1 << 20, i))});
  KernelMeasurer measurer(EncodeGraph(sink)->bytes, compiler_.get(), device_.get(), {});
  Verifier verifier = ValueOrDie(Verifier::Make(
      sink, Compiled(sink),
      [&](const CompiledKernel& kernel, std::span<void* const> buffers, int64_t begin,
          int64_t end) { return measurer.Run(kernel, buffers, begin, end); }));
  device_->LimitMemory(device_->memory_bytes_in_use() + (1 << 20));
  EXPECT_EQ(measurer.KeepExpected(verifier.Expected()).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(verifier.Check(Compiled(sink)), absl::OkStatus());
}

}  // namespace
}  // namespace outboard::worker
