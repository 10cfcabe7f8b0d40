// Tensors whose values live in the cloud.
//
//   outboard::Tensor x = Tensor::uniform({64, 784}), w = Tensor::uniform({784, 10});
//   outboard::Tensor y = (x.matmul(w)).softmax();
//   double top = y.max().item();                       // the only line that waits
//
// A Tensor is lazy: an operation records a node (compiler/ir) and returns at once. realize() sends
// the recorded graph as one Run and returns at once too; only item(), to_host() and to_vector()
// wait for a value, and fetch() asks for one without waiting. Copies of a Tensor are one tensor:
// realising, assigning or differentiating one is seen by all. With its last copy a buffer is
// released.
//
// Names are those of tinygrad and PyTorch, in their spelling, so that a program carries over line
// by line.
//
// Shapes are lists of int64_t; an axis of -1 is the last one. Binary operations broadcast from the
// right, and promote: bool < integers < floats, a number takes the tensor's type unless a fraction
// meets an integer (then f32). `/` of integers is f32; idiv() truncates.
//
// Errors: everything throws outboard::Error (error.h) with the user's line: a trailing parameter
// `at` that nobody passes, or Arg, into which Tensors and numbers convert at the line of the call.
// Wrong shapes, axes and types are INVALID_ARGUMENT where the operation is written; what fails in
// the cloud is raised where a value is asked for.
//
// Threads: see recording.h; one thread at a time for tensors that were computed from each other.
// Random numbers and TrainingMode are each thread's own.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "client/tensor/error.h"
#include "client/tensor/future.h"
#include "client/tensor/variable.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/host_tensor.h"
#include "wire/blobs/source.h"

namespace outboard {

class Session;
namespace transport {
struct StoredArray;
}

struct UOp;
namespace internal {
struct TensorState;
class NodeBuilder;
}  // namespace internal

class Arg;
class Index;
using Dims = std::vector<int64_t>;

// Axes of a tensor: sum(1), sum({0, -1}).
struct Axes : Dims {
  Axes() = default;
  template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Axes(T axis)
      : Dims{static_cast<int64_t>(axis)} {}                  // NOLINT
  Axes(std::initializer_list<int64_t> axes) : Dims(axes) {}  // NOLINT
  Axes(const Dims& axes) : Dims(axes) {}                     // NOLINT
};

template <typename T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, bool>)
    return DType::kBool;
  else if constexpr (std::is_same_v<T, float>)
    return DType::kF32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::kF64;
  else {
    static_assert(std::is_integral_v<T>);
    constexpr DType kSigned[] = {DType::kI8, DType::kI16, DType::kI32, DType::kI64};
    constexpr DType kUnsigned[] = {DType::kU8, DType::kU16, DType::kU32, DType::kU64};
    constexpr int kLog = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? kSigned[kLog] : kUnsigned[kLog];
  }
}

// One number for height and width, or {height, width}.
struct Size2d {
  int64_t h, w;
  constexpr Size2d(int64_t both) : h(both), w(both) {}  // NOLINT: `.stride = 2`
  constexpr Size2d(int64_t height, int64_t width) : h(height), w(width) {}
};

struct Conv2dOptions {
  int64_t groups = 1;
  Size2d stride = 1;
  Size2d dilation = 1;
  Size2d padding = 0;  // zeros on each side
};

struct Pool2dOptions {
  Size2d kernel = 2;
  Size2d stride = 0;  // 0: as kernel
  Size2d dilation = 1;
  Size2d padding = 0;
};

class Tensor {
 public:
  Tensor() = default;  // empty: only assignable; anything else is FAILED_PRECONDITION
  bool empty() const { return value_ == nullptr; }

  // ---- making -----------------------------------------------------------------------------------
  static Tensor full(const Dims& dims, double value, DType dtype = DType::kF32,
                     At at = At::current());
  static Tensor zeros(const Dims& dims, DType dtype = DType::kF32, At at = At::current());
  static Tensor ones(const Dims& dims, DType dtype = DType::kF32, At at = At::current());
  // Of this tensor's shape and type.
  Tensor full_like(double value, At at = At::current()) const;
  Tensor zeros_like(At at = At::current()) const;
  Tensor ones_like(At at = At::current()) const;
  // 0, 1 ... n-1.
  static Tensor arange(int64_t n, DType dtype = DType::kI32, At at = At::current());
  // begin, begin + step ... before end.
  static Tensor arange(int64_t begin, int64_t end, int64_t step = 1, DType dtype = DType::kI32,
                       At at = At::current());
  // n floats at equal distances; the first is begin, the last end.
  static Tensor linspace(double begin, double end, int64_t n, DType dtype = DType::kF32,
                         At at = At::current());
  static Tensor eye(int64_t n, DType dtype = DType::kF32, At at = At::current());
  // Row-major bytes, copied and sent. Large ones travel by hash: what the cloud has is not sent
  // again.
  static Tensor from_host(const HostTensor& host, At at = At::current());
  // A blob's bytes, from where they are; they go to the cloud when something needs them, as far as
  // it lacks them. `named` hears their name then; it may be empty.
  static Tensor from_blob(DType dtype, const Dims& dims, wire::BlobSource source,
                          std::function<void(const wire::BlobName&)> named = {},
                          At at = At::current());
  static Tensor from_bytes(DType dtype, const Dims& dims, std::string_view bytes,
                           At at = At::current());
  template <typename T>
  static Tensor from(const std::vector<T>& values, Dims dims = {}, At at = At::current());

  // ---- random numbers: the same on every backend, in the order of the calls ---------------------
  // From SEED in the environment, else a fresh seed for each process.
  static void manual_seed(uint64_t seed, At at = At::current());
  static Tensor rand(const Dims& dims, DType dtype = DType::kF32, At at = At::current());  // [0, 1)
  static Tensor uniform(const Dims& dims, double low = 0, double high = 1,
                        DType dtype = DType::kF32, At at = At::current());
  static Tensor randn(const Dims& dims, DType dtype = DType::kF32, At at = At::current());
  // low <= value < high, of i32.
  static Tensor randint(const Dims& dims, int64_t low, int64_t high, At at = At::current());
  // Uniform within sqrt(6 / ((1 + a^2) * fan_in)); fan_in is the product of all but the first
  // dimension.
  static Tensor kaiming_uniform(const Dims& dims, double a = 0.01, DType dtype = DType::kF32,
                                At at = At::current());

  // ---- what it is -------------------------------------------------------------------------------
  Dims shape(At at = At::current()) const;  // where all are numbers
  int64_t shape(int64_t axis, At at = At::current()) const;
  SymInt size(int64_t axis, At at = At::current()) const;  // of a variable, perhaps
  int rank(At at = At::current()) const;
  int64_t numel(At at = At::current()) const;
  DType dtype(At at = At::current()) const;
  bool realized() const;  // computed, or on its way: reading it needs no new Run

  // ---- values -----------------------------------------------------------------------------------
  // Sends what is needed for this tensor, and for pending assigns; does not wait.
  Tensor& realize(At at = At::current());
  // Waits for the value. A tensor that is not realised is realised and fetched by one Run.
  HostTensor to_host(At at = At::current()) const;
  // Of one element, converted to T. 64-bit integers above 2^53 need item<int64_t>().
  template <typename T = double>
  T item(At at = At::current()) const {
    return ElementAt<T>(OneElement(at), 0);
  }
  template <typename T>
  std::vector<T> to_vector(At at = At::current()) const {  // row-major, converted to T
    return ElementsAs<T>(to_host(at));
  }
  // Asks for the value as it is now, realising it if needed; does not wait (future.h).
  TensorFuture fetch(At at = At::current()) const;

  // This tensor's value becomes that of `value` (same shape; cast to this dtype). Lazy; part of the
  // next realize. What was computed from the old value before stays as it was.
  Tensor& assign(const Arg& value);

  // As assign, and of its type from then on: this tensor becomes `other`.
  Tensor& replace(const Tensor& other, At at = At::current());

  // Declares this tensor state, as parameters and running means are: it is realised before its
  // first use, at the latest with the next realize, so that the first step of a training is the
  // same graph as the later ones.
  Tensor& state_(At at = At::current());

  // ---- gradient ---------------------------------------------------------------------------------
  // A leaf of backward(); also makes it state.
  Tensor& requires_grad_(bool on = true, At at = At::current());
  bool requires_grad() const;
  // Adds d(this)/d(leaf) to grad() of every tensor with requires_grad that this one depends on. Of
  // one element. Throws Error with FAILED_PRECONDITION where there is no such tensor.
  void backward(At at = At::current()) const;
  Tensor grad() const;         // empty where there is none
  void set_grad(Tensor grad);  // an empty one clears it
  // d(this)/d(each of wrt), weighted by `upstream` (ones where empty: then of one element); zeros
  // where independent. FAILED_PRECONDITION for a number repeated over a shape, as ones() makes:
  // until it is realised it is no variable.
  std::vector<Tensor> gradient(const std::vector<Tensor>& wrt, const Tensor& upstream = {},
                               At at = At::current()) const;
  Tensor detach(At at = At::current()) const;
  Tensor contiguous(At at = At::current()) const;

  // Whether dropout and batch normalisation behave as in training; of this thread. See
  // TrainingMode.
  static bool training();

  // ---- movement ---------------------------------------------------------------------------------
  Tensor reshape(const SymShape& sizes, At at = At::current()) const;  // one dimension may be -1
  Tensor flatten(int64_t first = 0, int64_t last = -1, At at = At::current()) const;
  Tensor unsqueeze(int64_t axis, At at = At::current()) const;
  Tensor squeeze(At at = At::current()) const;  // every axis of length 1
  Tensor squeeze(int64_t axis, At at = At::current()) const;
  Tensor expand(const SymShape& sizes, At at = At::current()) const;  // -1 keeps a dimension
  Tensor permute(const Dims& axes, At at = At::current()) const;
  Tensor transpose(int64_t a = -2, int64_t b = -1, At at = At::current()) const;
  Tensor flip(const Axes& axes, At at = At::current()) const;
  // {before, after} for each axis.
  Tensor pad(const SymIntPairs& sides, double value = 0, At at = At::current()) const;
  Tensor shrink(const SymIntPairs& ranges,
                At at = At::current()) const;  // {begin, end} for each axis
  Tensor slice(int64_t axis, const SymInt& begin, const SymInt& end, At at = At::current()) const;
  static Tensor cat(const std::vector<Tensor>& parts, int64_t axis = 0, At at = At::current());
  static Tensor stack(const std::vector<Tensor>& parts, int64_t axis = 0, At at = At::current());
  Tensor repeat(const Dims& times, At at = At::current()) const;
  // Parts of `size` (the last may be smaller), of each of `sizes`, or as many as `count`.
  std::vector<Tensor> split(int64_t size, int64_t axis = 0, At at = At::current()) const;
  std::vector<Tensor> split(const Dims& sizes, int64_t axis = 0, At at = At::current()) const;
  std::vector<Tensor> chunk(int64_t count, int64_t axis = 0, At at = At::current()) const;
  // Element i goes to i + shift, around the end: along each of the axes, or in the flattened
  // tensor.
  Tensor roll(const Axes& shifts, const Axes& axes = {}, At at = At::current()) const;
  Tensor movedim(int64_t from, int64_t to, At at = At::current()) const;
  // Zeros below (above) the diagonal of the last two axes; `diagonal` moves it to the right.
  Tensor triu(int64_t diagonal = 0, At at = At::current()) const;
  Tensor tril(int64_t diagonal = 0, At at = At::current()) const;

  // ---- by index ---------------------------------------------------------------------------------
  // x[2], x[-1]: without the first axis. x[Slice{1, 9, 2}]: as Python's x[1:9:2]. x[rows], rows an
  // integer tensor: shape rows.shape + shape[1:]. x[{Slice{}, 2, rows}]: one for each axis, with
  // kEllipsis for those between and kNewAxis for another of length 1; several tensors broadcast,
  // and stand where they stand side by side, else in front.
  // Negative indices count from the end. A number out of range is an error; an element of a tensor
  // out of range gives zeros, since its value is not known here.
  Tensor operator[](const Index& index) const;
  Tensor operator[](const std::vector<Index>& indices) const;
  // x[index] along `axis`: index.shape takes the place of the axis.
  Tensor take(const Tensor& index, int64_t axis = 0, At at = At::current()) const;
  // y[i, j] = x[index[i, j], j] for axis 0, and so on: of as many axes, and the shape of `index`,
  // which is nowhere longer than x but along `axis`.
  Tensor gather(int64_t axis, const Tensor& index, At at = At::current()) const;
  // 1 at the class that this integer tensor names: shape + [classes].
  Tensor one_hot(int64_t classes, DType dtype = DType::kI32, At at = At::current()) const;

  // ---- elementwise ------------------------------------------------------------------------------
  Tensor cast(DType dtype, At at = At::current()) const;
  // The same bits, the lowest first: to another width the last axis becomes longer or shorter.
  Tensor bitcast(DType dtype, At at = At::current()) const;
  Tensor neg(At at = At::current()) const;
  Tensor exp(At at = At::current()) const;
  Tensor exp2(At at = At::current()) const;
  Tensor log(At at = At::current()) const;
  Tensor log2(At at = At::current()) const;
  Tensor sin(At at = At::current()) const;
  Tensor cos(At at = At::current()) const;
  Tensor tan(At at = At::current()) const;
  Tensor sqrt(At at = At::current()) const;
  Tensor rsqrt(At at = At::current()) const;
  Tensor reciprocal(At at = At::current()) const;
  Tensor square(At at = At::current()) const;
  Tensor abs(At at = At::current()) const;
  Tensor sign(At at = At::current()) const;
  Tensor trunc(At at = At::current()) const;
  Tensor floor(At at = At::current()) const;
  Tensor ceil(At at = At::current()) const;
  Tensor round(At at = At::current()) const;  // halves to the even neighbour
  Tensor relu(At at = At::current()) const;
  Tensor leaky_relu(double slope = 0.01, At at = At::current()) const;
  Tensor elu(double alpha = 1, At at = At::current()) const;
  Tensor sigmoid(At at = At::current()) const;
  Tensor tanh(At at = At::current()) const;
  Tensor silu(At at = At::current()) const;
  Tensor gelu(At at = At::current()) const;  // the tanh form
  Tensor softplus(At at = At::current()) const;
  Tensor logical_not(At at = At::current()) const;
  Tensor isnan(At at = At::current()) const;
  Tensor isinf(At at = At::current()) const;
  Tensor isfinite(At at = At::current()) const;
  // As pow() of arithmetic.h: integers to a power of integers stay integers.
  Tensor pow(const Arg& exponent) const;
  Tensor clip(const Arg& low, const Arg& high) const;
  Tensor maximum(const Arg& other) const;
  Tensor minimum(const Arg& other) const;
  Tensor idiv(const Arg& other) const;  // integers, towards zero; x / 0 is 0
  // this (bool) ? a : b
  Tensor where(const Arg& a, const Arg& b) const;

  // ---- reductions: over all axes where `axes` is empty ------------------------------------------
  Tensor sum(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor prod(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor mean(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor max(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor min(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor any(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor all(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  // Divides by count - correction.
  Tensor var(const Axes& axes = {}, bool keepdim = false, int64_t correction = 1,
             At at = At::current()) const;
  Tensor std(const Axes& axes = {}, bool keepdim = false, int64_t correction = 1,
             At at = At::current()) const;
  // The first place of the largest element, of i32.
  Tensor argmax(int64_t axis, bool keepdim = false, At at = At::current()) const;
  Tensor argmax(At at = At::current()) const;  // in the flattened tensor
  Tensor argmin(int64_t axis, bool keepdim = false, At at = At::current()) const;
  // Element i is the sum of those up to i.
  Tensor cumsum(int64_t axis, At at = At::current()) const;
  Tensor logsumexp(const Axes& axes = -1, bool keepdim = false, At at = At::current()) const;
  Tensor softmax(const Axes& axes = -1, At at = At::current()) const;
  Tensor log_softmax(const Axes& axes = -1, At at = At::current()) const;

  // ---- products ---------------------------------------------------------------------------------
  // [..., n, k] x [..., k, m] -> [..., n, m]; a vector on either side as in numpy. With `dtype` the
  // products are added up in that type, which the result has.
  Tensor matmul(const Arg& other, std::optional<DType> dtype = {}) const;
  Tensor dot(const Arg& other, std::optional<DType> dtype = {}) const;
  // x weight (+ bias), weight [in, out]; a weight [in] is multiplied element by element.
  Tensor linear(const Tensor& weight, const Tensor& bias = {}, At at = At::current()) const;
  // [B, C, H, W] with weight [O, C / groups, KH, KW] and bias [O] or empty. Windows of any other
  // number of axes are in convolution.h and pooling.h.
  Tensor conv2d(const Tensor& weight, const Tensor& bias = {}, Conv2dOptions options = {},
                At at = At::current()) const;
  Tensor max_pool2d(Pool2dOptions options = {}, At at = At::current()) const;
  Tensor avg_pool2d(Pool2dOptions options = {}, At at = At::current()) const;

  // ---- training ---------------------------------------------------------------------------------
  // Zeros a share of `p` and scales the rest by 1 / (1 - p); nothing outside of training.
  Tensor dropout(double p = 0.5, At at = At::current()) const;
  // (x - mean) * weight * invstd + bias, all of them of the lengths of `axes` (or of 1 beside
  // them); weight and bias may be empty.
  Tensor batchnorm(const Tensor& weight, const Tensor& bias, const Tensor& mean,
                   const Tensor& invstd, const Axes& axes = 1, At at = At::current()) const;
  // (x - mean) / sqrt(variance + eps), both over all of `axes`.
  Tensor layernorm(const Axes& axes = -1, double eps = 1e-5, At at = At::current()) const;
  // Mean over the rows of -log_softmax(this)[label]; this [..., classes], labels [...] of integers.
  // Rows whose label is `ignore_index` do not count; unsigned labels have no such row. A label out
  // of range counts as a loss of 0.
  Tensor sparse_categorical_crossentropy(const Tensor& labels, int64_t ignore_index = -1,
                                         double label_smoothing = 0, At at = At::current()) const;
  Tensor mse_loss(const Arg& target) const;
  Tensor binary_crossentropy_logits(const Arg& target) const;  // mean

  Tensor& operator+=(const Arg& other);
  Tensor& operator-=(const Arg& other);
  Tensor& operator*=(const Arg& other);
  Tensor& operator/=(const Arg& other);

  // ---- for the library --------------------------------------------------------------------------
  // A lazy tensor of `node`, which is of this thread's recording.
  static Tensor FromNode(const internal::NodeBuilder& recorder, const UOp* node);
  // A realised tensor of an array that is in the cloud already; nothing of it is sent.
  static Tensor FromStored(const std::shared_ptr<Session>& session,
                           const transport::StoredArray& array, const At& at);
  static Tensor FromValue(std::shared_ptr<internal::TensorState> value);
  // This tensor in `recorder`'s graph.
  const UOp* NodeIn(const internal::NodeBuilder& recorder) const;
  const std::shared_ptr<internal::TensorState>& value() const { return value_; }

 private:
  HostTensor OneElement(const At& at) const;

  std::shared_ptr<internal::TensorState> value_;
};

// An operand and the line it was written on. Refers to its Tensor: for parameters only.
class Arg {
 public:
  Arg(const Tensor& tensor, At at = At::current()) : tensor_(&tensor), at_(at) {}  // NOLINT
  template <typename T>
  requires std::is_arithmetic_v<T> Arg(T number, At at = At::current()) : at_(at) {  // NOLINT
    if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::kFloat;
      float_ = static_cast<double>(number);
    } else {
      kind_ = std::is_same_v<T, bool> ? Kind::kBool : Kind::kInt;
      int_ = static_cast<int64_t>(number);
      float_ = static_cast<double>(number);
    }
  }

  Arg(const SymInt& size, At at = At::current())  // NOLINT
      : kind_(Kind::kSize), size_(size), int_(size.value()), at_(at) {
    float_ = static_cast<double>(int_);
  }

  enum class Kind { kTensor, kBool, kInt, kFloat, kSize };
  Kind kind() const { return kind_; }
  bool is_tensor() const { return kind_ == Kind::kTensor; }
  const Tensor& tensor() const { return *tensor_; }
  int64_t int_value() const { return int_; }
  double float_value() const { return float_; }
  const SymInt& size() const { return size_; }
  const At& at() const { return at_; }

 private:
  Kind kind_ = Kind::kTensor;
  const Tensor* tensor_ = nullptr;
  SymInt size_;  // of kSize
  int64_t int_ = 0;
  double float_ = 0;
  At at_;
};

// A part of an axis, as Python's begin:end:step: negative places count from the end, what lies
// outside is left out, a negative step goes backwards.
struct Slice {
  std::optional<SymInt> begin, end;  // of variables: with a step of 1, and inside of the axis
  int64_t step = 1;
};
struct Ellipsis {};  // as many whole axes as the tensor has more than there are indices
struct NewAxis {};   // an axis of length 1
inline constexpr Ellipsis kEllipsis;
inline constexpr NewAxis kNewAxis;

// What stands between brackets, and the line it was written on. Refers to its Tensor: for
// parameters only.
class Index {
 public:
  using What = std::variant<SymInt, Slice, Ellipsis, NewAxis, const Tensor*>;
  template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Index(T place, At at = At::current())
      : what_(SymInt(place)), at_(at) {}                                           // NOLINT
  Index(const SymInt& place, At at = At::current()) : what_(place), at_(at) {}     // NOLINT
  Index(const Slice& slice, At at = At::current()) : what_(slice), at_(at) {}      // NOLINT
  Index(Ellipsis ellipsis, At at = At::current()) : what_(ellipsis), at_(at) {}    // NOLINT
  Index(NewAxis axis, At at = At::current()) : what_(axis), at_(at) {}             // NOLINT
  Index(const Tensor& places, At at = At::current()) : what_(&places), at_(at) {}  // NOLINT

  const What& what() const { return what_; }
  const At& at() const { return at_; }

 private:
  What what_;
  At at_;
};

Tensor operator+(const Arg& a, const Arg& b);
Tensor operator-(const Arg& a, const Arg& b);
Tensor operator*(const Arg& a, const Arg& b);
Tensor operator/(const Arg& a, const Arg& b);
Tensor operator%(const Arg& a, const Arg& b);  // integers; the sign of a; x % 0 is x
Tensor operator-(const Arg& a);
Tensor operator<(const Arg& a, const Arg& b);
Tensor operator>(const Arg& a, const Arg& b);
Tensor operator<=(const Arg& a, const Arg& b);
Tensor operator>=(const Arg& a, const Arg& b);
Tensor operator==(const Arg& a, const Arg& b);
Tensor operator!=(const Arg& a, const Arg& b);
Tensor operator&(const Arg& a, const Arg& b);
Tensor operator|(const Arg& a, const Arg& b);
Tensor operator^(const Arg& a, const Arg& b);
Tensor operator<<(const Arg& a, const Arg& b);
Tensor operator>>(const Arg& a, const Arg& b);

// Computes all of `tensors`, the pending assigns and new state by one Run; does not wait. The
// values of `fetch`, which are realised too, are sent back by the same Run: reading them later
// costs no further message. A buffer that an assign replaces, and that nothing else can read any
// more, is donated to the Run.
void realize(std::span<const Tensor> tensors, std::span<const Tensor> fetch = {},
             At at = At::current());

// As Tensor::fetch, of several: at most one Run, and one message for those that were realised
// before.
std::vector<TensorFuture> fetch(const std::vector<Tensor>& tensors, At at = At::current());

// TrainingMode on(true); restores the mode at the end of the scope.
class TrainingMode {
 public:
  explicit TrainingMode(bool on);
  ~TrainingMode();
  TrainingMode(const TrainingMode&) = delete;
  TrainingMode& operator=(const TrainingMode&) = delete;

 private:
  bool before_;
};

// ---- templates ----------------------------------------------------------------------------------

template <typename T>
Tensor Tensor::from(const std::vector<T>& values, Dims dims, At at) {
  if (dims.empty()) dims = {static_cast<int64_t>(values.size())};
  if constexpr (std::is_same_v<T, bool>) {
    const std::string bytes(values.begin(), values.end());
    return from_bytes(DType::kBool, dims, bytes, at);
  } else {
    return from_bytes(DTypeOf<T>(), dims,
                      {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)},
                      at);
  }
}

}  // namespace outboard
