#include "tests/compiler/written_programs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "client/nn/optim.h"
#include "client/ops/index/index.h"
#include "client/ops/product/product.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/value.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/random_values.h"

namespace outboard::test {
namespace {

constexpr int64_t kElementsMax = 250'000;    // of a value
constexpr int64_t kProductsMax = 16'000'000;  // multiplications of a program, without gradients
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Around what tiles, warps, boxes and rows are long, and some primes.
const std::vector<int64_t> kSizes = {1,   2,   3,   7,   8,   15,  16,  17,  31,  32,  33,
                                     48,  63,  64,  65,  72,  96,  100, 127, 128, 129, 131,
                                     192, 255, 256, 257, 300, 384, 511, 512, 513, 768, 1000,
                                     1024, 1027,
                                     1536, 2047, 2048, 2049, 3000, 4096, 4099};

// A float value of the program, and about how large its elements are.
struct Value {
  Tensor t;
  std::string name;
  double size = 1;
};

class Writer {
 public:
  explicit Writer(uint64_t seed) : r_(seed), session_(std::make_shared<FakeSession>()) {
    session_->evaluate = false;
    SetSession(session_);
    Tensor::manual_seed(1);
  }
  ~Writer() { SetSession(nullptr); }

  WrittenProgram Write() {
    products_left_ = static_cast<double>(kProductsMax) / static_cast<double>(int64_t{1} << r_.Below(4));
    dtype_ = std::vector<DType>{DType::kF32, DType::kF32, DType::kF32, DType::kBF16, DType::kBF16,
                                DType::kF16}[r_.Below(6)];
    narrow_ = dtype_ != DType::kF32;
    classes_ = Size(1, 600);
    with_gradients_ = r_.OneIn(2);
    if (r_.OneIn(8)) {
      with_gradients_ = false;
      r_.OneIn(2) ? BoundedAttention() : BoundedRows();
      RealizeAll();
      return Taken();
    }
    large_ = r_.OneIn(2);
    if (large_) {
      products_left_ = 2 * kProductsMax;
      BeginLarge();
      for (int64_t steps = 1 + r_.Below(5); steps > 0; --steps) StepOfLarge();
    } else {
      Begin();
      for (int64_t steps = 1 + r_.Below(7); steps > 0; --steps) Step();
    }
    Finish();
    return Taken();
  }

 private:
  // ---- saying and keeping

  template <typename... Parts>
  void Say(const Parts&... parts) {
    absl::StrAppend(&text_, parts..., "\n");
  }
  static std::string Of(const Dims& dims) { return absl::StrCat("[", absl::StrJoin(dims, ", "), "]"); }

  // Names the value and keeps it for later steps.
  const Value& Keep(const Tensor& t, double size, const std::string& text) {
    pool_.push_back({t, absl::StrCat("v", pool_.size()), size});
    Say(pool_.back().name, " = ", text, "  # ", std::string(Name(t.dtype())), Of(t.shape()));
    return pool_.back();
  }

  // ---- inputs

  struct Spec {
    double scale = 1;        // of floats: uniform in -scale ... scale
    int64_t low = 0, high = 1;  // of integers, both included
  };

  Tensor Input(const Dims& dims, DType dtype, const Spec& spec) {
    Tensor t = Tensor::zeros(dims, dtype).state_();
    t.realize();
    specs_[session_->last.outputs.back()] = spec;
    return t;
  }
  // Printed where it is used.
  std::string Named(const Tensor& t, const std::string& what) {
    const std::string name = absl::StrCat(what, inputs_++);
    Say(name, " = input ", std::string(Name(t.dtype())), Of(t.shape()));
    return name;
  }
  struct NamedTensor {
    Tensor t;
    std::string name;
  };
  NamedTensor Floats(const Dims& dims, double scale = 1, std::optional<DType> dtype = {}) {
    const Tensor t = Input(dims, dtype.value_or(dtype_), {.scale = scale});
    return {t, Named(t, "x")};
  }
  // Rows of so many numbers keep their size when they are multiplied with it.
  NamedTensor Weight(const Dims& dims, int64_t fan_in) {
    const bool master = narrow_ && r_.OneIn(3);
    Tensor t = Input(dims, master ? DType::kF32 : dtype_,
                     {.scale = std::sqrt(3.0 / static_cast<double>(fan_in))});
    if (with_gradients_) {
      t.requires_grad_();
      weights_.push_back(t);
    }
    const std::string name = Named(t, "w");
    if (!master) return {t, name};
    return {t.cast(dtype_), absl::StrCat(name, ".cast(", std::string(Name(dtype_)), ")")};
  }
  NamedTensor Indices(const Dims& dims, int64_t count) {
    // Some are out of range.
    const Tensor t = Input(dims, DType::kI32, {.low = 0, .high = count - 1 + (r_.OneIn(4) ? 2 : 0)});
    return {t, Named(t, "i")};
  }

  // ---- sizes

  int64_t Size(int64_t least, int64_t most) {
    if (r_.OneIn(12)) return least + r_.Below(most - least + 1);
    const int64_t large = most > (large_ ? 63 : 300) && (large_ || !r_.OneIn(3)) ? 63 : least;
    for (int i = 0; i < 40; ++i) {
      const int64_t size = r_.Of(kSizes);
      if (std::max(least, large) <= size && size <= most) return size;
    }
    return least;
  }
  // So that rows * size elements are few enough, and products with `depth` too.
  int64_t Columns(int64_t rows, int64_t depth) {
    const auto most = static_cast<int64_t>(
        std::min(static_cast<double>(kElementsMax / rows),
                 products_left_ / static_cast<double>(rows * std::max<int64_t>(depth, 1))));
    return most < 1 ? 0 : Size(1, std::min<int64_t>(most, 1100));
  }
  bool Spend(double products) {
    if (products > products_left_) return false;
    products_left_ -= products;
    return true;
  }

  static int64_t Count(const Dims& dims) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    return count;
  }
  Value Pick() {
    const auto size = static_cast<int64_t>(pool_.size());
    return pool_[r_.OneIn(3) ? r_.Below(size) : size - 1 - r_.Below(std::min<int64_t>(size, 2))];
  }
  template <typename Good>
  std::optional<Value> PickWhere(const Good& good) {
    for (int i = 0; i < 10; ++i)
      if (const Value v = Pick(); good(v)) return v;
    return {};
  }
  Value LikeInput(const Value& v) {
    const auto [t, name] = Floats(v.t.shape(), 1, v.t.dtype());
    return {t, name, 1};
  }
  static int64_t Axis(const Tensor& t, int64_t from_end) { return t.rank() - from_end; }

  void Begin() {
    Dims dims;
    switch (r_.Below(8)) {
      case 0:
      case 1:
      case 2: {
        const int64_t rows = Size(1, 1100);
        dims = {rows, Size(1, std::min<int64_t>(r_.OneIn(3) ? 4500 : 1100, kElementsMax / rows))};
        if (r_.OneIn(6)) std::swap(dims[0], dims[1]);
        break;
      }
      case 3:
      case 4:
      case 5: {
        const int64_t batch = 1 + r_.Below(4), rows = Size(1, 513);
        dims = {batch, rows, Size(1, std::min<int64_t>(1100, kElementsMax / rows / batch))};
        break;
      }
      case 6: {
        const int64_t channels = Size(1, 65), side = Size(3, 33), other = r_.OneIn(2) ? side : Size(3, 33);
        dims = {1 + r_.Below(3), channels, side, other};
        while (Count(dims) > kElementsMax) dims[1] = (dims[1] + 1) / 2;
        break;
      }
      default: dims = {Size(1, 1027)};
    }
    if (r_.OneIn(4) && dims.size() > 1) {
      Dims index(dims.begin(), dims.end() - 1);
      if (Count(dims) * classes_ < 4'000'000) {
        const NamedTensor table = Weight({classes_, dims.back()}, 3), i = Indices(index, classes_);
        Keep(table.t[i.t], 1, absl::StrCat(table.name, "[", i.name, "]"));
        return;
      }
    }
    NamedTensor x = Floats(dims);
    if (with_gradients_ && r_.OneIn(2)) {
      x.t.requires_grad_();
      weights_.push_back(x.t);
    }
    Keep(x.t, 1, x.name);
  }

  // Matrices that fill tiles, and what is done beside their products.
  void BeginLarge() {
    const int64_t rows = std::vector<int64_t>{128, 255, 256, 256, 257, 300, 384, 511, 512, 512, 513, 768, 1000, 1024}[r_.Below(14)];
    const int64_t k = std::vector<int64_t>{16, 31, 32, 48, 64, 64, 65, 96, 128, 128, 131, 192, 256}[r_.Below(13)];
    const int64_t batch = rows % 4 == 0 && r_.OneIn(3) ? 4 : 1;
    NamedTensor x = Floats(batch == 1 ? Dims{rows, k} : Dims{batch, rows / batch, k});
    if (with_gradients_ && r_.OneIn(2)) {
      x.t.requires_grad_();
      weights_.push_back(x.t);
    }
    Keep(x.t, 1, x.name);
    if (r_.OneIn(3)) return Network(k);
    Linear();
  }

  // Layers with biases, whose gradients are sums over the rows of products.
  void Network(int64_t k) {
    const int64_t layers = 2 + r_.Below(2), rows = Count(pool_.back().t.shape()) / k;
    const int64_t activation = r_.Below(narrow_ ? 3 : 4);
    with_gradients_ = true;
    Value x = pool_.back();
    for (int64_t layer = 0; layer < layers; ++layer) {
      const int64_t n = std::vector<int64_t>{48, 64, 65, 72, 96, 128, 130}[r_.Below(7)];
      const NamedTensor w = Weight({k, n}, k), b = Weight({n}, 3);
      Tensor y = x.t.matmul(w.t) + b.t;
      if (layer + 1 < layers)
        y = activation == 0 ? y.gelu() : activation == 1 ? y.silu() : activation == 2 ? y.tanh() : y.relu();
      x = Keep(y, x.size, absl::StrCat("act", layer + 1 < layers ? activation : -1, "(", x.name, " @ ", w.name, " + ", b.name, ")"));
      Spend(static_cast<double>(3 * rows * k * n));
      k = n;
    }
  }

  void StepOfLarge() {
    switch (r_.Below(16)) {
      case 0:
      case 1:
      case 2:
      case 3: return Linear();
      case 4:
      case 5: return Fold();
      case 6:
      case 7: return Scan();
      case 8: return Norm();
      case 9: return Elementwise();
      case 10: return Move();
      case 11: return Residual();
      case 12: return Attention();
      case 13: return Gated();
      case 14: return Together();
      default: return Join();
    }
  }

  void Step() {
    switch (r_.Below(30)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: return Linear();
      case 5: return Together();
      case 6:
      case 7: return Norm();
      case 8:
      case 9: return Attention();
      case 10:
      case 11: return Convolve();
      case 12: return Pool();
      case 13:
      case 14: return Scan();
      case 15: return Gather();
      case 16: return Scatter();
      case 17:
      case 18: return Move();
      case 19:
      case 20: return Elementwise();
      case 21:
      case 22:
      case 23: return Fold();
      case 24: return Join();
      case 25: return Gated();
      case 26: return Quantized();
      case 27: return Integers();
      case 28: return Added();
      default: return Residual();
    }
  }

  // ---- products

  std::string Act(Tensor& t, double& size) {
    switch (r_.Below(narrow_ && with_gradients_ ? 5 : 7)) {
      case 0: t = t.gelu(); return ".gelu()";
      case 1: t = t.silu(); return ".silu()";
      case 2: t = t.tanh(); size = 1; return ".tanh()";
      case 3: t = t.sigmoid(); size = 1; return ".sigmoid()";
      case 4: return "";
      case 5: t = t.relu(); return ".relu()";
      default: t = t.relu().square(); size *= size; return ".relu().square()";
    }
  }

  // x @ w of rows of x, or of its columns; bias, activation and residual, perhaps.
  void Linear() {
    Value x = Pick();
    if (x.t.rank() == 0) return;
    bool across = false;
    if (x.t.rank() == 2 && r_.OneIn(4)) {
      x = {x.t.transpose(), x.name + ".T", x.size};
      across = true;
    }
    const Dims dims = x.t.shape();
    const int64_t k = dims.back(), rows = Count(dims) / k;
    const int64_t n = !across && r_.OneIn(4) ? k : Columns(rows, k);
    if (n == 0 || k * n > 2 * kElementsMax || !Spend(static_cast<double>(rows * k * n))) return;
    const bool wide = narrow_ && r_.OneIn(2);
    const bool grouped = dims.size() == 3 && r_.OneIn(5), turned = r_.OneIn(2);
    Dims of_w = turned ? Dims{n, k} : Dims{k, n};
    if (grouped) of_w.insert(of_w.begin(), dims[0]);
    const NamedTensor w = Weight(of_w, k);
    const std::optional<DType> sums = wide ? std::optional(DType::kF32) : std::nullopt;
    Tensor y = x.t.matmul(turned ? w.t.transpose() : w.t, sums);
    std::string text = absl::StrCat(x.name, " @ ", w.name, turned ? ".T" : "", wide ? " in f32" : "");
    double size = x.size;
    if (r_.OneIn(2)) {
      const NamedTensor bias = Weight({n}, 3);
      y = y + bias.t;
      absl::StrAppend(&text, " + ", bias.name);
    }
    if (r_.OneIn(2)) text = absl::StrCat("(", text, ")", Act(y, size));
    if (n == k && !across && r_.OneIn(2)) {
      y = x.t + y;
      text = absl::StrCat(x.name, " + ", text);
    }
    if (wide && r_.OneIn(2)) {
      y = y.cast(dtype_);
      text = absl::StrCat("(", text, ").cast()");
    }
    Keep(y, size, text);
  }

  // x @ x.T, or of two values that fit.
  void Together() {
    const Value x = Pick();
    if (x.t.rank() < 2) return;
    const Dims dims = x.t.shape();
    const int64_t n = dims[dims.size() - 2], k = dims.back(), batch = Count(dims) / n / k;
    const bool across = r_.OneIn(2);
    const int64_t side = across ? k : n, depth = across ? n : k;
    if (batch * side * side > kElementsMax ||
        !Spend(static_cast<double>(batch * side * side * depth)))
      return;
    const double scale = 1 / std::sqrt(static_cast<double>(depth));
    const Tensor t = x.t.transpose();
    if (!across && r_.OneIn(3) && Spend(static_cast<double>(batch * side * side * depth))) {
      Keep((x.t.matmul(t) * scale).softmax().matmul(x.t), x.size, absl::StrCat("softmax(", x.name, " @ ", x.name, ".T * 1/sqrt(k)) @ ", x.name));
      return;
    }
    Keep((across ? t.matmul(x.t) : x.t.matmul(t)) * scale, x.size * x.size,
         across ? absl::StrCat(x.name, ".T @ ", x.name, " * 1/sqrt(k)")
                : absl::StrCat(x.name, " @ ", x.name, ".T * 1/sqrt(k)"));
  }

  // silu(x @ a) * (x @ b), one matrix or two.
  void Gated() {
    const Value x = Pick();
    if (x.t.rank() == 0) return;
    const int64_t k = x.t.shape().back(), rows = Count(x.t.shape()) / k;
    const int64_t n = Columns(rows, 2 * k);
    if (n == 0 || !Spend(static_cast<double>(2 * rows * k * n))) return;
    if (r_.OneIn(2)) {
      const NamedTensor w = Weight({k, 2 * n}, k);
      const Tensor y = x.t.matmul(w.t);
      Keep(y.slice(-1, 0, n).silu() * y.slice(-1, n, 2 * n), x.size * x.size,
           absl::StrCat("silu(y[:n]) * y[n:], y = ", x.name, " @ ", w.name));
    } else {
      const NamedTensor a = Weight({k, n}, k), b = Weight({n, k}, k);
      Keep(x.t.matmul(a.t).silu() * x.t.matmul(b.t.transpose()), x.size * x.size,
           absl::StrCat("silu(", x.name, " @ ", a.name, ") * (", x.name, " @ ", b.name, ".T)"));
    }
  }

  // x @ w + x @ a @ b, or the sum of two products of different depth.
  void Added() {
    const Value x = Pick();
    if (x.t.rank() == 0) return;
    const int64_t k = x.t.shape().back(), rows = Count(x.t.shape()) / k;
    const int64_t n = Columns(rows, 2 * k);
    if (n == 0 || !Spend(static_cast<double>(2 * rows * k * n))) return;
    const NamedTensor w = Weight({k, n}, k);
    if (r_.OneIn(2)) {
      const int64_t rank = std::vector<int64_t>{1, 4, 8, 16, 17, 64}[r_.Below(6)];
      const NamedTensor a = Weight({k, rank}, k), b = Weight({rank, n}, rank);
      Keep(x.t.matmul(w.t) + x.t.matmul(a.t).matmul(b.t), 2 * x.size,
           absl::StrCat(x.name, " @ ", w.name, " + ", x.name, " @ ", a.name, " @ ", b.name));
    } else {
      Dims of_y = x.t.shape();
      of_y.back() = Size(1, std::min<int64_t>(300, kElementsMax / rows));
      const NamedTensor y = Floats(of_y), v = Weight({of_y.back(), n}, of_y.back());
      Keep(x.t.matmul(w.t) + y.t.cast(x.t.dtype()).matmul(v.t), 2 * x.size,
           absl::StrCat(x.name, " @ ", w.name, " + ", y.name, " @ ", v.name));
    }
  }

  // Weights of 8 bits with scales, or with blocks of them.
  void Quantized() {
    const Value x = Pick();
    if (x.t.rank() == 0) return;
    const int64_t k = x.t.shape().back(), rows = Count(x.t.shape()) / k;
    const int64_t n = Columns(rows, k);
    if (n == 0 || !Spend(static_cast<double>(rows * k * n))) return;
    const double small = 1 / std::sqrt(static_cast<double>(k)) / 5;
    const Tensor w = Input({n, k}, DType::kI8, {.low = -8, .high = 7});
    const std::string name = Named(w, "q");
    if (k % 32 == 0 && r_.OneIn(2)) {
      const NamedTensor scales = Floats({n, k / 32, 1}, small);
      const Tensor m = (w.cast(dtype_).reshape({n, k / 32, 32}) * scales.t).reshape({n, k});
      Keep(x.t.matmul(m.transpose()), x.size,
           absl::StrCat(x.name, " @ (", name, " * ", scales.name, ").T, blocks of 32"));
    } else if (r_.OneIn(2)) {
      const NamedTensor scales = Floats({n, 1}, small);
      Keep(x.t.matmul((w.cast(dtype_) * scales.t).transpose()), x.size,
           absl::StrCat(x.name, " @ (", name, " * ", scales.name, ").T"));
    } else {
      const NamedTensor scales = Floats({n}, small);
      Keep(x.t.matmul(w.cast(dtype_).transpose()) * scales.t, x.size,
           absl::StrCat(x.name, " @ ", name, ".T * ", scales.name));
    }
  }

  // Products of integers, exact.
  void Integers() {
    const int64_t rows = Size(1, 257), k = Size(1, 513);
    const int64_t n = Columns(rows, k);
    if (n == 0 || rows * k > kElementsMax || n * k > kElementsMax ||
        !Spend(static_cast<double>(rows * k * n)))
      return;
    const DType of = r_.OneIn(2) ? DType::kI8 : DType::kU8;
    const Tensor a = Input({rows, k}, of, {.low = of == DType::kI8 ? -100 : 0, .high = 100}),
                 b = Input({n, k}, DType::kI8, {.low = -100, .high = 100});
    const std::string left = Named(a, "q"), right = Named(b, "q");
    const Tensor y = a.cast(DType::kI32).matmul(b.cast(DType::kI32).transpose());
    switch (r_.Below(5)) {
      case 0: results_.push_back({y.cumsum(0), absl::StrCat("(", left, " @ ", right, ".T).cumsum(0)")}); break;
      case 1: results_.push_back({y.argmax(-1), absl::StrCat("(", left, " @ ", right, ".T).argmax(-1)")}); break;
      case 2: results_.push_back({y.sum(0), absl::StrCat("(", left, " @ ", right, ".T).sum(0)")}); break;
      case 3: results_.push_back({y.max(Axes(0)), absl::StrCat("(", left, " @ ", right, ".T).max(0)")}); break;
      default: break;
    }
    results_.push_back({y, absl::StrCat(left, " @ ", right, ".T in i32")});
  }

  // ---- attention

  Tensor Mask(int64_t queries, int64_t keys, int64_t kind) {
    const Tensor i = Tensor::arange(queries).reshape({queries, 1}), j = Tensor::arange(keys);
    const Tensor seen = j <= i + (keys - queries);
    if (kind == 1) return seen;
    return seen & (j > i + (keys - queries) - 40);
  }

  void Attention() {
    const std::vector<int64_t> widths = {8, 16, 32, 33, 64, 64, 80, 128};
    int64_t heads = 1 + r_.Below(4);
    const int64_t d = r_.Of(widths);
    const int64_t batch = 1 + r_.Below(2);
    int64_t queries = Size(1, 300), keys = queries;
    const bool own_keys = r_.OneIn(2);
    if (own_keys) keys = Size(1, 1027);
    if (r_.OneIn(4)) queries = 1;
    int64_t groups = heads;
    if (heads % 2 == 0 && r_.OneIn(3)) groups = r_.OneIn(2) ? heads / 2 : 1;
    Tensor q, k, v;
    std::string text;
    // Packed, from a value of three axes; or inputs.
    const auto x = PickWhere([](const Value& x) { return x.t.rank() == 3; });
    const bool packed = x && !own_keys && r_.OneIn(2);
    if (packed) {
      const Dims dims = x->t.shape();
      queries = keys = dims[1];
      groups = heads;
      const int64_t n = heads * d;
      if (dims[0] * queries * 3 * n > 2 * kElementsMax || dims[0] * heads * queries * keys > 600'000 ||
          !Spend(static_cast<double>(dims[0] * queries * 3 * n * dims[2])))
        return;
      const NamedTensor w = Weight({dims[2], 3 * n}, dims[2]);
      const Tensor qkv = x->t.matmul(w.t, r_.OneIn(2) ? std::nullopt : std::optional(DType::kF32)).cast(dtype_);
      if (r_.OneIn(2)) {
        const Tensor parts = qkv.reshape({dims[0], queries, 3, heads, d}).permute({2, 0, 3, 1, 4});
        q = parts[0], k = parts[1], v = parts[2];
      } else {
        const auto part = [&](int64_t i) {
          return qkv.slice(-1, i * n, (i + 1) * n).reshape({dims[0], queries, heads, d}).transpose(1, 2);
        };
        q = part(0), k = part(1), v = part(2);
      }
      text = absl::StrCat("q, k, v of ", x->name, " @ ", w.name, ", heads ", heads, ", width ", d);
    } else {
      if (batch * heads * keys * d > 2 * kElementsMax || batch * heads * queries * keys > 600'000)
        return;
      const bool turned = r_.OneIn(2);
      const auto matrix = [&](int64_t count, int64_t rows) {
        NamedTensor m = Floats(turned ? Dims{batch, rows, count, d} : Dims{batch, count, rows, d});
        if (with_gradients_) {
          m.t.requires_grad_();
          weights_.push_back(m.t);
        }
        absl::StrAppend(&text, m.name, turned ? "^(1,2) " : " ");
        return turned ? m.t.transpose(1, 2) : m.t;
      };
      q = matrix(heads, queries), k = matrix(groups, keys), v = matrix(groups, keys);
    }
    if (!Spend(static_cast<double>(2 * Count(q.shape()) * keys))) return;
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    const int64_t mask = keys >= queries ? r_.Below(4) : 0;  // 1: causal, 2: a band
    Tensor y;
    if (r_.OneIn(3)) {
      AttentionOptions options{.is_causal = mask == 1 && keys == queries, .enable_gqa = groups != heads};
      if (!options.is_causal && mask > 0 && mask < 3) options.mask = Mask(queries, keys, mask);
      if (mask == 3 && r_.OneIn(2)) {
        const NamedTensor bias = Floats({heads, queries, keys});
        options.mask = bias.t;
      }
      y = scaled_dot_product_attention(q, k, v, options);
      absl::StrAppend(&text, "scaled_dot_product_attention, mask ", mask);
    } else {
      if (groups != heads) {
        const Dims dims = k.shape();
        const auto spread = [&](const Tensor& t) {
          return t.unsqueeze(2).expand({dims[0], groups, heads / groups, keys, d}).reshape({dims[0], heads, keys, d});
        };
        k = spread(k), v = spread(v);
      }
      const bool wide = narrow_ && r_.OneIn(2);
      Tensor scores = q.matmul(k.transpose(), wide ? std::optional(DType::kF32) : std::nullopt) * scale;
      absl::StrAppend(&text, "softmax(q @ k.T / sqrt(d)", wide ? " in f32" : "");
      if (r_.OneIn(5)) {
        scores = (scores * (1 / 20.0)).tanh() * 20.0;
        text += " capped";
      }
      if (r_.OneIn(5)) {
        const NamedTensor bias = Floats(r_.OneIn(2) ? Dims{heads, queries, keys} : Dims{heads, 1, keys}, 1, scores.dtype());
        scores = scores + bias.t;
        absl::StrAppend(&text, " + ", bias.name);
      }
      if (mask == 1 || mask == 2) {
        scores = Mask(queries, keys, mask).where(scores, r_.OneIn(2) ? -kInfinity : -1e4);
        absl::StrAppend(&text, ", mask ", mask);
      }
      const Tensor weights = scores.softmax();
      if (r_.OneIn(12)) results_.push_back({weights, "its weights"});
      y = weights.cast(dtype_).matmul(v);
      text += ") @ v";
    }
    if (r_.OneIn(2)) {
      const Dims dims = y.shape();
      y = y.transpose(1, 2).reshape({dims[0], dims[2], dims[1] * dims[3]});
      text += ", heads merged";
    }
    Keep(y, 1, text);
  }

  // ---- windows

  void Convolve() {
    auto x = PickWhere([](const Value& x) { return x.t.rank() == 4; });
    if (!x) {
      if (!r_.OneIn(3)) return;
      const int64_t channels = Size(1, 64);
      const NamedTensor image = Floats({1 + r_.Below(2), channels, 4 + r_.Below(14), 4 + r_.Below(14)});
      x = Value{image.t, image.name, 1};
    }
    const Dims dims = x->t.shape();
    const int64_t kernel = std::vector<int64_t>{1, 3, 3, 3, 5, 7, 2}[r_.Below(7)];
    const int64_t stride = 1 + r_.Below(2) * r_.Below(2), dilation = r_.OneIn(6) ? 2 : 1;
    const int64_t padding = r_.OneIn(3) ? 0 : kernel / 2;
    int64_t groups = 1;
    if (r_.OneIn(4)) {
      groups = r_.OneIn(2) ? dims[1] : 2;
      if (dims[1] % groups != 0) groups = 1;
    }
    const int64_t h = (dims[2] + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1,
                  w = (dims[3] + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
    if (dims[2] + 2 * padding <= dilation * (kernel - 1) ||
        dims[3] + 2 * padding <= dilation * (kernel - 1) || h < 1 || w < 1)
      return;
    const int64_t depth = dims[1] / groups * kernel * kernel;
    int64_t filters = Columns(dims[0] * h * w, depth);
    if (filters > 256) filters = 256;
    filters = filters / groups * groups;
    if (filters == 0) filters = groups;
    if (!Spend(static_cast<double>(dims[0] * h * w * depth * filters)) ||
        dims[0] * filters * h * w > kElementsMax)
      return;
    const NamedTensor weight = Weight({filters, dims[1] / groups, kernel, kernel}, depth);
    NamedTensor bias;
    if (r_.OneIn(2)) bias = Weight({filters}, 3);
    Tensor y = x->t.conv2d(weight.t, bias.t,
                           {.groups = groups, .stride = stride, .dilation = dilation, .padding = padding});
    std::string text = absl::StrCat(x->name, ".conv2d(", weight.name, bias.name.empty() ? "" : ", ", bias.name, ", groups ", groups,
                                    ", stride ", stride, ", dilation ", dilation, ", padding ", padding, ")");
    double size = x->size;
    if (r_.OneIn(4) && dims[0] * h * w > 4) {
      const Tensor mean = y.mean({0, 2, 3}, true), centred = y - mean;
      y = centred * ((centred * centred).mean({0, 2, 3}, true) + 1e-3).rsqrt();
      size = 3;
      text = absl::StrCat("batch norm of ", text);
    }
    if (r_.OneIn(2)) text = absl::StrCat("(", text, ")", Act(y, size));
    Keep(y, size, text);
  }

  void Pool() {
    const auto x = PickWhere([](const Value& x) { return x.t.rank() == 4 && x.t.shape()[2] > 3 && x.t.shape()[3] > 3; });
    if (!x) return;
    const Pool2dOptions options{.kernel = 2 + r_.Below(2), .stride = 1 + r_.Below(3), .padding = r_.Below(2)};
    if ((narrow_ && with_gradients_) || r_.OneIn(2))
      Keep(x->t.avg_pool2d(options), x->size, absl::StrCat(x->name, ".avg_pool2d(", options.kernel.h, ", stride ", options.stride.h, ", padding ", options.padding.h, ")"));
    else
      Keep(x->t.max_pool2d(options), x->size, absl::StrCat(x->name, ".max_pool2d(", options.kernel.h, ", stride ", options.stride.h, ", padding ", options.padding.h, ")"));
  }

  // ---- rows

  void Norm() {
    const Value x = Pick();
    if (x.t.rank() == 0 || x.size > 20) return;
    const int64_t axis = r_.OneIn(4) ? r_.Below(x.t.rank()) : x.t.rank() - 1;
    const int64_t length = x.t.shape()[axis];
    switch (r_.Below(6)) {
      case 0: Keep(x.t.softmax(axis), 1, absl::StrCat(x.name, ".softmax(", axis, ")")); return;
      case 1: Keep(x.t.log_softmax(axis), 10, absl::StrCat(x.name, ".log_softmax(", axis, ")")); return;
      case 2: {
        const Tensor f = x.t.cast(DType::kF32);
        Tensor y = f * ((f * f).mean(axis, true) + 1e-3).rsqrt();
        std::string text = absl::StrCat("rms norm of ", x.name, " over ", axis);
        if (axis == x.t.rank() - 1 && r_.OneIn(2)) {
          const NamedTensor w = Weight({length}, 3);
          y = y * w.t;
          absl::StrAppend(&text, " * ", w.name);
        }
        Keep(y.cast(dtype_), 3, text);
        return;
      }
      case 3: {
        const Tensor centred = x.t - x.t.mean(axis, true);
        Keep(centred / ((centred * centred).sum(axis, true) + 0.5).sqrt(), 2, absl::StrCat(x.name, " centred over ", axis, " / norm"));
        return;
      }
      default: {
        if (length == 1) return;
        Tensor y = x.t.layernorm(axis, 1e-2);
        std::string text = absl::StrCat(x.name, ".layernorm(", axis, ")");
        if (axis == x.t.rank() - 1 && r_.OneIn(2)) {
          const NamedTensor w = Weight({length}, 3), b = Weight({length}, 3);
          y = y * w.t + b.t;
          absl::StrAppend(&text, " * ", w.name, " + ", b.name);
        }
        Keep(y, 4, text);
        return;
      }
    }
  }

  void Scan() {
    const Value x = Pick();
    if (x.t.rank() == 0) return;
    const int64_t axis = r_.Below(x.t.rank()), length = x.t.shape()[axis];
    const double grows = std::sqrt(static_cast<double>(length));
    switch (x.t.rank() < 2 ? 0 : r_.Below(5)) {
      case 0:
      case 1: {
        Tensor y = x.t.cumsum(axis);
        std::string text = absl::StrCat(x.name, ".cumsum(", axis, ")");
        if (r_.OneIn(2)) {
          y = y / grows;
          text += " / sqrt(n)";
          Keep(y, x.size * 2, text);
        } else {
          Keep(y, x.size * grows, text);
        }
        return;
      }
      case 2: {
        const int64_t shift = r_.Below(5) - 2;
        Keep(x.t.tril(shift), x.size, absl::StrCat(x.name, ".tril(", shift, ")"));
        return;
      }
      case 3: Keep(x.t.triu(1), x.size, absl::StrCat(x.name, ".triu(1)")); return;
      default: {
        const int64_t n = x.t.shape()[x.t.rank() - 2];
        if (!Spend(static_cast<double>(n * Count(x.t.shape())))) return;
        const NamedTensor decay = Floats({n, n}, 1 / std::sqrt(static_cast<double>(n)), x.t.dtype());
        Keep(decay.t.tril().matmul(x.t), x.size, absl::StrCat(decay.name, ".tril() @ ", x.name));
        return;
      }
    }
  }

  void Fold() {
    const Value x = Pick();
    if (x.t.rank() == 0) return;
    const int64_t rank = x.t.rank();
    Axes axes;
    switch (r_.Below(5)) {
      case 0:
      case 1: axes = Axes(rank - 1); break;
      case 2: axes = Axes(0); break;
      case 3:
        for (int64_t a = 0; a < rank; ++a)
          if (r_.OneIn(2)) axes.push_back(a);
        if (axes.empty()) axes = Axes(rank - 1);
        break;
      default:
        for (int64_t a = 0; a + 1 < rank; ++a) axes.push_back(a);
        if (axes.empty()) axes = Axes(0);
    }
    const std::string text = absl::StrCat("([", absl::StrJoin(axes, ", "), "])");
    int64_t length = 1;
    for (const int64_t axis : axes) length *= x.t.shape()[axis];
    const double shrinks = 1 / std::sqrt(static_cast<double>(length));
    switch (r_.Below(narrow_ && with_gradients_ ? 6 : 8)) {
      case 0: Keep(x.t.sum(axes) * shrinks, x.size, absl::StrCat(x.name, ".sum", text, " / sqrt(n)")); return;
      case 1: Keep(x.t.mean(axes, true), x.size, absl::StrCat(x.name, ".mean", text)); return;
      case 2: Keep((x.t * x.t).mean(axes), x.size * x.size, absl::StrCat("square of ", x.name, " .mean", text)); return;
      case 3: {
        const Value y = LikeInput(x);
        Keep((x.t * y.t).sum(axes) * shrinks, x.size, absl::StrCat("(", x.name, " * ", y.name, ").sum", text, " / sqrt(n)"));
        return;
      }
      case 4:
        Keep(x.t - x.t.mean(axes, true), x.size, absl::StrCat(x.name, " - its mean", text));
        return;
      case 5:
        if (x.size < 20) Keep(x.t.logsumexp(axes), x.size + 7, absl::StrCat(x.name, ".logsumexp", text));
        return;
      case 6: Keep(x.t.max(axes), x.size, absl::StrCat(x.name, ".max", text)); return;
      default:
        // Of inputs, whose largest elements are no matter of rounding.
        const NamedTensor y = Floats(x.t.shape());
        results_.push_back({y.t.argmax(axes[0]), absl::StrCat(y.name, ".argmax(", axes[0], ")")});
    }
  }

  // ---- lengths that a variable bounds; their tensors are not kept for other steps

  SymInt Length(int64_t least, int64_t most) {
    const int64_t bound = least + r_.Below(most - least + 1);
    Say("n = Variable(", least, ", ", most, ").bind(", bound, ")");
    return Variable("n", least, most).bind(bound);
  }

  // Of a cache of keys and values, whose row of the newest token this step perhaps writes.
  void BoundedAttention() {
    const int64_t heads = 1 + r_.Below(4), d = std::vector<int64_t>{16, 32, 64, 64, 80, 128}[r_.Below(6)];
    const int64_t keys = Size(2, 700), queries = r_.OneIn(2) ? 1 : 1 + r_.Below(std::min<int64_t>(keys, 20));
    const int64_t groups = heads % 2 == 0 && r_.OneIn(2) ? heads / 2 : heads;
    const SymInt n = Length(queries, keys);
    const int64_t form = r_.Below(3);  // [h, n, d], [n, h, d], [h, d, n]
    std::string text;
    const auto cache = [&] {
      const NamedTensor m = Floats(form == 0   ? Dims{groups, keys, d}
                                   : form == 1 ? Dims{keys, groups, d}
                                               : Dims{groups, d, keys});
      text += m.name + " ";
      Tensor t = m.t;
      if (form == 0 && queries == 1 && r_.OneIn(2)) {
        const NamedTensor fresh = Floats({groups, 1, d});
        const Tensor is_row = Tensor::arange(keys).reshape({1, keys, 1}) == n - 1;
        caches_.push_back(m.t);
        Tensor renewed = is_row.where(fresh.t, m.t);
        caches_.back().assign(renewed);
        t = caches_.back();
        text += absl::StrCat("(row n - 1 = ", fresh.name, ") ");
      }
      t = t.slice(form == 0 ? 1 : form == 1 ? 0 : 2, 0, n);
      if (form == 1) t = t.transpose(0, 1);
      if (form == 2) t = t.transpose(1, 2);
      return t.unsqueeze(1);  // [groups, 1, n, d]
    };
    const Tensor k = cache(), v = cache();
    const NamedTensor q = Floats({groups, heads / groups, queries, d});
    const bool wide = narrow_ && r_.OneIn(2);
    Tensor scores = q.t.matmul(k.transpose(), wide ? std::optional(DType::kF32) : std::nullopt) *
                    (1 / std::sqrt(static_cast<double>(d)));
    const bool causal = r_.OneIn(2);
    if (causal)
      scores = (Tensor::arange(n) > Tensor::arange(queries).reshape({queries, 1}) + n - queries)
                   .where(-kInfinity, scores);
    const Tensor y = scores.softmax().cast(dtype_).matmul(v);
    results_.push_back({y, absl::StrCat("softmax(", q.name, " @ k.T", causal ? ", causal" : "", wide ? ", f32" : "", ") @ v of ", text, "form ", form)});
    if (r_.OneIn(2)) {
      const int64_t out = Size(1, 300);
      const NamedTensor w = Weight({heads * d, out}, heads * d);
      const Tensor rows = y.reshape({heads, queries, d}).transpose(0, 1).reshape({queries, heads * d});
      results_.push_back({rows.matmul(w.t), absl::StrCat("its heads merged @ ", w.name)});
    }
  }

  void BoundedRows() {
    const int64_t rows = Size(2, 700), k = Size(1, std::min<int64_t>(600, kElementsMax / rows));
    const SymInt n = Length(r_.OneIn(4) ? 0 : 1, rows);
    const NamedTensor x = Floats({rows, k});
    Tensor t = x.t.slice(0, 0, n);
    std::string text = x.name + "[:n]";
    if (r_.OneIn(3)) {
      // The variable bounds what is summed.
      const int64_t m = Columns(rows, k);
      if (m > 0) {
        const NamedTensor w = Weight({rows, m}, rows);
        results_.push_back({t.transpose().matmul(w.t.slice(0, 0, n)), absl::StrCat(text, ".T @ ", w.name, "[:n]")});
      }
    }
    if (r_.OneIn(2)) {
      const int64_t m = Columns(rows, k);
      if (m > 0) {
        const NamedTensor w = Weight({k, m}, k);
        t = t.matmul(w.t);
        text = absl::StrCat(text, " @ ", w.name);
        double size = 1;
        if (r_.OneIn(2)) text = absl::StrCat("(", text, ")", Act(t, size));
      }
    }
    if (r_.OneIn(3)) {
      t = t.softmax();
      text = absl::StrCat("softmax(", text, ")");
    }
    switch (r_.Below(6)) {
      case 0: results_.push_back({t.sum(0), absl::StrCat("(", text, ").sum(0)")}); break;
      case 1: results_.push_back({t.sum({0, 1}), absl::StrCat("(", text, ").sum()")}); break;
      case 2: results_.push_back({(t * t).sum(1), absl::StrCat("square of (", text, ").sum(1)")}); break;
      case 3: results_.push_back({t - t.mean(1, true), absl::StrCat(text, " - its mean(1)")}); break;
      case 4: {
        if (rows * rows > kElementsMax || t.rank() != 2) break;
        const Tensor scores = t.matmul(t.transpose()) * 0.2;
        results_.push_back({scores.softmax().matmul(t), absl::StrCat("softmax(y @ y.T / 5) @ y of y = ", text)});
        break;
      }
      default: results_.push_back({t.max(Axes(1)), absl::StrCat("(", text, ").max(1)")}); break;
    }
    results_.push_back({t, text});
  }

  // ---- by index

  void Gather() {
    const Value x = Pick();
    if (x.t.rank() == 0) return;
    const Dims dims = x.t.shape();
    const int64_t axis = r_.Below(x.t.rank()), count = Size(1, 257);
    Dims of_y = dims;
    of_y[axis] = count;
    if (Count(of_y) > kElementsMax || Count(of_y) * dims[axis] > 6'000'000) return;
    if (r_.OneIn(3)) {
      if (Count(of_y) > 4000) return;
      const NamedTensor i = Indices(of_y, dims[axis]);
      Keep(x.t.gather(axis, i.t), x.size, absl::StrCat(x.name, ".gather(", axis, ", ", i.name, ")"));
      return;
    }
    const NamedTensor i = Indices({count}, dims[axis]);
    Keep(x.t.take(i.t, axis), x.size, absl::StrCat(x.name, ".take(", i.name, ", ", axis, ")"));
  }

  void Scatter() {
    const auto x = PickWhere([](const Value& x) { return x.t.rank() == 2; });
    if (!x) return;
    const int64_t rows = x->t.shape()[0], width = x->t.shape()[1], count = Size(1, 300);
    if (count * width > kElementsMax || count * width * rows > 6'000'000) return;
    const NamedTensor i = Indices({rows}, count);
    switch (r_.Below(3)) {
      case 0: {
        const Tensor hot = i.t.one_hot(count, x->t.dtype());
        Keep(hot.transpose().matmul(x->t), x->size * 3, absl::StrCat("one_hot(", i.name, ").T @ ", x->name));
        return;
      }
      case 1: {
        const Tensor y = Input({count, width}, x->t.dtype(), {});
        const std::string name = Named(y, "x");
        Keep(scatter_reduce(y, 0, i.t.reshape({rows, 1}).expand({rows, width}), x->t, ScatterReduce::kSum),
             x->size * 3, absl::StrCat(name, ".scatter_add(0, ", i.name, ", ", x->name, ")"));
        return;
      }
      default: {
        const Tensor hot = (i.t.reshape({1, rows}) == Tensor::arange(count).reshape({count, 1}));
        Keep(hot.unsqueeze(2).where(x->t.unsqueeze(0), 0).sum(1), x->size * 3,
             absl::StrCat("sums of rows of ", x->name, " by ", i.name));
      }
    }
  }

  // ---- movements and elements

  void Move() {
    const Value x = Pick();
    const int64_t rank = x.t.rank();
    if (rank == 0) return;
    const Dims dims = x.t.shape();
    const int64_t axis = r_.Below(rank), length = dims[axis];
    const auto keep = [&](const Tensor& t, const std::string& text) {
      Keep(t, x.size, absl::StrCat(x.name, text));
    };
    switch (r_.Below(8)) {
      case 0: return keep(x.t.flip(axis), absl::StrCat(".flip(", axis, ")"));
      case 1: {
        if (length < 2) return;
        const int64_t begin = r_.Below(length / 2 + 1);
        const int64_t end = r_.OneIn(2) ? length : begin + 1 + r_.Below(length - begin);
        return keep(x.t.slice(axis, begin, end), absl::StrCat(".slice(", axis, ", ", begin, ", ", end, ")"));
      }
      case 2: {
        if (rank < 2) return;
        const int64_t other = (axis + 1 + r_.Below(rank - 1)) % rank;
        return keep(x.t.transpose(axis, other), absl::StrCat(".transpose(", axis, ", ", other, ")"));
      }
      case 3: {
        if (rank == 2) {
          for (const int64_t parts : {4, 3, 2})
            if (dims[0] % parts == 0 && dims[0] > parts)
              return keep(x.t.reshape({parts, dims[0] / parts, dims[1]}), absl::StrCat(".reshape(", parts, ", -1, k)"));
          return;
        }
        if (rank == 4) return keep(x.t.flatten(2).transpose(1, 2), ".flatten(2).transpose(1, 2)");
        if (rank == 1) return keep(x.t.unsqueeze(0), ".unsqueeze(0)");
        return keep(x.t.reshape({dims[0] * dims[1], Count(dims) / dims[0] / dims[1]}), ".flatten(0, 1)");
      }
      case 4: {
        const int64_t shift = r_.OneIn(2) ? 1 : length / 2;
        return keep(x.t.roll(shift, axis), absl::StrCat(".roll(", shift, ", ", axis, ")"));
      }
      case 5: {
        std::vector<std::pair<SymInt, SymInt>> sides(static_cast<size_t>(rank));
        sides[axis] = {r_.Below(3), r_.Below(3)};
        if (Count(dims) / length * (length + 4) > kElementsMax) return;
        return keep(x.t.pad(sides), absl::StrCat(".pad(axis ", axis, ": ", sides[axis].first.value(), ", ", sides[axis].second.value(), ")"));
      }
      case 6: {
        if (length < 3) return;
        const int64_t step = r_.OneIn(2) ? 2 : -2;
        if (axis != 0) return;
        return keep(x.t[Slice{{}, {}, step}], absl::StrCat("[::", step, "]"));
      }
      default: {
        if (2 * Count(dims) > kElementsMax) return;
        Dims times(static_cast<size_t>(rank), 1);
        times[axis] = 2;
        return keep(x.t.repeat(times), absl::StrCat(".repeat(2 along ", axis, ")"));
      }
    }
  }

  void Elementwise() {
    const Value x = Pick();
    const auto keep = [&](const Tensor& t, double size, const std::string& text) {
      Keep(t, size, absl::StrCat(text, " of ", x.name));
    };
    switch (r_.Below(10)) {
      case 0: return keep(x.t * 0.3 + 1.5, x.size + 1.5, "* 0.3 + 1.5");
      case 1: return keep(x.t.tanh(), 1, "tanh");
      case 2: return keep((x.t * x.t + 1).log(), 5, "log(1 + square)");
      case 3: return keep((-(x.t * x.t)).exp(), 1, "exp(-square)");
      case 4: return keep(x.t / ((x.t * x.t) + 1), 1, "x / (1 + square)");
      case 5: {
        if (x.t.rank() == 0) return;
        const NamedTensor b = Weight({x.t.shape().back()}, 3);
        return keep(x.t * b.t, x.size, absl::StrCat("* ", b.name));
      }
      case 6: {
        if (x.t.rank() < 2) return;
        Dims dims = x.t.shape();
        dims.back() = 1;
        const NamedTensor b = Weight(dims, 3);
        return keep(x.t + b.t, x.size + 1, absl::StrCat("+ column ", b.name));
      }
      case 7: {
        const Tensor m = Input(x.t.shape(), DType::kBool, {});
        const std::string name = Named(m, "m");
        return keep(m.where(x.t, 0) * 1.25, x.size, absl::StrCat("where ", name, " * 1.25"));
      }
      case 8: {
        const DType to = r_.OneIn(2) ? DType::kF32 : DType::kBF16;
        narrow_ |= to != DType::kF32;
        return keep(x.t.cast(to), x.size, absl::StrCat("cast ", std::string(Name(to))));
      }
      default: {
        if (x.t.rank() == 0) return;
        const int64_t half = x.t.shape().back() / 2;
        if (half == 0 || x.t.shape().back() % 2 != 0) return;
        // Rotary positions.
        const Tensor a = x.t.slice(-1, 0, half), b = x.t.slice(-1, half, 2 * half);
        const NamedTensor c = Floats({half}, 1, x.t.dtype()), s = Floats({half}, 1, x.t.dtype());
        return keep(Tensor::cat({a * c.t - b * s.t, b * c.t + a * s.t}, -1), 2 * x.size,
                    absl::StrCat("rotated by ", c.name, ", ", s.name));
      }
    }
  }

  void Join() {
    const Value x = Pick();
    if (x.t.rank() == 0) return;
    const int64_t axis = r_.Below(x.t.rank());
    Dims dims = x.t.shape();
    const auto other = PickWhere([&](const Value& y) {
      if (y.t.rank() != x.t.rank() || y.t.dtype() != x.t.dtype()) return false;
      for (int64_t a = 0; a < y.t.rank(); ++a)
        if (a != axis && y.t.shape()[a] != dims[a]) return false;
      return true;
    });
    Value y;
    if (other && r_.OneIn(2)) {
      y = *other;
    } else {
      dims[axis] = 1 + r_.Below(5);
      const auto [t, name] = Floats(dims, 1, x.t.dtype());
      y = {t, name, 1};
    }
    if (Count(x.t.shape()) + Count(y.t.shape()) > kElementsMax) return;
    Keep(Tensor::cat({x.t, y.t}, axis), std::max(x.size, y.size), absl::StrCat("cat(", x.name, ", ", y.name, ", ", axis, ")"));
  }

  // Of values of equal shapes, or ones that broadcast.
  void Residual() {
    const Value x = Pick();
    const auto y = PickWhere([&](const Value& y) {
      const Dims a = x.t.shape(), b = y.t.shape();
      if (y.name == x.name || b.size() > a.size()) return false;
      for (size_t i = 1; i <= b.size(); ++i)
        if (b[b.size() - i] != a[a.size() - i] && b[b.size() - i] != 1) return false;
      return true;
    });
    const Value other = y ? *y : LikeInput(x);
    if (r_.OneIn(3))
      Keep(x.t * other.t, x.size * other.size, absl::StrCat(x.name, " * ", other.name));
    else
      Keep(x.t + other.t, x.size + other.size, absl::StrCat(x.name, " + ", other.name));
  }

  // ---- the end

  void Finish() {
    const Value last = pool_.back();
    results_.push_back({last.t, last.name});
    for (int64_t others = r_.Below(4); others > 0; --others) {
      const Value v = Pick();
      results_.push_back({v.t, v.name});
    }
    if (with_gradients_ && !weights_.empty()) {
      const auto [loss, upstream] = Loss(last);
      if (upstream.empty() && r_.OneIn(3) && Update(loss)) return;
      size_t taken = 0;
      std::vector<Tensor> of;
      for (const Tensor& w : weights_)
        if (taken < 5 && !r_.OneIn(5)) of.push_back(w), ++taken;
      if (!of.empty())
        for (const Tensor& g : loss.gradient(of, upstream)) results_.push_back({g, "a gradient"});
    }
    if (r_.OneIn(6)) Overwrite(last);
    RealizeAll();
  }

  void RealizeAll() {
    std::vector<Tensor> tensors;
    for (const Result& result : results_) tensors.push_back(result.t);
    for (const Result& result : results_) Say("result ", result.text);
    realize(tensors);
  }

  struct LossAndUpstream {
    Tensor loss, upstream;
  };
  LossAndUpstream Loss(const Value& last) {
    const Dims dims = last.t.shape();
    if (!dims.empty() && dims.back() > 1 && last.size < 30 && r_.OneIn(3)) {
      const Dims rows(dims.begin(), dims.end() - 1);
      const Tensor labels = Input(rows, DType::kI32, {.low = 0, .high = dims.back() - 1});
      const std::string name = Named(labels, "i");
      const Tensor loss = last.t.cast(DType::kF32).sparse_categorical_crossentropy(labels) * static_cast<double>(Count(rows));
      results_.push_back({loss, absl::StrCat("loss: crossentropy(", last.name, ", ", name, ") * rows")});
      return {loss, {}};
    }
    if (r_.OneIn(2)) {
      const Value target = LikeInput(last);
      const Tensor d = last.t.cast(DType::kF32) - target.t.cast(DType::kF32);
      const Tensor loss = (d * d).sum();
      results_.push_back({loss, absl::StrCat("loss: square of ", last.name, " - ", target.name, ", summed")});
      return {loss, {}};
    }
    const Value upstream = LikeInput(last);
    Say("gradients of ", last.name, " by ", upstream.name);
    return {last.t, upstream.t};
  }

  // A step of SGD. Returns whether the program is recorded.
  bool Update(const Tensor& loss) {
    try {
      loss.backward();
    } catch (const Error&) {
      return false;  // it was computed from no weight
    }
    std::vector<Tensor> parameters;
    for (Tensor& w : weights_)
      if (!w.grad().empty()) parameters.push_back(w);
    if (parameters.empty()) return false;
    optim::SGD sgd(parameters, 0.01, r_.OneIn(2) ? 0.9 : 0, r_.OneIn(2) ? 0.1 : 0);
    std::vector<Tensor> compute;
    for (const Result& result : results_) compute.push_back(result.t);
    for (const Result& result : results_) Say("result ", result.text);
    Say("a step of SGD");
    sgd.step({}, compute);
    return true;
  }

  // A state that is renewed from a value.
  void Overwrite(const Value& v) {
    state_ = Input(v.t.shape(), v.t.dtype(), {});
    const std::string name = Named(state_, "s");
    if (r_.OneIn(2)) {
      Say(name, " = ", name, " * 0.9 + ", v.name);
      state_.assign(state_ * 0.9 + v.t);
    } else if (v.t.rank() > 0) {
      Say(name, " = ", name, ".softmax() + ", v.name);
      state_.assign(state_.softmax() + v.t);
    }
  }

  WrittenProgram Taken() {
    const session::RunRequest& run = session_->last;
    WrittenProgram written;
    RandomCase& c = written.program;
    c.graph = std::make_unique<Graph>();
    c.sink = ValueOrDie(DecodeGraph(*c.graph, *run.graph));
    c.bindings = run.bindings;
    const std::vector<const UOp*> params = ParamsOf(c.sink);
    OB_CHECK(params.size() == run.inputs.size());
    for (size_t i = 0; i < params.size(); ++i)
      c.params.push_back(Filled(params[i], specs_[run.inputs[i]]));
    written.donated.assign(run.donate.begin(), run.donate.end());
    written.text = text_;
    written.narrow = narrow_;
    return written;
  }

  HostTensor Filled(const UOp* param, const Spec& spec) {
    HostTensor tensor{param->dtype, StaticDims(param->shape), {}};
    const int width = ByteWidth(param->dtype);
    tensor.bytes.resize(static_cast<size_t>(tensor.ElementCount() * width));
    for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
      char* const to = tensor.bytes.data() + i * width;
      if (IsFloat(param->dtype))
        StoreFloat(param->dtype, RoundTo(param->dtype, spec.scale * (2 * r_.Unit() - 1)), to);
      else
        StoreInt(param->dtype, spec.low + r_.Below(spec.high - spec.low + 1), to);
    }
    return tensor;
  }

  struct Result {
    Tensor t;
    std::string text;
  };

  Random r_;
  const std::shared_ptr<FakeSession> session_;
  std::string text_;
  DType dtype_ = DType::kF32;
  bool narrow_ = false, with_gradients_ = false, large_ = false;
  int64_t classes_ = 1, inputs_ = 0;
  double products_left_ = 0;
  std::map<uint64_t, Spec> specs_;  // by handle
  std::vector<Value> pool_;
  std::vector<Tensor> weights_;  // with gradients
  std::vector<Result> results_;
  Tensor state_;
  std::vector<Tensor> caches_;
};

}  // namespace

WrittenProgram WriteProgram(uint64_t seed) { return Writer(seed).Write(); }

}  // namespace outboard::test
