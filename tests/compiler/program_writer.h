// What written_programs.h writes programs with: a program grows by one operation of a client at a
// time, of values that it has already. Its parts are in written_programs.cc (how a program begins
// and ends), written_products.cc and written_rows.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/nn/optim.h"
#include "client/tensor/tensor.h"
#include "tests/client/fake_session.h"
#include "tests/compiler/random_values.h"
#include "tests/compiler/written_programs.h"

namespace outboard::test {

inline constexpr int64_t kElementsMax = 250'000;  // of a value
inline constexpr int64_t kProductsMax =
    16'000'000;  // multiplications of a program, without gradients
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Around what tiles, warps, boxes and rows are long, and some primes.
inline const std::vector<int64_t> kSizes = {
    1,   2,   3,   7,   8,    15,   16,   17,   31,   32,   33,   48,   63,   64,
    65,  72,  96,  100, 127,  128,  129,  131,  192,  255,  256,  257,  300,  384,
    511, 512, 513, 768, 1000, 1024, 1027, 1536, 2047, 2048, 2049, 3000, 4096, 4099};

// A float value of the program, and about how large its elements are.
struct Value {
  Tensor t;
  std::string name;
  double size = 1;
};

class ProgramWriter {
 public:
  explicit ProgramWriter(uint64_t seed) : r_(seed), session_(std::make_shared<FakeSession>()) {
    session_->evaluate = false;
    SetSession(session_);
    Tensor::manual_seed(1);
  }
  ~ProgramWriter() { SetSession(nullptr); }

  WrittenProgram Write();

 private:
  // ---- saying and keeping

  template <typename... Parts>
  void Say(const Parts&... parts) {
    absl::StrAppend(&text_, parts..., "\n");
  }
  static std::string Of(const Dims& dims) {
    return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
  }

  // Names the value and keeps it for later steps.
  const Value& Keep(const Tensor& t, double size, const std::string& text) {
    pool_.push_back({t, absl::StrCat("v", pool_.size()), size});
    Say(pool_.back().name, " = ", text, "  # ", std::string(Name(t.dtype())), Of(t.shape()));
    return pool_.back();
  }

  // ---- inputs

  struct Spec {
    double scale = 1;           // of floats: uniform in -scale ... scale
    int64_t low = 0, high = 1;  // of integers, both included
    bool positive = false;      // of floats: uniform in 0 ... scale
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
    const Tensor t =
        Input(dims, DType::kI32, {.low = 0, .high = count - 1 + (r_.OneIn(4) ? 2 : 0)});
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

  void Begin();

  // Matrices that fill tiles, and what is done beside their products.
  void BeginLarge();

  // Layers with biases, whose gradients are sums over the rows of products.
  void Network(int64_t k);
  void StepOfLarge();

  void Step();

  // ---- products

  std::string Act(Tensor& t, double& size);

  // x @ w of rows of x, or of its columns; bias, activation and residual, perhaps.
  void Linear();

  // x @ x.T, or of two values that fit.
  void Together();

  // silu(x @ a) * (x @ b), one matrix or two.
  void Gated();

  // x @ w + x @ a @ b, or the sum of two products of different depth.
  void Added();

  // Weights of 8 bits with scales, or with blocks of them.
  void Quantized();

  // Products of integers, exact.
  void Integers();

  // ---- attention

  Tensor Mask(int64_t queries, int64_t keys, int64_t kind);
  void Attention();

  // ---- windows

  void Convolve();
  void Pool();

  // ---- rows

  void Norm();
  void Scan();

  void Fold();

  // ---- lengths that a variable bounds; their tensors are not kept for other steps

  SymInt Length(int64_t least, int64_t most);

  // Of a cache of keys and values, whose row of the newest token this step perhaps writes.
  void BoundedAttention();
  void BoundedRows();

  // ---- by index

  void Gather();
  void Scatter();

  // Sorted, or the largest ones.
  void Ranked();

  // ---- movements and elements

  void Move();
  void Elementwise();

  void Join();

  // Of values of equal shapes, or ones that broadcast.
  void Residual();

  // ---- the end

  void Finish();
  void RealizeAll();

  struct LossAndUpstream {
    Tensor loss, upstream;
  };
  LossAndUpstream Loss(const Value& last);

  // A step of an optimiser. Returns whether the program is recorded.
  bool Update(const Tensor& loss);
  std::unique_ptr<optim::Optimizer> SomeOptimizer(const std::vector<Tensor>& parameters);

  // A state that is renewed from a value.
  void Overwrite(const Value& v);
  WrittenProgram Taken();

  HostTensor Filled(const UOp* param, const Spec& spec);

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

}  // namespace outboard::test
