// Tensors whose values live in the cloud.
//
//   outboard::Tensor x = Tensor::uniform({64, 784}), w = Tensor::uniform({784, 10});
//   outboard::Tensor y = (x.matmul(w)).softmax();
//   double top = y.max().item();                       // the only line that waits
//
// A Tensor is lazy: an operation records a node (compiler/ir) and returns at once. realize() sends
// the recorded graph as one Run and returns without waiting; only item(), to_host() and to_vector()
// wait for a value, and fetch() requests one without waiting. Copies of a Tensor share their state:
// realising, assigning or differentiating one affects all of them. The buffer in the cloud is
// released with the last copy.
//
// Names and their spelling follow tinygrad and PyTorch, so that programs can be ported line by
// line.
//
// Shapes are lists of int64_t; axis -1 is the last one. Binary operations broadcast from the right
// and promote dtypes: bool < integers < floats. A number takes the dtype of the tensor beside it,
// except that a fraction with an integer tensor gives f32. `/` of integers is f32; idiv()
// truncates.
//
// Errors: all functions throw outboard::Error (error.h) with the user's line. The line comes from a
// trailing parameter `at`, which callers leave out, or from Arg, to which Tensors and numbers
// convert implicitly at the line of the call. Wrong shapes, axes and types are INVALID_ARGUMENT,
// thrown at the operation; errors of the cloud are thrown where a value is read.
//
// Threads: see client/lazy/lazy_graph.h; one thread at a time for tensors that were computed from
// each other. The random number state and TrainingMode are per thread.
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
namespace session {
struct StoredArray;
}

struct UOp;
namespace internal {
struct CloudBuffer;
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
  Size2d stride = 0;  // 0: equal to kernel
  Size2d dilation = 1;
  Size2d padding = 0;
};

class Tensor {
 public:
  Tensor() = default;  // empty: can only be assigned to; other uses are FAILED_PRECONDITION
  bool empty() const { return value_ == nullptr; }

  // ---- making -----------------------------------------------------------------------------------
  static Tensor full(const SymShape& sizes, double value, DType dtype = DType::kF32,
                     At at = At::current());
  static Tensor zeros(const SymShape& sizes, DType dtype = DType::kF32, At at = At::current());
  static Tensor ones(const SymShape& sizes, DType dtype = DType::kF32, At at = At::current());
  // Returns a tensor with this tensor's shape and dtype.
  Tensor full_like(double value, At at = At::current()) const;
  Tensor zeros_like(At at = At::current()) const;
  Tensor ones_like(At at = At::current()) const;
  // Returns 0, 1 ... n-1.
  static Tensor arange(const SymInt& n, DType dtype = DType::kI32, At at = At::current());
  // Returns begin, begin + step ... up to but excluding end.
  static Tensor arange(int64_t begin, int64_t end, int64_t step = 1, DType dtype = DType::kI32,
                       At at = At::current());
  // Returns n evenly spaced floats from begin to end, both included.
  static Tensor linspace(double begin, double end, int64_t n, DType dtype = DType::kF32,
                         At at = At::current());
  static Tensor eye(int64_t n, DType dtype = DType::kF32, At at = At::current());
  // Copies and sends row-major bytes. Large arrays are addressed by hash: content that the cloud
  // has is not sent again.
  static Tensor from_host(const HostTensor& host, At at = At::current());
  // A tensor of a blob. The bytes stay at `source` until something needs the value; then only the
  // chunks that the cloud lacks are sent. Calls `named` with the blob's name at that time; it may
  // be empty.
  static Tensor from_blob(DType dtype, const Dims& dims, wire::BlobSource source,
                          std::function<void(const wire::BlobName&)> named = {},
                          At at = At::current());
  static Tensor from_bytes(DType dtype, const Dims& dims, std::string_view bytes,
                           At at = At::current());
  template <typename T>
  static Tensor from(const std::vector<T>& values, Dims dims = {}, At at = At::current());

  // ---- random numbers: the same on every backend, in the order of the calls ---------------------
  // Sets the seed. Default: SEED in the environment, else a new seed per process.
  static void manual_seed(uint64_t seed, At at = At::current());
  static Tensor rand(const Dims& dims, DType dtype = DType::kF32, At at = At::current());  // [0, 1)
  static Tensor uniform(const Dims& dims, double low = 0, double high = 1,
                        DType dtype = DType::kF32, At at = At::current());
  static Tensor randn(const Dims& dims, DType dtype = DType::kF32, At at = At::current());
  // i32, low <= value < high.
  static Tensor randint(const Dims& dims, int64_t low, int64_t high, At at = At::current());
  // Uniform in +-sqrt(6 / ((1 + a^2) * fan_in)); fan_in is the product of all dimensions but the
  // first.
  static Tensor kaiming_uniform(const Dims& dims, double a = 0.01, DType dtype = DType::kF32,
                                At at = At::current());

  // ---- what it is -------------------------------------------------------------------------------
  Dims shape(At at = At::current()) const;  // requires that no size is symbolic
  int64_t shape(int64_t axis, At at = At::current()) const;
  SymInt size(int64_t axis, At at = At::current()) const;  // may be symbolic (variable.h)
  int rank(At at = At::current()) const;
  int64_t numel(At at = At::current()) const;
  DType dtype(At at = At::current()) const;
  bool realized() const;  // computed or in flight: reading it needs no new Run

  // ---- values -----------------------------------------------------------------------------------
  // Sends the Run that computes this tensor and the pending assigns; does not wait.
  Tensor& realize(At at = At::current());
  // Waits for the value. Realises and fetches a lazy tensor in one Run.
  HostTensor to_host(At at = At::current()) const;
  // Returns the value of a one-element tensor, converted to T. 64-bit integers above 2^53 need
  // item<int64_t>().
  template <typename T = double>
  T item(At at = At::current()) const {
    return ElementAt<T>(OneElement(at), 0);
  }
  template <typename T>
  std::vector<T> to_vector(At at = At::current()) const {  // row-major, converted to T
    return ElementsAs<T>(to_host(at));
  }
  // Requests the current value, realising the tensor if needed; does not wait (future.h).
  TensorFuture fetch(At at = At::current()) const;

  // Sets this tensor's value to `value` (same shape; cast to this dtype). Lazy; part of the next
  // realize. Tensors computed from the old value do not change.
  Tensor& assign(const Arg& value);

  // As assign, but also takes the dtype of `other` from then on.
  Tensor& replace(const Tensor& other, At at = At::current());

  // Marks this tensor as state, like parameters and running means: it is realised before its first
  // use, at the latest with the next realize, so that the first training step has the same graph as
  // later ones.
  Tensor& state_(At at = At::current());

  // ---- gradient ---------------------------------------------------------------------------------
  // Makes this tensor a leaf of backward(), and state (state_).
  Tensor& requires_grad_(bool on = true, At at = At::current());
  bool requires_grad() const;
  // Adds d(this)/d(leaf) to grad() of every tensor with requires_grad that this one depends on.
  // This tensor must have one element. FAILED_PRECONDITION if it depends on no such tensor.
  void backward(At at = At::current()) const;
  Tensor grad() const;         // empty if there is none
  void set_grad(Tensor grad);  // an empty tensor clears it
  // Returns d(this)/d(x) for each x in `wrt`, weighted by `upstream`. An empty `upstream` means 1
  // and requires this tensor to have one element. Zeros if independent of x. FAILED_PRECONDITION if
  // an x is one number repeated over a shape, such as a result of ones(), or a constant that
  // another live tensor is too, such as one of two eye(3): the graph has these as constants until
  // they are realised.
  std::vector<Tensor> gradient(const std::vector<Tensor>& wrt, const Tensor& upstream = {},
                               At at = At::current()) const;
  Tensor detach(At at = At::current()) const;
  Tensor contiguous(At at = At::current()) const;

  // Hints of how a value is to lie on the devices of a session: cut along `axis` over the devices
  // of one axis of the mesh, or over all; without `axis`, whole on each device. Value and gradient
  // are unchanged, and one device ignores it. shard_ says so of this tensor from then on;
  // shard_like says what the last shard or shard_ of `other` said. INVALID_ARGUMENT for an axis
  // that is not there, UNIMPLEMENTED for one whose length is a variable.
  Tensor shard(std::optional<int64_t> axis = {}, std::optional<int64_t> mesh_axis = {},
               At at = At::current()) const;
  Tensor& shard_(std::optional<int64_t> axis = {}, std::optional<int64_t> mesh_axis = {},
                 At at = At::current());
  Tensor shard_like(const Tensor& other, At at = At::current()) const;

  // True if dropout and batch normalisation of this thread behave as in training. Set it by
  // TrainingMode.
  static bool training();

  // True if GPUs may round the operands of products of f32 to TF32 (10 digits after the point) in
  // what this thread realises: faster, with errors of a thousandth. Set it by Tf32Mode, or for the
  // process by ALLOW_TF32=1. The bound is in docs/semantics.md, "Matrix units of GPUs".
  static bool allow_tf32();

  // ---- movement ---------------------------------------------------------------------------------
  Tensor reshape(const SymShape& sizes, At at = At::current()) const;  // one dimension may be -1
  Tensor flatten(int64_t first = 0, int64_t last = -1, At at = At::current()) const;
  Tensor unsqueeze(int64_t axis, At at = At::current()) const;
  Tensor squeeze(At at = At::current()) const;  // drops every axis of length 1
  Tensor squeeze(int64_t axis, At at = At::current()) const;
  Tensor expand(const SymShape& sizes, At at = At::current()) const;  // -1 keeps a dimension
  Tensor permute(const Dims& axes, At at = At::current()) const;
  Tensor transpose(int64_t a = -2, int64_t b = -1, At at = At::current()) const;
  Tensor flip(const Axes& axes, At at = At::current()) const;
  // `sides` has {before, after} for each axis.
  Tensor pad(const SymIntPairs& sides, double value = 0, At at = At::current()) const;
  Tensor shrink(const SymIntPairs& ranges,
                At at = At::current()) const;  // {begin, end} for each axis
  Tensor slice(int64_t axis, const SymInt& begin, const SymInt& end, At at = At::current()) const;
  static Tensor cat(const std::vector<Tensor>& parts, int64_t axis = 0, At at = At::current());
  static Tensor stack(const std::vector<Tensor>& parts, int64_t axis = 0, At at = At::current());
  Tensor repeat(const Dims& times, At at = At::current()) const;
  // Splits into parts of length `size` (the last may be shorter), of the lengths `sizes`, or into
  // `count` parts.
  std::vector<Tensor> split(int64_t size, int64_t axis = 0, At at = At::current()) const;
  std::vector<Tensor> split(const Dims& sizes, int64_t axis = 0, At at = At::current()) const;
  std::vector<Tensor> chunk(int64_t count, int64_t axis = 0, At at = At::current()) const;
  // Moves element i to (i + shift) modulo the length: along each of the axes, or in the flattened
  // tensor.
  Tensor roll(const Axes& shifts, const Axes& axes = {}, At at = At::current()) const;
  Tensor movedim(int64_t from, int64_t to, At at = At::current()) const;
  // Sets the elements below (triu) or above (tril) a diagonal of the last two axes to 0; `diagonal`
  // shifts it to the right.
  Tensor triu(const SymInt& diagonal = 0, At at = At::current()) const;
  Tensor tril(const SymInt& diagonal = 0, At at = At::current()) const;

  // ---- by index ---------------------------------------------------------------------------------
  // x[2], x[-1]: drops the first axis. x[Slice{1, 9, 2}]: Python's x[1:9:2]. x[rows], with an
  // integer tensor `rows`: shape rows.shape + shape[1:]. x[{Slice{}, 2, rows}]: one index per axis;
  // kEllipsis stands for the axes in between, kNewAxis adds an axis of length 1. Several index
  // tensors broadcast; their axes replace the indexed axes if these are adjacent, else they come
  // first. Negative indices count from the end. An integer out of range is an error. An element of
  // an index tensor that is out of range reads 0, because its value is known only in the cloud.
  Tensor operator[](const Index& index) const;
  Tensor operator[](const std::vector<Index>& indices) const;
  // Returns x[index] along `axis`: index.shape replaces the axis.
  Tensor take(const Tensor& index, int64_t axis = 0, At at = At::current()) const;
  // Returns y[i, j] = x[index[i, j], j] for axis 0, and so on. `index` has the rank of x and the
  // shape of y; it must not be longer than x on any axis but `axis`.
  Tensor gather(int64_t axis, const Tensor& index, At at = At::current()) const;
  // Returns 1 at the class that this integer tensor holds, else 0; the shape is shape + [classes].
  Tensor one_hot(int64_t classes, DType dtype = DType::kI32, At at = At::current()) const;

  // ---- elementwise ------------------------------------------------------------------------------
  Tensor cast(DType dtype, At at = At::current()) const;
  // Reinterprets the bits, least significant first: a dtype of another width makes the last axis
  // longer or shorter.
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
  Tensor round(At at = At::current()) const;  // ties to even
  Tensor relu(At at = At::current()) const;
  Tensor leaky_relu(double slope = 0.01, At at = At::current()) const;
  Tensor elu(double alpha = 1, At at = At::current()) const;
  Tensor sigmoid(At at = At::current()) const;
  Tensor tanh(At at = At::current()) const;
  Tensor silu(At at = At::current()) const;
  Tensor gelu(At at = At::current()) const;  // the tanh approximation
  Tensor softplus(At at = At::current()) const;
  Tensor logical_not(At at = At::current()) const;
  Tensor isnan(At at = At::current()) const;
  Tensor isinf(At at = At::current()) const;
  Tensor isfinite(At at = At::current()) const;
  // As pow() of client/ops/elementwise/arithmetic.h: integers to the power of integers stay
  // integers.
  Tensor pow(const Arg& exponent) const;
  Tensor clip(const Arg& low, const Arg& high) const;
  Tensor maximum(const Arg& other) const;
  Tensor minimum(const Arg& other) const;
  Tensor idiv(const Arg& other) const;  // integers, towards zero; x / 0 is 0
  // Selects elements: this (bool) ? a : b.
  Tensor where(const Arg& a, const Arg& b) const;

  // ---- reductions: over all axes where `axes` is empty ------------------------------------------
  Tensor sum(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor prod(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor mean(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor max(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor min(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor any(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  Tensor all(const Axes& axes = {}, bool keepdim = false, At at = At::current()) const;
  // The divisor is count - correction.
  Tensor var(const Axes& axes = {}, bool keepdim = false, int64_t correction = 1,
             At at = At::current()) const;
  Tensor std(const Axes& axes = {}, bool keepdim = false, int64_t correction = 1,
             At at = At::current()) const;
  // Returns the index of the first largest element, i32.
  Tensor argmax(int64_t axis, bool keepdim = false, At at = At::current()) const;
  Tensor argmax(At at = At::current()) const;  // in the flattened tensor
  Tensor argmin(int64_t axis, bool keepdim = false, At at = At::current()) const;
  // Element i is the sum of elements 0 ... i.
  Tensor cumsum(int64_t axis, At at = At::current()) const;
  Tensor logsumexp(const Axes& axes = -1, bool keepdim = false, At at = At::current()) const;
  Tensor softmax(const Axes& axes = -1, At at = At::current()) const;
  Tensor log_softmax(const Axes& axes = -1, At at = At::current()) const;

  // ---- products ---------------------------------------------------------------------------------
  // [..., n, k] x [..., k, m] -> [..., n, m]; vectors as in numpy. `dtype` sets the dtype of the
  // accumulator and the result.
  Tensor matmul(const Arg& other, std::optional<DType> dtype = {}) const;
  Tensor dot(const Arg& other, std::optional<DType> dtype = {}) const;
  // Returns x @ weight (+ bias), weight [in, out]; a weight of shape [in] is multiplied element by
  // element.
  Tensor linear(const Tensor& weight, const Tensor& bias = {}, At at = At::current()) const;
  // [B, C, H, W] with weight [O, C / groups, KH, KW] and bias [O] or empty. For windows over
  // another number of axes see client/ops/window/window.h.
  Tensor conv2d(const Tensor& weight, const Tensor& bias = {}, Conv2dOptions options = {},
                At at = At::current()) const;
  Tensor max_pool2d(Pool2dOptions options = {}, At at = At::current()) const;
  Tensor avg_pool2d(Pool2dOptions options = {}, At at = At::current()) const;

  // ---- training ---------------------------------------------------------------------------------
  // Sets a random fraction `p` of the elements to 0 and scales the others by 1 / (1 - p); the
  // identity outside of training.
  Tensor dropout(double p = 0.5, At at = At::current()) const;
  // (x - mean) * weight * invstd + bias. Each operand has the lengths of `axes`, with or without
  // axes of length 1 for the others; weight and bias may be empty.
  Tensor batchnorm(const Tensor& weight, const Tensor& bias, const Tensor& mean,
                   const Tensor& invstd, const Axes& axes = 1, At at = At::current()) const;
  // (x - mean) / sqrt(variance + eps), with mean and variance over all of `axes`.
  Tensor layernorm(const Axes& axes = -1, double eps = 1e-5, At at = At::current()) const;
  // Returns the mean over the rows of -log_softmax(this)[label]; this [..., classes], labels [...]
  // of integers. Rows whose label is `ignore_index` are left out; unsigned labels cannot be
  // ignored. A label out of range contributes a loss of 0.
  Tensor sparse_categorical_crossentropy(const Tensor& labels, int64_t ignore_index = -1,
                                         double label_smoothing = 0, At at = At::current()) const;
  Tensor mse_loss(const Arg& target) const;
  Tensor binary_crossentropy_logits(const Arg& target) const;  // mean

  Tensor& operator+=(const Arg& other);
  Tensor& operator-=(const Arg& other);
  Tensor& operator*=(const Arg& other);
  Tensor& operator/=(const Arg& other);

  // ---- for the library --------------------------------------------------------------------------
  // Wraps `node`, which belongs to this thread's LazyGraph, in a lazy tensor.
  static Tensor FromNode(const internal::NodeBuilder& recorder, const UOp* node);
  // Returns a realised tensor of an array that the cloud has already; sends no content.
  static Tensor FromStored(const std::shared_ptr<Session>& session,
                           const session::StoredArray& array, const At& at);
  static Tensor FromStorage(std::shared_ptr<internal::CloudBuffer> storage);
  static Tensor FromValue(std::shared_ptr<internal::TensorState> value);
  // Returns this tensor's node in the graph of `recorder`.
  const UOp* NodeIn(const internal::NodeBuilder& recorder) const;
  const std::shared_ptr<internal::TensorState>& value() const { return value_; }

 private:
  HostTensor OneElement(const At& at) const;

  std::shared_ptr<internal::TensorState> value_;
};

// An operand and the line it was written on. Holds a reference to its Tensor: use it for parameters
// only.
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
  SymInt size_;  // if kSize
  int64_t int_ = 0;
  double float_ = 0;
  At at_;
};

// A part of an axis, as Python's begin:end:step: negative positions count from the end, positions
// outside of the axis are clipped, a negative step runs backwards.
struct Slice {
  std::optional<SymInt> begin, end;  // if symbolic: step 1, inside of the axis
  int64_t step = 1;
};
struct Ellipsis {};  // all axes that the other indices do not name
struct NewAxis {};   // an axis of length 1
inline constexpr Ellipsis kEllipsis;
inline constexpr NewAxis kNewAxis;

// One index of operator[] and the line it was written on. Holds a reference to its Tensor: use it
// for parameters only.
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
Tensor operator%(const Arg& a, const Arg& b);  // integers; sign of a; x % 0 is x
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

// Computes `tensors`, `fetch`, the pending assigns and new state in one Run; does not wait. The Run
// also sends back the values of `fetch`: reading them later costs no further message. Donates a
// buffer that an assign replaces and that nothing else can read any more.
void realize(std::span<const Tensor> tensors, std::span<const Tensor> fetch = {},
             At at = At::current());

// As Tensor::fetch, for several: at most one Run, plus one message for tensors that were realised
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

// Tf32Mode on(true); what is realised within the scope may use TF32. Restores the mode at its end.
class Tf32Mode {
 public:
  explicit Tf32Mode(bool on);
  ~Tf32Mode();
  Tf32Mode(const Tf32Mode&) = delete;
  Tf32Mode& operator=(const Tf32Mode&) = delete;

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
