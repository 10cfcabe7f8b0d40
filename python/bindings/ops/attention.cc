// Attention.
#include "client/ops/product/product.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT

void BindAttention(nb::module_&, TensorClass& tensor) {
  tensor.def(
      "scaled_dot_product_attention",
      [](const Tensor& query, const Tensor& key, const Tensor& value,
         const std::optional<Tensor>& mask, double dropout_p, bool is_causal, bool enable_gqa) {
        return scaled_dot_product_attention(query, key, value,
                                            {.mask = mask.value_or(Tensor()),
                                             .dropout_p = dropout_p,
                                             .is_causal = is_causal,
                                             .enable_gqa = enable_gqa});
      },
      "key"_a, "value"_a, "attn_mask"_a = nb::none(), "dropout_p"_a = 0.0, "is_causal"_a = false,
      "enable_gqa"_a = false,
      "(..., L, E) with key (..., S, E) and value (..., S, V) is (..., L, V). A mask of bool says "
      "who is seen, one of\n"
      "numbers is added to the scores.");
}

}  // namespace outboard::python
