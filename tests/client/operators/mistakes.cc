// What a user gets wrong, and what the message must say. A statement must throw between its row's
// line and the next one's.
#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "client/ops/elementwise/arithmetic.h"
#include "client/ops/product/attention.h"
#include "client/ops/window/convolution.h"
#include "client/ops/shape/diagonals.h"
#include "client/ops/product/einsum.h"
#include "client/ops/shape/grids.h"
#include "client/ops/window/interpolate.h"
#include "client/lazy/items.h"
#include "client/ops/product/linalg.h"
#include "client/ops/reduce/losses.h"
#include "client/ops/index/masks.h"
#include "client/ops/reduce/norms.h"
#include "client/ops/shape/padding.h"
#include "client/ops/window/pooling.h"
#include "client/ops/random/random.h"
#include "client/ops/random/sampling.h"
#include "client/ops/shape/rearrange.h"
#include "client/ops/product/recurrent.h"
#include "client/ops/index/scatter.h"
#include "client/ops/index/sorting.h"
#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kRange = absl::StatusCode::kOutOfRange;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

Tensor Matrix() { return Tensor::ones({2, 3}); }
Tensor Image() { return Tensor::ones({1, 4, 5, 5}); }
Tensor Bytes() { return Tensor::ones({2}, DType::kU8); }
Tensor Places() { return Tensor::arange(2); }

}  // namespace

const std::vector<Mistake>& AllMistakes() {
  // clang-format off
  static const std::vector<Mistake> kMistakes = {
      // ---- making
      {__LINE__, "full", "a negative dimension", kInvalid, {"-1"}, [] { Tensor::full({2, -1}, 0); }},
      {__LINE__, "zeros", "more than 2^62 elements", kInvalid, {"2^62"}, [] { Tensor::zeros({1 << 30, 1 << 30, 1 << 30}); }},
      {__LINE__, "ones", "a dimension over the limit", kInvalid, {"2147483648", "limit"}, [] { Tensor::ones({int64_t{1} << 31}); }},
      {__LINE__, "full", "a value that the type has not", kInvalid, {"300", "u8"}, [] { Tensor::full({2}, 300, DType::kU8); }},
      {__LINE__, "full", "a fraction of an integer type", kInvalid, {"0.5", "i32"}, [] { Tensor::full({2}, 0.5, DType::kI32); }},
      {__LINE__, "full_like", "a value that the type has not", kInvalid, {"-1", "u8"}, [] { Bytes().full_like(-1); }},
      {__LINE__, "arange", "a negative length", kInvalid, {"-3"}, [] { Tensor::arange(-3); }},
      {__LINE__, "arange", "a step of 0", kInvalid, {"step", "0"}, [] { Tensor::arange(0, 5, 0); }},
      {__LINE__, "arange", "values that the type has not", kInvalid, {"128", "i8"}, [] { Tensor::arange(0, 129, 1, DType::kI8); }},
      {__LINE__, "arange", "too many values", kInvalid, {"limit"}, [] { Tensor::arange(INT64_MIN, INT64_MAX); }},
      {__LINE__, "linspace", "of integers", kInvalid, {"floats", "i32"}, [] { Tensor::linspace(0, 1, 3, DType::kI32); }},
      {__LINE__, "eye", "a negative length", kInvalid, {"-1"}, [] { Tensor::eye(-1); }},
      {__LINE__, "from", "another count than the shape's", kInvalid, {"[2]", "8", "12"}, [] { Tensor::from<float>({1, 2, 3}, {2}); }},
      {__LINE__, "from_bytes", "another count of bytes", kInvalid, {"[2]", "f64", "16", "3"}, [] { Tensor::from_bytes(DType::kF64, {2}, "abc"); }},
      {__LINE__, "from_host", "another count of bytes", kInvalid, {"[4]", "u8", "4", "1"}, [] { Tensor::from_host({DType::kU8, {4}, "a"}); }},
      {__LINE__, "rand", "a negative dimension", kInvalid, {"-1"}, [] { Tensor::rand({-1}); }},
      {__LINE__, "rand", "so many that they overflow", kInvalid, {"overflow"}, [] { Tensor::rand({INT64_MAX, INT64_MAX}); }},
      {__LINE__, "rand", "of integers", kInvalid, {"i32", "randint"}, [] { Tensor::rand({2}, DType::kI32); }},
      {__LINE__, "uniform", "of integers", kInvalid, {"i32", "randint"}, [] { Tensor::uniform({2}, 0, 1, DType::kI32); }},
      {__LINE__, "randn", "of integers", kInvalid, {"i32", "randint"}, [] { Tensor::randn({2}, DType::kI32); }},
      {__LINE__, "randint", "an empty range", kInvalid, {"5", "4"}, [] { Tensor::randint({2}, 5, 4); }},
      {__LINE__, "randint", "a range beyond i32", kInvalid, {"4294967296", "i32"}, [] { Tensor::randint({2}, 0, int64_t{1} << 32); }},
      {__LINE__, "randint", "of floats", kInvalid, {"f32"}, [] { randint({2}, 0, 4, DType::kF32); }},
      {__LINE__, "normal", "a negative width", kInvalid, {"-1"}, [] { normal({2}, 0, -1); }},
      {__LINE__, "glorot_uniform", "of a scalar", kInvalid, {"scalar"}, [] { glorot_uniform({}); }},
      {__LINE__, "multinomial", "more samples than there are", kInvalid, {"4", "3"}, [] { multinomial(Tensor::ones({3}), 4); }},
      {__LINE__, "multinomial", "weights of another rank", kInvalid, {"rank 3"}, [] { multinomial(Tensor::ones({1, 1, 3})); }},
      {__LINE__, "kaiming_normal", "of a scalar", kInvalid, {"scalar"}, [] { kaiming_normal({}); }},
      {__LINE__, "kaiming_uniform", "of a scalar", kInvalid, {"scalar"}, [] { Tensor::kaiming_uniform({}); }},
      {__LINE__, "shape", "an axis that is none", kInvalid, {"2", "rank 2"}, [] { Matrix().shape(2); }},
      {__LINE__, "dtype", "of an empty tensor", kPrecondition, {"empty"}, [] { Tensor().dtype(); }},
      // ---- values
      {__LINE__, "item", "of many elements", kInvalid, {"6", "[2, 3]"}, [] { Matrix().item(); }},
      {__LINE__, "item", "of an empty tensor", kPrecondition, {"empty"}, [] { Tensor().item(); }},
      {__LINE__, "to_host", "of an empty tensor", kPrecondition, {"empty"}, [] { Tensor().to_host(); }},
      {__LINE__, "to_vector", "of an empty tensor", kPrecondition, {"empty"}, [] { Tensor().to_vector<float>(); }},
      {__LINE__, "realize", "of an empty tensor", kPrecondition, {"empty"}, [] { Tensor().realize(); }},
      {__LINE__, "realize", "a result that is too large", kExhausted, {"[1048576, 1048576, 4]", "limit"}, [] { Tensor::zeros({1 << 20, 1 << 20, 4}).realize(); }},
      {__LINE__, "assign", "another shape", kInvalid, {"[2, 3]", "[2]"}, [] { Matrix().assign(Tensor::ones({2})); }},
      {__LINE__, "assign", "a value that the type has not", kInvalid, {"256", "u8"}, [] { Bytes().assign(256); }},
      {__LINE__, "replace", "another shape", kInvalid, {"[2, 3]", "[2]"}, [] { Matrix().replace(Tensor::ones({2})); }},
      {__LINE__, "requires_grad_", "of integers", kInvalid, {"i32", "gradient"}, [] { Places().requires_grad_(); }},
      {__LINE__, "backward", "of many elements", kInvalid, {"[2, 3]", "one element"}, [] { Matrix().backward(); }},
      {__LINE__, "backward", "of integers", kInvalid, {"i32", "gradient"}, [] { Places().sum().backward(); }},
      {__LINE__, "backward", "where nothing has requires_grad", kPrecondition, {"requires_grad"}, [] { Matrix().sum().backward(); }},
      {__LINE__, "gradient", "of many elements without upstream", kInvalid, {"[2, 3]", "one element"}, [] { Matrix().gradient({Matrix()}); }},
      {__LINE__, "gradient", "for a number repeated over a shape", kPrecondition, {"realize"}, [] { const Tensor x = Tensor::ones({2}); (x * x).sum().gradient({x}); }},
      {__LINE__, "gradient", "for integers", kInvalid, {"i32", "gradient"}, [] { Matrix().sum().gradient({Places()}); }},
      {__LINE__, "gradient", "an upstream that does not broadcast", kInvalid, {"[4]", "[2, 3]"}, [] { Matrix().gradient({Matrix()}, Tensor::ones({4})); }},
      {__LINE__, "detach", "of an empty tensor", kPrecondition, {"empty"}, [] { Tensor().detach(); }},
      // ---- movement
      {__LINE__, "reshape", "another count of elements", kInvalid, {"[2, 3]", "[5]"}, [] { Matrix().reshape({5}); }},
      {__LINE__, "reshape", "a -1 that does not come out even", kInvalid, {"[2, 3]", "6", "4"}, [] { Matrix().reshape({4, -1}); }},
      {__LINE__, "reshape", "two of -1", kInvalid, {"-1"}, [] { Matrix().reshape({-1, -1}); }},
      {__LINE__, "reshape", "a negative dimension", kInvalid, {"[-2, -3]", "negative"}, [] { Matrix().reshape({-2, -3}); }},
      {__LINE__, "reshape", "sizes that overflow", kInvalid, {"overflow"}, [] { Matrix().reshape({INT64_MAX, INT64_MAX, -1}); }},
      {__LINE__, "reshape", "a rank over the limit", kInvalid, {"17", "16"}, [] { Tensor::ones({1}).reshape(Dims(17, 1)); }},
      {__LINE__, "flatten", "axes in the wrong order", kInvalid, {"first", "last"}, [] { Matrix().flatten(1, 0); }},
      {__LINE__, "unsqueeze", "an axis that is none", kInvalid, {"4", "rank 3"}, [] { Matrix().unsqueeze(4); }},
      {__LINE__, "squeeze", "an axis that is none", kInvalid, {"2", "rank 2"}, [] { Matrix().squeeze(2); }},
      {__LINE__, "expand", "an axis that is not 1", kInvalid, {"[2, 3]", "[5, 3]"}, [] { Matrix().expand({5, 3}); }},
      {__LINE__, "expand", "a -1 for a new axis", kInvalid, {"-1"}, [] { Matrix().expand({-1, 2, 3}); }},
      {__LINE__, "expand", "fewer axes", kInvalid, {"[2, 3]", "[3]"}, [] { Matrix().expand({3}); }},
      {__LINE__, "permute", "an axis twice", kInvalid, {"axis 0", "twice"}, [] { Matrix().permute({0, 0}); }},
      {__LINE__, "permute", "too few axes", kInvalid, {"2", "1"}, [] { Matrix().permute({0}); }},
      {__LINE__, "transpose", "an axis that is none", kInvalid, {"3", "rank 2"}, [] { Matrix().transpose(0, 3); }},
      {__LINE__, "flip", "an axis twice", kInvalid, {"twice"}, [] { Matrix().flip({0, -2}); }},
      {__LINE__, "pad", "a negative number", kInvalid, {"negative", "dimension 1"}, [] { Matrix().pad({{0, 0}, {-1, 0}}); }},
      {__LINE__, "pad", "another count of pairs", kInvalid, {"1", "[2, 3]"}, [] { Matrix().pad({{0, 0}}); }},
      {__LINE__, "pad", "a value that the type has not", kInvalid, {"0.5", "u8"}, [] { Bytes().pad({{1, 0}}, 0.5); }},
      {__LINE__, "shrink", "a range that is not inside", kInvalid, {"[2, 3]", "dimension 0"}, [] { Matrix().shrink({{0, 3}, {0, 1}}); }},
      {__LINE__, "shrink", "another count of ranges", kInvalid, {"1", "[2, 3]"}, [] { Matrix().shrink({{0, 1}}); }},
      {__LINE__, "slice", "an axis that is none", kInvalid, {"2", "rank 2"}, [] { Matrix().slice(2, 0, 1); }},
      {__LINE__, "slice", "a range that is not inside", kInvalid, {"[2, 3]", "dimension 1"}, [] { Matrix().slice(1, 2, 4); }},
      {__LINE__, "split", "parts of 0", kInvalid, {"0"}, [] { Matrix().split(0); }},
      {__LINE__, "split", "sizes that do not add up", kInvalid, {"1 of 3"}, [] { Matrix().split({1, 1}, 1); }},
      {__LINE__, "split", "a part that is too large", kInvalid, {"3", "2"}, [] { Matrix().split({1, 3}, 1); }},
      {__LINE__, "chunk", "no parts", kInvalid, {"0"}, [] { Matrix().chunk(0); }},
      {__LINE__, "roll", "an axis that is none", kInvalid, {"5", "rank 2"}, [] { Matrix().roll(1, 5); }},
      {__LINE__, "movedim", "an axis that is none", kInvalid, {"-3", "rank 2"}, [] { Matrix().movedim(0, -3); }},
      {__LINE__, "triu", "fewer than two axes", kInvalid, {"[2]"}, [] { Bytes().triu(); }},
      {__LINE__, "tril", "fewer than two axes", kInvalid, {"[2]"}, [] { Bytes().tril(); }},
      {__LINE__, "cat", "no tensors", kInvalid, {"no tensors"}, [] { Tensor::cat({}); }},
      {__LINE__, "cat", "another rank", kInvalid, {"[2, 3]", "[2]"}, [] { Tensor::cat({Matrix(), Bytes()}); }},
      {__LINE__, "cat", "other axes that differ", kInvalid, {"[2, 3]", "[2, 4]", "axis 0"}, [] { Tensor::cat({Matrix(), Tensor::ones({2, 4})}); }},
      {__LINE__, "cat", "types that no type holds", kInvalid, {"u64", "i32"}, [] { Tensor::cat({Places().cast(DType::kU64), Places()}); }},
      {__LINE__, "stack", "shapes that differ", kInvalid, {"[1, 2]", "[1, 3]"}, [] { Tensor::stack({Bytes(), Tensor::ones({3})}); }},
      {__LINE__, "repeat", "fewer numbers than axes", kInvalid, {"1", "[2, 3]"}, [] { Matrix().repeat({2}); }},
      {__LINE__, "repeat", "a negative number", kInvalid, {"-1"}, [] { Matrix().repeat({1, -1}); }},
      {__LINE__, "repeat", "so many that they overflow", kInvalid, {"overflow"}, [] { Matrix().repeat({1, INT64_MAX}); }},
      // ---- by index
      {__LINE__, "operator[]", "a number out of range", kRange, {"index 2", "axis of 2"}, [] { Matrix()[2]; }},
      {__LINE__, "operator[]", "a negative number out of range", kRange, {"index -3", "axis of 2"}, [] { Matrix()[-3]; }},
      {__LINE__, "operator[]", "of a scalar", kRange, {"1", "[]"}, [] { Matrix().sum()[0]; }},
      {__LINE__, "operator[]", "more indices than axes", kRange, {"3", "[2, 3]"}, [] { Matrix()[{0, 0, 0}]; }},
      {__LINE__, "operator[]", "two ellipses", kInvalid, {"ellipsis"}, [] { Matrix()[{kEllipsis, kEllipsis}]; }},
      {__LINE__, "operator[]", "a step of 0", kInvalid, {"step", "0"}, [] { Matrix()[Slice{0, 2, 0}]; }},
      {__LINE__, "operator[]", "an index of floats", kInvalid, {"f32", "integers"}, [] { Matrix()[Matrix()]; }},
      {__LINE__, "operator[]", "an index of bool", kInvalid, {"bool", "integers"}, [] { Matrix()[Matrix() > 0]; }},
      {__LINE__, "operator[]", "indices that do not broadcast", kInvalid, {"[2]", "[3]"}, [] { Matrix()[{Places(), Tensor::arange(3)}]; }},
      {__LINE__, "take", "an index of floats", kInvalid, {"f32", "integers"}, [] { Matrix().take(Matrix()); }},
      {__LINE__, "take", "an axis that is none", kInvalid, {"2", "rank 2"}, [] { Matrix().take(Places(), 2); }},
      {__LINE__, "gather", "an index of another rank", kInvalid, {"[2]", "[2, 3]"}, [] { Matrix().gather(0, Places()); }},
      {__LINE__, "gather", "an index that is longer elsewhere", kInvalid, {"[1, 4]", "[2, 3]"}, [] { Matrix().gather(0, Tensor::zeros({1, 4}, DType::kI32)); }},
      {__LINE__, "gather", "an index of floats", kInvalid, {"f32", "integers"}, [] { Matrix().gather(0, Matrix()); }},
      {__LINE__, "one_hot", "of floats", kInvalid, {"f32", "integers"}, [] { Matrix().one_hot(3); }},
      {__LINE__, "one_hot", "a negative number of classes", kInvalid, {"[2, -3]"}, [] { Places().one_hot(-3); }},
      // ---- order, places and masks
      {__LINE__, "sort", "an axis that is none", kInvalid, {"2", "rank 2"}, [] { sort(Matrix(), 2); }},
      {__LINE__, "argsort", "of a scalar", kInvalid, {"-1", "rank 0"}, [] { argsort(Matrix().sum()); }},
      {__LINE__, "topk", "more than there are", kInvalid, {"4", "3"}, [] { topk(Matrix(), 4); }},
      {__LINE__, "topk", "a negative number", kInvalid, {"-1"}, [] { topk(Matrix(), -1); }},
      {__LINE__, "scatter", "an index of another rank", kInvalid, {"[2]", "[2, 3]"}, [] { scatter(Matrix(), 0, Places(), 1); }},
      {__LINE__, "scatter", "an index that is longer than the source", kInvalid, {"[1, 2]", "[1, 1]"}, [] { scatter(Matrix(), 0, Tensor::zeros({1, 2}, DType::kI32), Tensor::ones({1, 1})); }},
      {__LINE__, "scatter", "a source of another type", kInvalid, {"f64", "f32"}, [] { scatter(Matrix(), 0, Tensor::zeros({1, 2}, DType::kI32), Tensor::ones({1, 2}, DType::kF64)); }},
      {__LINE__, "scatter", "an index of floats", kInvalid, {"f32", "integers"}, [] { scatter(Matrix(), 0, Matrix(), 1); }},
      {__LINE__, "scatter_reduce", "an index of another rank", kInvalid, {"[2]", "[2, 3]"}, [] { scatter_reduce(Matrix(), 0, Places(), 1, ScatterReduce::kSum); }},
      {__LINE__, "with_items", "a number out of range", kRange, {"index 2", "axis of 2"}, [] { with_items(Matrix(), {2}, 0); }},
      {__LINE__, "with_items", "a value that does not broadcast", kInvalid, {"[2]", "[3]"}, [] { with_items(Matrix(), {0}, Tensor::ones({2})); }},
      {__LINE__, "with_items", "a value that the type has not", kInvalid, {"256", "u8"}, [] { with_items(Bytes(), {0}, 256); }},
      {__LINE__, "masked_select", "a mask of another type", kInvalid, {"bool", "f32"}, [] { masked_select(Matrix(), Matrix()); }},
      {__LINE__, "masked_select", "a negative size", kInvalid, {"-2"}, [] { masked_select(Matrix(), Matrix() > 0, -2); }},
      {__LINE__, "nonzero", "a negative size", kInvalid, {"-2"}, [] { nonzero(Matrix(), -2); }},
      // ---- formulas, grids and matrices
      {__LINE__, "einsum", "another count of operands", kInvalid, {"\"ij,jk->ik\"", "2", "1"}, [] { einsum("ij,jk->ik", {Matrix()}); }},
      {__LINE__, "einsum", "another rank", kInvalid, {"\"ijk\"", "[2, 3]"}, [] { einsum("ijk->k", {Matrix()}); }},
      {__LINE__, "einsum", "lengths that differ", kInvalid, {"length", "[2, 3]"}, [] { einsum("ij,jk->ik", {Matrix(), Matrix()}); }},
      {__LINE__, "einsum", "a letter that is only on the right", kInvalid, {"right"}, [] { einsum("ij->k", {Matrix()}); }},
      {__LINE__, "einsum", "types that no type holds", kInvalid, {"u64", "i8"}, [] { einsum("i,i", {Tensor::ones({2}, DType::kU64), Tensor::ones({2}, DType::kI8)}); }},
      {__LINE__, "rearrange", "names that differ", kInvalid, {"\"a b -> a c\"", "names"}, [] { rearrange(Matrix(), "a b -> a c"); }},
      {__LINE__, "rearrange", "parentheses that do not match", kInvalid, {"parentheses"}, [] { rearrange(Matrix(), "(a b -> a b"); }},
      {__LINE__, "rearrange", "lengths that do not come out even", kInvalid, {"axis 1", "[2, 3]", "2"}, [] { rearrange(Matrix(), "a (b c) -> a b c", {{"b", 2}}); }},
      {__LINE__, "rearrange", "two lengths that are open", kInvalid, {"b", "c"}, [] { rearrange(Matrix(), "a (b c) -> a b c"); }},
      {__LINE__, "meshgrid", "a matrix", kInvalid, {"[2, 3]"}, [] { meshgrid({Matrix()}); }},
      {__LINE__, "meshgrid", "another order of axes", kInvalid, {"ji"}, [] { meshgrid({Places()}, "ji"); }},
      {__LINE__, "repeat_interleave", "a negative number", kInvalid, {"-1"}, [] { repeat_interleave(Matrix(), -1); }},
      {__LINE__, "unfold", "windows that do not fit", kInvalid, {"4", "3"}, [] { unfold(Matrix(), 1, 4, 1); }},
      {__LINE__, "unfold", "a step of 0", kInvalid, {"step", "0"}, [] { unfold(Matrix(), 1, 2, 0); }},
      {__LINE__, "diag", "a matrix", kInvalid, {"[2, 3]"}, [] { diag(Matrix()); }},
      {__LINE__, "diagonal", "an axis twice", kInvalid, {"axis 1", "twice"}, [] { diagonal(Matrix(), 0, 1, -1); }},
      {__LINE__, "qr", "of a vector", kInvalid, {"two axes", "1"}, [] { qr(Tensor::ones({2})); }},
      {__LINE__, "svd", "of integers", kInvalid, {"floats", "u8"}, [] { svd(Tensor::ones({2, 2}, DType::kU8)); }},
      {__LINE__, "newton_schulz", "no coefficients", kInvalid, {"coefficients"}, [] { newton_schulz(Matrix(), 1, {}); }},
      // ---- elementwise
      {__LINE__, "operator+", "shapes that do not broadcast", kInvalid, {"[2, 3]", "[2]"}, [] { Matrix() + Bytes(); }},
      {__LINE__, "operator+", "a number that the type has not", kInvalid, {"300", "u8"}, [] { Bytes() + 300; }},
      {__LINE__, "operator+", "types that no type holds", kInvalid, {"u64", "i32", "cast"}, [] { Places().cast(DType::kU64) + Places(); }},
      {__LINE__, "operator+", "an empty tensor", kPrecondition, {"empty"}, [] { Tensor() + 1; }},
      {__LINE__, "operator-", "of bool", kInvalid, {"bool"}, [] { (Matrix() > 0) - (Matrix() > 1); }},
      {__LINE__, "operator*", "shapes that do not broadcast", kInvalid, {"[2, 3]", "[4]"}, [] { Matrix() * Tensor::ones({4}); }},
      {__LINE__, "operator/", "shapes that do not broadcast", kInvalid, {"[2, 3]", "[4]"}, [] { 1 / Matrix() / Tensor::ones({4}); }},
      {__LINE__, "operator%", "of floats", kInvalid, {"f32", "integers"}, [] { Matrix() % 2; }},
      {__LINE__, "operator<", "shapes that do not broadcast", kInvalid, {"[2, 3]", "[4]"}, [] { Matrix() < Tensor::ones({4}); }},
      {__LINE__, "operator&", "of floats", kInvalid, {"f32"}, [] { Matrix() & 1; }},
      {__LINE__, "operator<<", "of floats", kInvalid, {"f32", "integers"}, [] { Matrix() << 1; }},
      {__LINE__, "operator+=", "shapes that do not broadcast", kInvalid, {"[2, 3]", "[4]"}, [] { Matrix() += Tensor::ones({4}); }},
      {__LINE__, "idiv", "of floats", kInvalid, {"f32", "integers"}, [] { Matrix().idiv(2); }},
      {__LINE__, "maximum", "shapes that do not broadcast", kInvalid, {"maximum", "[2, 3]", "[4]"}, [] { Matrix().maximum(Tensor::ones({4})); }},
      {__LINE__, "where", "a condition that is not bool", kInvalid, {"f32", "bool"}, [] { Matrix().where(1, 2); }},
      {__LINE__, "where", "shapes that do not broadcast", kInvalid, {"[2, 3]", "[4]"}, [] { (Matrix() > 0).where(Tensor::ones({4}), 0); }},
      {__LINE__, "cast", "to no type", kInvalid, {"CAST"}, [] { Matrix().cast(DType::kVoid); }},
      {__LINE__, "bitcast", "a part of an element left over", kInvalid, {"[2]", "f32"}, [] { Bytes().bitcast(DType::kF32); }},
      {__LINE__, "bitcast", "a scalar to another width", kInvalid, {"f32", "u8"}, [] { Matrix().sum().bitcast(DType::kU8); }},
      {__LINE__, "bitcast", "of bool", kInvalid, {"bool", "u8"}, [] { (Matrix() > 0).bitcast(DType::kU8); }},
      {__LINE__, "clip", "a bound that the type has not", kInvalid, {"-1", "u8"}, [] { Bytes().clip(-1, 2); }},
      {__LINE__, "pow", "shapes that do not broadcast", kInvalid, {"pow", "[2, 3]", "[4]"}, [] { Matrix().pow(Tensor::ones({4})); }},
      {__LINE__, "pow", "integers to a negative power", kInvalid, {"i32", "-1"}, [] { Places().pow(-1); }},
      {__LINE__, "floor_div", "shapes that do not broadcast", kInvalid, {"[2, 3]", "[4]"}, [] { floor_div(Matrix(), Tensor::ones({4})); }},
      {__LINE__, "fmod", "shapes that do not broadcast", kInvalid, {"[2, 3]", "[4]"}, [] { fmod(Matrix(), Tensor::ones({4})); }},
      {__LINE__, "lerp", "of bool", kInvalid, {"bool"}, [] { lerp(Matrix() > 0, Matrix() > 0, true); }},
      {__LINE__, "clamp", "without a bound", kInvalid, {"neither"}, [] { clamp(Matrix(), {}, {}); }},
      {__LINE__, "bitwise_not", "of floats", kInvalid, {"f32"}, [] { bitwise_not(Matrix()); }},
      {__LINE__, "threefry", "of another type than u64", kInvalid, {"f32", "u64"}, [] { threefry(Matrix(), Matrix()); }},
      {__LINE__, "exp", "of an empty tensor", kPrecondition, {"empty"}, [] { Tensor().exp(); }},
      // ---- reductions
      {__LINE__, "sum", "an axis that is none", kInvalid, {"2", "rank 2"}, [] { Matrix().sum({2}); }},
      {__LINE__, "sum", "an axis twice", kInvalid, {"twice"}, [] { Matrix().sum({0, -2}); }},
      {__LINE__, "max", "an axis that is none", kInvalid, {"-3", "rank 2"}, [] { Matrix().max({-3}); }},
      {__LINE__, "argmax", "an axis without elements", kInvalid, {"no elements"}, [] { Tensor::zeros({2, 0}).argmax(1); }},
      {__LINE__, "argmax", "an axis that is none", kInvalid, {"2", "rank 2"}, [] { Matrix().argmax(2); }},
      {__LINE__, "cumsum", "an axis that is none", kInvalid, {"2", "rank 2"}, [] { Matrix().cumsum(2); }},
      {__LINE__, "softmax", "an axis that is none", kInvalid, {"2", "rank 2"}, [] { Matrix().softmax(2); }},
      // ---- products
      {__LINE__, "matmul", "inner lengths that differ", kInvalid, {"[2, 3]"}, [] { Matrix().matmul(Matrix()); }},
      {__LINE__, "matmul", "a scalar", kInvalid, {"scalar"}, [] { Matrix().matmul(Matrix().sum()); }},
      {__LINE__, "matmul", "a number", kInvalid, {"two tensors"}, [] { Matrix().matmul(2); }},
      {__LINE__, "matmul", "batches that do not broadcast", kInvalid, {"[2]", "[3]"}, [] { Tensor::ones({2, 1, 1}).matmul(Tensor::ones({3, 1, 1})); }},
      {__LINE__, "linear", "a bias that does not broadcast", kInvalid, {"[2, 2]", "[3]"}, [] { Matrix().linear(Tensor::ones({3, 2}), Tensor::ones({3})); }},
      {__LINE__, "conv2d", "another rank", kInvalid, {"[2, 3]", "[B, C, H, W]"}, [] { Matrix().conv2d(Matrix()); }},
      {__LINE__, "conv2d", "other channels", kInvalid, {"4", "[2, 3, 1, 1]"}, [] { Image().conv2d(Tensor::ones({2, 3, 1, 1})); }},
      {__LINE__, "conv2d", "groups that do not divide", kInvalid, {"4", "3", "[3, 1, 1, 1]"}, [] { Image().conv2d(Tensor::ones({3, 1, 1, 1}), {}, {.groups = 3}); }},
      {__LINE__, "conv2d", "a kernel that does not fit", kInvalid, {"6", "5"}, [] { Image().conv2d(Tensor::ones({2, 4, 6, 1})); }},
      {__LINE__, "conv2d", "a stride of 0", kInvalid, {"stride 0"}, [] { Image().conv2d(Tensor::ones({2, 4, 1, 1}), {}, {.stride = 0}); }},
      {__LINE__, "conv2d", "a padding that leaves nothing", kInvalid, {"5", "-3"}, [] { Image().conv2d(Tensor::ones({2, 4, 1, 1}), {}, {.padding = {0, -3}}); }},
      {__LINE__, "conv2d", "a padding over the limit", kInvalid, {"limit"}, [] { Image().conv2d(Tensor::ones({2, 4, 1, 1}), {}, {.padding = INT64_MAX}); }},
      {__LINE__, "conv2d", "another bias", kInvalid, {"[3]", "2"}, [] { Image().conv2d(Tensor::ones({2, 4, 1, 1}), Tensor::ones({3})); }},
      {__LINE__, "max_pool2d", "another rank", kInvalid, {"[2, 3]", "[B, C, H, W]"}, [] { Matrix().max_pool2d(); }},
      {__LINE__, "max_pool2d", "a kernel that does not fit", kInvalid, {"6", "5"}, [] { Image().max_pool2d({.kernel = 6}); }},
      {__LINE__, "convolution", "another rank", kInvalid, {"[2, 3]", "[B, C, D...]"}, [] { convolution(Matrix(), Matrix()); }},
      {__LINE__, "convolution", "other channels", kInvalid, {"4", "[2, 3, 1, 1]"}, [] { convolution(Image(), Tensor::ones({2, 3, 1, 1})); }},
      {__LINE__, "convolution", "a kernel that does not fit", kInvalid, {"of 7", "of 5", "1 and 0"}, [] { convolution(Image(), Tensor::ones({2, 4, 1, 7}), {}, {.padding = {{0, 0}, {1, 0}}}); }},
      {__LINE__, "convolution", "numbers for other axes", kInvalid, {"3", "stride", "2 axes"}, [] { convolution(Image(), Tensor::ones({2, 4, 1, 1}), {}, {.stride = {1, 2, 3}}); }},
      {__LINE__, "convolution", "another bias", kInvalid, {"[3]", "2"}, [] { convolution(Image(), Tensor::ones({2, 4, 1, 1}), Tensor::ones({3})); }},
      {__LINE__, "transposed_convolution", "other channels", kInvalid, {"4", "[2, 3, 1, 1]"}, [] { transposed_convolution(Image(), Tensor::ones({2, 3, 1, 1})); }},
      {__LINE__, "transposed_convolution", "nothing left", kInvalid, {"9", "-6"}, [] { transposed_convolution(Image(), Tensor::ones({4, 1, 1, 1}), {}, {.stride = 2, .padding = 6}); }},
      {__LINE__, "max_pool", "fewer axes", kInvalid, {"2", "[2]"}, [] { max_pool(Places()); }},
      {__LINE__, "max_pool", "a stride of 0", kInvalid, {"stride 0"}, [] { max_pool(Image(), {.stride = 0}); }},
      {__LINE__, "avg_pool", "a kernel that does not fit", kInvalid, {"6", "5"}, [] { avg_pool(Image(), {.kernel = {6}}); }},
      {__LINE__, "max_unpool", "places of another shape", kInvalid, {"[1, 4, 5, 5]", "[2]"}, [] { max_unpool(Image(), Places()); }},
      {__LINE__, "max_unpool", "a size of other axes", kInvalid, {"3", "[1, 4, 5, 5]"}, [] { max_unpool(Image(), Tensor::zeros({1, 4, 5, 5}, DType::kI32), {}, {1, 2, 3}); }},
      {__LINE__, "pad", "a reflection of too much", kInvalid, {"3", "axis 1"}, [] { pad(Matrix(), {{0, 0}, {3, 0}}, PadMode::kReflect); }},
      {__LINE__, "pad", "an end that is repeated twice", kInvalid, {"4", "axis 1", "3"}, [] { pad(Matrix(), {{0, 0}, {0, 4}}, PadMode::kCircular); }},
      {__LINE__, "pad", "a cut of more than there is", kInvalid, {"[2, 3]", "dimension 0"}, [] { pad(Matrix(), {{-3, 0}, {0, 0}}, PadMode::kConstant); }},
      {__LINE__, "interpolate", "too many axes", kInvalid, {"3", "[2, 3]"}, [] { interpolate(Matrix(), {1, 2, 3}); }},
      {__LINE__, "interpolate", "to nothing", kInvalid, {"from 3 to 0"}, [] { interpolate(Matrix(), {0}); }},
      {__LINE__, "interpolate", "aligned corners of the nearest", kInvalid, {"linear"}, [] { interpolate(Matrix(), {2}, Interpolation::kNearest, true); }},
      {__LINE__, "group_norm", "groups that do not divide", kInvalid, {"4", "3"}, [] { group_norm(Image(), 3); }},
      {__LINE__, "group_norm", "weights of other channels", kInvalid, {"[2]", "[1, 4, 5, 5]"}, [] { group_norm(Image(), 2, Places()); }},
      {__LINE__, "batch_norm", "running statistics of other channels", kInvalid, {"[2]", "[1, 4, 5, 5]"}, [] { RunningStatistics running = {Places(), Places(), {}}; batch_norm(Image(), {}, {}, running); }},
      {__LINE__, "batch_statistics", "no axis 1", kInvalid, {"[2]"}, [] { batch_statistics(Places()); }},
      {__LINE__, "scaled_dot_product_attention", "a mask beside is_causal", kInvalid, {"is_causal"}, [] { scaled_dot_product_attention(Matrix(), Matrix(), Matrix(), {.mask = Matrix(), .is_causal = true}); }},
      {__LINE__, "scaled_dot_product_attention", "heads that do not divide", kInvalid, {"4", "1 of the query"}, [] { scaled_dot_product_attention(Tensor::ones({1, 5, 5}), Image(), Image(), {.enable_gqa = true}); }},
      {__LINE__, "lstm_cell", "weights of another width", kInvalid, {"2", "3"}, [] { lstm_cell(Matrix(), {}, {Matrix(), Matrix(), {}, {}}); }},
      {__LINE__, "avg_pool2d", "another rank", kInvalid, {"[2, 3]", "[B, C, H, W]"}, [] { Matrix().avg_pool2d(); }},
      // ---- training
      {__LINE__, "dropout", "a share that is none", kInvalid, {"1.5"}, [] { Matrix().dropout(1.5); }},
      {__LINE__, "batchnorm", "no axis 1", kInvalid, {"[2]", "axis 1"}, [] { Bytes().batchnorm({}, {}, Bytes(), Bytes()); }},
      {__LINE__, "batchnorm", "other channels", kInvalid, {"[2]", "[2, 3]"}, [] { Matrix().batchnorm({}, {}, Bytes(), Bytes()); }},
      {__LINE__, "layernorm", "an axis that is none", kInvalid, {"2", "rank 2"}, [] { Matrix().layernorm(2); }},
      {__LINE__, "cross_entropy", "labels of another shape", kInvalid, {"[2, 3]", "[3]"}, [] { cross_entropy(Matrix(), Tensor::arange(3)); }},
      {__LINE__, "cross_entropy", "a smoothing that is no share", kInvalid, {"1.5"}, [] { cross_entropy(Matrix(), Places(), Reduction::kMean, 1.5); }},
      {__LINE__, "nll_loss", "weights of another count", kInvalid, {"[2]", "[2, 3]"}, [] { nll_loss(Matrix(), Places(), Tensor::ones({2})); }},
      {__LINE__, "nll_loss", "without classes", kInvalid, {"[2]", "axis 1"}, [] { nll_loss(Tensor::ones({2}), Places()); }},
      {__LINE__, "sparse_categorical_crossentropy", "labels of floats", kInvalid, {"f32", "[2]", "[2, 3]"}, [] { Matrix().sparse_categorical_crossentropy(Tensor::ones({2})); }},
      {__LINE__, "sparse_categorical_crossentropy", "labels of another shape", kInvalid, {"[3]", "[2, 3]"}, [] { Matrix().sparse_categorical_crossentropy(Tensor::arange(3)); }},
      {__LINE__, "mse_loss", "shapes that do not broadcast", kInvalid, {"[2, 3]", "[4]"}, [] { Matrix().mse_loss(Tensor::ones({4})); }},
      {__LINE__, "binary_crossentropy_logits", "shapes that do not broadcast", kInvalid, {"[2, 3]", "[4]"}, [] { Matrix().binary_crossentropy_logits(Tensor::ones({4})); }},
      // ---- layers and optimisers
      {__LINE__, "Linear", "another length", kInvalid, {"[2, 3]", "[4, 5]"}, [] { nn::Linear layer(4, 5); layer(Matrix()); }},
      {__LINE__, "Linear", "no inputs", kInvalid, {"at least one"}, [] { nn::Linear(0, 5); }},
      {__LINE__, "Conv2d", "groups that do not divide", kInvalid, {"4", "3"}, [] { nn::Conv2d(4, 3, 1, {.groups = 3}); }},
      {__LINE__, "BatchNorm2d", "other channels", kInvalid, {"4", "3"}, [] { const TrainingMode mode(true); nn::BatchNorm2d layer(3); layer(Image()); }},
      {__LINE__, "Embedding", "no rows", kInvalid, {"0", "5"}, [] { nn::Embedding(0, 5); }},
      {__LINE__, "Embedding", "an index of floats", kInvalid, {"f32", "integers"}, [] { nn::Embedding layer(2, 2); layer(Matrix()); }},
      {__LINE__, "LayerNorm", "another length", kInvalid, {"3", "4"}, [] { nn::LayerNorm layer(4); layer(Matrix()); }},
      {__LINE__, "load_state_dict", "names that are missing or unexpected", kInvalid, {"missing b", "unexpected c"}, [] { nn::load_state_dict({{"a", Bytes()}, {"b", Bytes()}}, {{"a", Bytes()}, {"c", Bytes()}}); }},
      {__LINE__, "load_state_dict", "a name twice", kInvalid, {"twice a"}, [] { nn::load_state_dict({{"a", Bytes()}}, {{"a", Bytes()}, {"a", Bytes()}}); }},
      {__LINE__, "load_state_dict", "another shape", kInvalid, {"a ([2, 3] for [2])"}, [] { nn::load_state_dict({{"a", Bytes()}}, {{"a", Matrix()}}); }},
      {__LINE__, "SGD", "no parameters", kInvalid, {"without parameters"}, [] { optim::SGD({}); }},
      {__LINE__, "SGD", "a parameter twice", kInvalid, {"twice"}, [] { const Tensor p = Matrix(); optim::SGD({p, p}); }},
      {__LINE__, "SGD", "a negative learning rate", kInvalid, {"lr -1"}, [] { optim::SGD({Matrix()}, -1); }},
      {__LINE__, "SGD", "nesterov without momentum", kInvalid, {"nesterov"}, [] { optim::SGD({Matrix()}, 1, 0, 0, true); }},
      {__LINE__, "SGD", "a parameter of integers", kInvalid, {"i32", "gradient"}, [] { optim::SGD({Places()}); }},
      {__LINE__, "SGD", "a step without a gradient", kPrecondition, {"backward"}, [] { optim::SGD sgd({Matrix()}); sgd.step(); }},
      {__LINE__, "Adam", "a share of 1", kInvalid, {"b1 1"}, [] { optim::Adam({Matrix()}, 1, 1); }},
      {__LINE__, "AdamW", "a negative decay", kInvalid, {"weight_decay -1"}, [] { optim::AdamW({Matrix()}, 1, 0, 0, 0, -1); }},
  };
  // clang-format on
  return kMistakes;
}

}  // namespace outboard::operators
