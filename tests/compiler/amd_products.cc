#include "tests/compiler/amd_products.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/encoding.h"
#include "compiler/schedule/schedule.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/amdgpu_object.h"

namespace outboard::test {
namespace {

struct Shape {
  const char* name;
  std::function<Tensor(DType)> result;
};

Tensor In(const Dims& dims, DType dtype) { return Tensor::zeros(dims, dtype).state_(); }

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {"plain", [](DType t) { return In({256, 192}, t).matmul(In({192, 320}, t)); }},
      {"turned_left",
       [](DType t) { return In({192, 256}, t).transpose().matmul(In({192, 320}, t)); }},
      {"turned_right",
       [](DType t) { return In({256, 192}, t).matmul(In({320, 192}, t).transpose()); }},
      {"turned_both",
       [](DType t) { return In({192, 256}, t).transpose().matmul(In({320, 192}, t).transpose()); }},
      {"f32_result",
       [](DType t) { return In({256, 192}, t).matmul(In({192, 320}, t), DType::kF32); }},
      {"batch", [](DType t) { return In({6, 64, 96}, t).matmul(In({6, 96, 64}, t)); }},
      {"remainder", [](DType t) { return In({37, 83}, t).matmul(In({83, 29}, t)); }},
      {"turned_remainder",
       [](DType t) { return In({83, 130}, t).transpose().matmul(In({83, 70}, t)); }},
      {"bias_gelu",
       [](DType t) { return (In({256, 192}, t).matmul(In({192, 320}, t)) + In({320}, t)).gelu(); }},
      {"residual",
       [](DType t) { return In({256, 192}, t).matmul(In({192, 320}, t)) + In({256, 320}, t); }},
      {"convolution", [](DType t) { return In({8, 32, 16, 16}, t).conv2d(In({64, 32, 3, 3}, t)); }},
      {"convolution_weight_gradient",
       [](DType t) {
         const Tensor w = Tensor::zeros({64, 32, 3, 3}, t).requires_grad_();
         const Tensor y = In({8, 32, 16, 16}, t).conv2d(w);
         return y.gradient({w}, In(y.shape(), t))[0];
       }},
      {"convolution_input_gradient",
       [](DType t) {
         const Tensor x = Tensor::zeros({8, 32, 16, 16}, t).requires_grad_();
         const Tensor y = x.conv2d(In({64, 32, 3, 3}, t));
         return y.gradient({x}, In(y.shape(), t))[0];
       }},
  };
  return shapes;
}

const UOp* Recorded(Graph& graph, const AmdProduct& product) {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  realize(std::vector<Tensor>{product.result()});
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, *session->last.graph));
  SetSession(nullptr);
  return sink;
}

// As LLVM's disassembler writes it.
std::string InstructionOf(const Target& target, DType dtype) {
  return absl::StrCat(target.arch == "gfx942" ? "v_mfma_f32_16x16x16_" : "v_wmma_f32_16x16x16_",
                      dtype == DType::kBF16 ? "bf16" : "f16");
}

}  // namespace

const std::vector<AmdProduct>& AmdProducts() {
  static const std::vector<AmdProduct>* const products = [] {
    auto* all = new std::vector<AmdProduct>;
    for (const DType dtype : {DType::kBF16, DType::kF16})
      for (const Shape& shape : Shapes())
        all->push_back({absl::StrCat(dtype == DType::kBF16 ? "bf16 " : "f16 ", shape.name), dtype,
                        [&shape, dtype] { return shape.result(dtype); }});
    return all;
  }();
  return *products;
}

std::string TroubleOf(const AmdProduct& product, const Target& target) {
  Graph recorded, graph;
  const UOp* const sink = Recorded(recorded, product);
  const auto schedule = schedule::MakeSchedule(graph, sink, target);
  if (!schedule.ok()) return schedule.status().ToString();
  bool has_instruction = false;
  for (size_t k = 0; k < schedule->kernels.size(); ++k) {
    const std::string name = schedule::KernelToString(*schedule, k);
    const auto kernel = CompileKernel(schedule->kernels[k].ast, {.target = target});
    if (!kernel.ok()) return absl::StrCat(name, ": ", kernel.status().ToString());
    if (kernel->tasks == 0) continue;
    const auto code = LinkAndDisassemble(kernel->object, target.arch);
    if (!code.ok()) return absl::StrCat(name, ": ", code.status().ToString());
    if (code->private_bytes != 0 || code->spills != 0)
      return absl::StrCat(name, ": ", code->private_bytes, " bytes of a thread's own memory, ",
                          code->spills, " spills");
    has_instruction |= absl::StrContains(code->text, InstructionOf(target, product.dtype));
  }
  if (has_instruction) return "";
  return absl::StrCat("no ", InstructionOf(target, product.dtype), " in\n",
                      schedule::ScheduleToString(*schedule));
}

}  // namespace outboard::test
