// Temporaries whose rows lie further apart than they are long (compiler/schedule/layout.h): which
// have them, and kernels that make and read them on the PTX machine, against the interpreter.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "base/check.h"
#include "client/tensor/tensor.h"
#include "compiler/target.h"
#include "tests/compiler/gpu_schedule.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

// The head of a language model: products with a matrix of many columns, softmax, and the gradients
// of both factors.
struct Head {
  std::vector<int64_t> batch;  // dimensions of rows
  int64_t in = 64, columns = 523;
  DType dtype = DType::kBF16;
};

Program GradientsOf(const Head& head) {
  return {"head", [head](Size) {
            const auto input = [](std::vector<int64_t> dims) {
              Tensor t = Tensor::zeros(dims, DType::kF32).state_();
              t.requires_grad_();
              return t;
            };
            std::vector<int64_t> rows = head.batch, wide = head.batch;
            rows.push_back(head.in);
            wide.push_back(head.columns);
            const Tensor x = input(rows), w = input({head.in, head.columns}), wanted = input(wide);
            const Tensor logits = x.cast(head.dtype).matmul(w.cast(head.dtype));
            (logits.cast(DType::kF32).softmax() * wanted).sum().backward();
            realize(std::vector<Tensor>{x.grad(), w.grad()});
          }};
}

// Elements of the temporaries that have about as many as `logits`.
std::vector<int64_t> WideTemporaries(const schedule::Schedule& schedule, int64_t logits) {
  std::vector<int64_t> wide;
  for (const schedule::ScheduledBuffer& buffer : schedule.buffers)
    if (buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary && buffer.elements >= logits &&
        buffer.elements < 2 * logits)
      wide.push_back(buffer.elements);
  return wide;
}

// Memory is full of NaNs before: what is read between two rows would be seen.
void CheckOnMachine(const Head& head, const std::string& arch, int64_t pitch, double tolerance) {
  SCOPED_TRACE(arch);
  Graph graph;
  const UOp* const sink = RecordProgram(graph, GradientsOf(head), Size::kSmall);
  const GpuSchedule gpu(sink, arch);
  int64_t rows = 1;
  for (const int64_t dim : head.batch) rows *= dim;
  const std::vector<int64_t> wide = WideTemporaries(gpu.schedule(), rows * head.columns);
  EXPECT_FALSE(wide.empty()) << gpu.ToString();
  for (const int64_t elements : wide) EXPECT_EQ(elements, rows * pitch) << gpu.ToString();
  for (const CompiledKernel& kernel : gpu.compiled()) EXPECT_TRUE(kernel.given_up.empty());
  gpu.ExpectAsInterpreted(sink, {}, tolerance);
}

TEST(RowPitch, ProductsOfOddColumns_AreTheInterpreters) {
  const Head head = {.batch = {2, 72}};
  CheckOnMachine(head, "sm_90a", 576, 2e-2);
  CheckOnMachine(head, "sm_80", 576, 2e-2);
  // Rows of one dimension alone; 1,034 bytes.
  CheckOnMachine({.batch = {136}, .columns = 517}, "sm_90a", 576, 2e-2);
}

TEST(RowPitch, ProductsOfF32_AreTheInterpreters) {
  const Head head = {.batch = {80}, .in = 128, .columns = 259, .dtype = DType::kF32};
  CheckOnMachine(head, "sm_90a", 288, 1e-4);
  CheckOnMachine(head, "sm_80", 288, 1e-4);
}

// All three products read and write boxes: none copies two bytes at a time.
TEST(RowPitch, ProductsOfOddColumns_AreByWarpgroups) {
  Graph graph;
  const Head head = {.batch = {1024}, .in = 768, .columns = 5003};
  const UOp* const sink = RecordProgram(graph, GradientsOf(head), Size::kSmall);
  const GpuSchedule gpu(sink, "sm_90a");
  int products = 0;
  for (const CompiledKernel& kernel : gpu.compiled()) {
    const bool multiplies = absl::StrContains(kernel.object, "wgmma.mma_async");
    EXPECT_FALSE(absl::StrContains(kernel.object, "mma.sync"));
    EXPECT_TRUE(kernel.given_up.empty());
    // A and B have a map each, and what leaves in boxes; copies of threads would have none.
    if (multiplies) EXPECT_GE(kernel.maps.size(), 2u);
    products += multiplies;
  }
  EXPECT_EQ(products, 3) << gpu.ToString();
}

TEST(RowPitch, OtherRows_LieSideBySide) {
  const auto wide = [](const Head& head, const Target& target) {
    Graph graph;
    const UOp* const sink = RecordProgram(graph, GradientsOf(head), Size::kSmall);
    const auto schedule = schedule::MakeSchedule(graph, sink, target);
    OB_CHECK_OK(schedule.status());
    const int64_t logits = head.batch[0] * head.columns;
    const std::vector<int64_t> elements = WideTemporaries(*schedule, logits);
    return !elements.empty() && elements == std::vector<int64_t>(elements.size(), logits);
  };
  const Target gpu = CudaTarget("sm_90a", 132);
  EXPECT_FALSE(wide({.batch = {128}, .columns = 523}, gpu));
  EXPECT_TRUE(wide({.batch = {128}, .columns = 520}, gpu));  // a multiple of 16 bytes
  EXPECT_TRUE(wide({.batch = {128}, .columns = 507}, gpu));  // 1,014 bytes: an eighth is more
  EXPECT_TRUE(wide({.batch = {128}, .columns = 523}, TestTarget()));
}

}  // namespace
}  // namespace outboard::test
