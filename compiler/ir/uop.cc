#include "compiler/ir/uop.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <random>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/bounds.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/spec.h"

namespace outboard {
namespace {

// Bump allocation; nodes are trivially destructible and live as long as the Graph.
class Arena {
 public:
  template <typename T>
  T* Allocate(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    const size_t bytes = (count * sizeof(T) + 7) / 8 * 8;
    if (bytes > left_) Grow(bytes);
    T* const place = reinterpret_cast<T*>(next_);
    next_ += bytes;
    left_ -= bytes;
    return place;
  }

  template <typename T>
  absl::Span<const T> Copy(absl::Span<const T> from) {
    if (from.empty()) return {};
    T* const to = Allocate<T>(from.size());
    std::uninitialized_copy(from.begin(), from.end(), to);
    return {to, from.size()};
  }

 private:
  void Grow(size_t bytes) {
    const size_t size = std::max<size_t>(bytes, 64 << 10);
    blocks_.push_back(std::make_unique_for_overwrite<uint64_t[]>(size / 8));
    next_ = reinterpret_cast<char*>(blocks_.back().get());
    left_ = size;
  }

  std::vector<std::unique_ptr<uint64_t[]>> blocks_;
  char* next_ = nullptr;
  size_t left_ = 0;
};

struct Key {
  Op op;
  DType dtype;
  Sources src;
  absl::Span<const int64_t> arg;
  uint32_t hash;
};

// Different in each process. A client chooses the data that is hashed, and with a known function
// could fill one bucket.
const std::array<uint64_t, 2>& Secret() {
  static const std::array<uint64_t, 2> secret = [] {
    std::random_device device;
    const auto word = [&device] { return static_cast<uint64_t>(device()) << 32 | device(); };
    return std::array<uint64_t, 2>{word(), word() | 1};
  }();
  return secret;
}

// The sources are interned, so their indices stand for them.
uint32_t HashOf(Op op, DType dtype, Sources src, absl::Span<const int64_t> arg) {
  const auto [seed, factor] = Secret();
  uint64_t h = seed ^ (static_cast<uint64_t>(op) << 8 | static_cast<uint64_t>(dtype));
  // Both halves of the product, with a secret factor on the one side and all seen so far on the
  // other.
  const auto mix = [&h, factor = factor](uint64_t v) {
    const auto product = static_cast<unsigned __int128>(h ^ v) * (factor + (h << 1));
    h = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  for (const UOp* s : src) mix(s->index + 1);
  mix(src.size());
  for (const int64_t a : arg) mix(static_cast<uint64_t>(a));
  mix(arg.size());
  return static_cast<uint32_t>(h ^ h >> 32);
}

// The type of an operation over `src` where the sources alone tell; kVoid where CheckNode has to
// say.
DType TypeOver(Op op, Sources src) {
  if (!IsAlu(op) || src.empty()) return DType::kVoid;
  return IsCompare(op) ? DType::kBool : src.back()->dtype;
}

// Whether a node over `src` is known before a run.
bool OfVars(Op op, DType dtype, Sources src) {
  if (IsFloat(dtype)) return false;
  if (op == Op::kConst || op == Op::kVar) return true;
  if (!IsAlu(op) && op != Op::kCast) return false;
  return std::all_of(src.begin(), src.end(), [](const UOp* s) { return s->of_vars; });
}

struct NodeHash {
  using is_transparent = void;
  size_t operator()(const UOp* node) const { return absl::HashOf(node->hash); }
  size_t operator()(const Key& key) const { return absl::HashOf(key.hash); }
};

struct NodeEqual {
  using is_transparent = void;
  bool operator()(const UOp* a, const UOp* b) const { return a == b; }
  bool operator()(const UOp* node, const Key& key) const {
    return node->hash == key.hash && node->op == key.op && node->dtype == key.dtype &&
           node->src == key.src && node->arg == key.arg;
  }
  bool operator()(const Key& key, const UOp* node) const { return (*this)(node, key); }
};

}  // namespace

Dim::Dim(const UOp* expression) {
  OB_CHECK(expression->dtype == DType::kI64 && expression->shape.empty());
  if (expression->is_const()) {
    value_ = expression->int_value();
  } else {
    value_ = kSymbolicDim;
    expression_ = expression;
  }
}

int64_t Dim::min() const { return is_const() ? value_ : expression_->vmin; }
int64_t Dim::max() const { return is_const() ? value_ : expression_->vmax; }

double UOp::float_value() const { return std::bit_cast<double>(arg[0]); }

int UOp::own_sources() const {
  int count = static_cast<int>(src.size());
  if (InfoOf(op).has_dims)
    for (const int64_t a : arg) count -= a == kSymbolicDim;
  return count;
}

Dim UOp::arg_dim(int i) const {
  if (arg[i] != kSymbolicDim) return arg[i];
  int place = static_cast<int>(src.size());
  for (size_t j = i; j < arg.size(); ++j) place -= arg[j] == kSymbolicDim;
  return Dim(src[place]);
}

int64_t ElementCount(ShapeView shape) {
  int64_t count = 1;
  for (const Dim& dim : shape) {
    OB_CHECK(dim.is_const());
    count *= dim.value();
  }
  return count;
}

bool IsStatic(ShapeView shape) {
  return std::all_of(shape.begin(), shape.end(), [](const Dim& dim) { return dim.is_const(); });
}

std::vector<int64_t> StaticDims(ShapeView shape) {
  OB_CHECK(IsStatic(shape));
  std::vector<int64_t> dims;
  dims.reserve(shape.size());
  for (const Dim& dim : shape) dims.push_back(dim.value());
  return dims;
}

struct Graph::Impl {
  Arena arena;
  absl::flat_hash_set<const UOp*, NodeHash, NodeEqual> nodes;
};

Graph::Graph()
    : walk_budget(std::numeric_limits<int64_t>::max()), impl_(std::make_unique<Impl>()) {}
Graph::~Graph() = default;

int64_t Graph::node_count() const { return static_cast<int64_t>(impl_->nodes.size()); }

absl::StatusOr<const UOp*> Graph::Make(Op op, DType dtype, Sources src,
                                       absl::Span<const int64_t> arg) {
  // A node that exists was checked when it was made: rebuilding a known graph is look-ups only.
  if (const DType known = dtype != DType::kVoid ? dtype : TypeOver(op, src);
      known != DType::kVoid) {
    const Key key{op, known, src, arg, HashOf(op, known, src, arg)};
    if (const auto found = impl_->nodes.find(key); found != impl_->nodes.end()) return *found;
  }
  OB_ASSIGN_OR_RETURN(const Inferred inferred, CheckNode(*this, op, dtype, src, arg));
  const Key key{op, inferred.dtype, src, arg, HashOf(op, inferred.dtype, src, arg)};
  if (const auto found = impl_->nodes.find(key); found != impl_->nodes.end()) return *found;

  UOp* const node = impl_->arena.Allocate<UOp>(1);
  new (node) UOp{};
  node->op = op;
  node->dtype = inferred.dtype;
  node->index = static_cast<uint32_t>(impl_->nodes.size());
  node->hash = key.hash;
  node->src = impl_->arena.Copy(src);
  node->arg = impl_->arena.Copy(arg);
  // Most values have their source's shape, and its memory.
  const bool as_source = !src.empty() && ShapeView(inferred.shape) == src[0]->shape;
  node->shape = as_source ? src[0]->shape : impl_->arena.Copy(ShapeView(inferred.shape));
  const Bounds bounds = BoundsOfNode(*node);
  node->vmin = bounds.min;
  node->vmax = bounds.max;
  node->of_vars = OfVars(op, node->dtype, src);
  impl_->nodes.insert(node);
  return node;
}

const UOp* Graph::MakeChecked(Op op, DType dtype, Sources src, absl::Span<const int64_t> arg) {
  return ValueOrDie(Make(op, dtype, src, arg));
}

absl::StatusOr<const UOp*> Graph::WithSources(const UOp* node, Sources src) {
  return Make(node->op, node->dtype, src, node->arg);
}

std::vector<const UOp*> PostOrder(absl::Span<const UOp* const> roots, bool into_functions) {
  std::vector<const UOp*> order;
  absl::flat_hash_set<const UOp*> seen;
  struct Visit {
    const UOp* node;
    size_t next_source;
  };
  std::vector<Visit> stack;
  for (const UOp* root : roots) {
    if (seen.insert(root).second) stack.push_back({root, 0});
    while (!stack.empty()) {
      Visit& top = stack.back();
      const bool enter = into_functions || top.node->op != Op::kFunction;
      if (enter && top.next_source < top.node->src.size()) {
        const UOp* const source = top.node->src[top.next_source++];
        if (seen.insert(source).second) stack.push_back({source, 0});
        continue;
      }
      order.push_back(top.node);
      stack.pop_back();
    }
  }
  return order;
}

}  // namespace outboard
