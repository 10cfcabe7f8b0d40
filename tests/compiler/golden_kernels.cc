#include "tests/compiler/golden_kernels.h"

#include "client/tensor/tensor.h"
#include "compiler/ir/dtype.h"

namespace outboard::test {
namespace {

Tensor In(const Dims& dims, DType dtype = DType::kF32) {
  return Tensor::zeros(dims, dtype).state_();
}
Tensor Weight(const Dims& dims) { return Tensor::zeros(dims).requires_grad_(); }

// The gradient of `weight`.
std::vector<Tensor> Gradient(const Tensor& y, const Tensor& weight) {
  return y.gradient({weight}, In(y.shape()));
}

}  // namespace

const std::vector<GoldenKernel>& GoldenKernels() {
  static const std::vector<GoldenKernel> kernels = {
      {"elementwise", [] { return std::vector{(In({1000}) * 2 + In({1000})).relu()}; }},
      {"broadcast",
       [] {
         return std::vector{In({64, 256}) + In({256}) * In({64, 1})};
       }},
      {"transpose",
       [] {
         return std::vector{In({200, 300}).transpose().contiguous()};
       }},
      {"flip",
       [] {
         return std::vector{In({100, 64}).flip({0, 1})};
       }},
      {"pad",
       [] {
         return std::vector{In({30, 40}).pad({{1, 2}, {3, 0}}) + 1};
       }},
      {"concatenate",
       [] {
         return std::vector{Tensor::cat({In({10, 64}), In({20, 64})})};
       }},
      {"masked",
       [] {
         return std::vector{In({128, 128}).tril()};
       }},
      {"integers", [] { return std::vector{In({1000}, DType::kI32).idiv(7) % 5}; }},
      {"casts",
       [] {
         return std::vector{
             In({1000}, DType::kU8).cast(DType::kF16).cast(DType::kBF16).cast(DType::kF32)};
       }},
      {"threefry", [] { return std::vector{Tensor::rand({1000})}; }},
      {"sum_inner",
       [] {
         return std::vector{In({512, 256}).sum(1)};
       }},
      {"sum_outer",
       [] {
         return std::vector{In({512, 256}).sum(0)};
       }},
      {"sum_all",
       [] {
         return std::vector{In({1024, 1024}).sum()};
       }},
      {"max_and_place",
       [] {
         return std::vector{In({64, 100}).argmax(1)};
       }},
      {"cumsum",
       [] {
         return std::vector{In({8, 500}).cumsum(1)};
       }},
      {"softmax",
       [] {
         return std::vector{In({512, 128}).softmax()};
       }},
      {"log_softmax",
       [] {
         return std::vector{In({512, 128}).log_softmax()};
       }},
      {"layer_norm",
       [] {
         return std::vector{In({512, 256}).layernorm()};
       }},
      {"matmul",
       [] {
         return std::vector{In({512, 512}).matmul(In({512, 512}))};
       }},
      {"matmul_transposed",
       [] {
         return std::vector{In({512, 512}).matmul(In({512, 512}).transpose())};
       }},
      {"matmul_odd",
       [] {
         return std::vector{In({37, 83}).matmul(In({83, 29}))};
       }},
      {"matmul_batched",
       [] {
         return std::vector{In({8, 64, 32}).matmul(In({8, 32, 64}))};
       }},
      {"matmul_bias_relu",
       [] {
         return std::vector{(In({128, 576}).matmul(In({576, 64})) + In({64})).relu()};
       }},
      {"matmul_bf16",
       [] {
         return std::vector{In({512, 512}, DType::kBF16).matmul(In({512, 512}, DType::kBF16))};
       }},
      {"matrix_vector",
       [] {
         return std::vector{In({512, 512}).matmul(In({512}))};
       }},
      {"conv",
       [] {
         return std::vector{In({32, 16, 24, 24}).conv2d(In({32, 16, 3, 3}))};
       }},
      {"conv_weight_gradient",
       [] {
         const Tensor w = Weight({32, 16, 3, 3});
         return Gradient(In({32, 16, 24, 24}).conv2d(w), w);
       }},
      {"conv_input_gradient",
       [] {
         const Tensor x = Weight({32, 16, 24, 24});
         return Gradient(x.conv2d(In({32, 16, 3, 3})), x);
       }},
      {"max_pool",
       [] {
         return std::vector{In({32, 32, 24, 24}).max_pool2d()};
       }},
      {"average_pool",
       [] {
         return std::vector{In({32, 32, 24, 24}).avg_pool2d()};
       }},
      {"gather",
       [] {
         return std::vector{In({1000, 64})[In({32}, DType::kI32)]};
       }},
      {"scatter_add",
       [] {
         const Tensor table = Weight({1000, 64});
         return Gradient(table[In({512}, DType::kI32)], table);
       }},
      {"gelu", [] { return std::vector{In({4096}).gelu()}; }},
      {"exp", [] { return std::vector{In({4096}).exp()}; }, true},
      {"log", [] { return std::vector{In({4096}).log()}; }, true},
      {"sin", [] { return std::vector{In({4096}).sin()}; }, true},
      {"tanh", [] { return std::vector{In({4096}).tanh()}; }, true},
  };
  return kernels;
}

}  // namespace outboard::test
