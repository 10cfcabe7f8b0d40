#include "client/session/estimate/graph_work.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/sums/gather.h"

namespace outboard::session {

namespace {

// Instructions that an operation takes on one element, as the tables of compiler/target.h have them
// for processors with vectors: polynomials for functions, 20 rounds for a random number.
constexpr double kExponentialCost = 15, kTanhCost = 25, kSineCost = 60, kDivisionCost = 4,
                 kRandomCost = 100;

double CostOf(Op op) {
  switch (op) {
    case Op::kThreefry: return kRandomCost;
    case Op::kSqrt:
    case Op::kFDiv:
    case Op::kIDiv:
    case Op::kMod: return kDivisionCost;
    case Op::kSin: return kSineCost;
    case Op::kTanh: return kTanhCost;
    default: return IsTranscendental(op) ? kExponentialCost : 1;
  }
}

class Counter {
 public:
  explicit Counter(absl::Span<const Binding> bindings) {
    for (const Binding& binding : bindings) bindings_[binding.slot] = binding.value;
  }

  GraphWork Count(const UOp* sink) {
    GraphWork work;
    for (auto& [kernel, count] : KernelsUnder(sink->src)) {
      kernel.count = count;
      work.kernels.push_back(kernel);
    }
    return work;
  }

  std::vector<int64_t> Dims(const UOp* value) {
    std::vector<int64_t> dims;
    for (const Dim& dim : value->shape)
      dims.push_back(static_cast<int64_t>(std::max(0.0, ValueOf(dim))));
    return dims;
  }

 private:
  using Kernels = std::vector<std::pair<KernelWork, double>>;

  double ValueOf(const Dim& dim) {
    if (dim.is_const()) return static_cast<double>(dim.value());
    if (const auto known = dims_.find(dim.expression()); known != dims_.end())
      return known->second;
    for (const UOp* node : PostOrder(dim.expression()))
      dims_.try_emplace(node, ScalarOf(node));
    return dims_.at(dim.expression());
  }

  // Of a scalar whose sources have been looked at.
  double ScalarOf(const UOp* node) {
    const auto at = [&](size_t i) { return dims_.at(node->src[i]); };
    switch (node->op) {
      case Op::kConst: return IsFloat(node->dtype) ? 0 : static_cast<double>(node->int_value());
      case Op::kVar: {
        const VarOf var(node);
        const auto bound = bindings_.find(var.slot());
        return bound != bindings_.end()
                   ? static_cast<double>(bound->second)
                   : (static_cast<double>(var.min()) + static_cast<double>(var.max())) / 2;
      }
      case Op::kNeg: return -at(0);
      case Op::kAdd: return at(0) + at(1);
      case Op::kMul: return at(0) * at(1);
      case Op::kMax: return std::max(at(0), at(1));
      case Op::kIDiv: return at(1) == 0 ? 0 : at(0) / at(1);
      default: return (static_cast<double>(node->vmin) + static_cast<double>(node->vmax)) / 2;
    }
  }

  double Elements(const UOp* node) {
    double count = 1;
    for (const Dim& dim : node->shape) count *= std::max(0.0, ValueOf(dim));
    return count;
  }

  // The product that a sum adds up; nullptr: it adds something else.
  static const UOp* ProductOf(const UOp* reduce) {
    if (ReduceOf(reduce).op() != Op::kAdd || !IsFloat(reduce->dtype)) return nullptr;
    const UOp* x = reduce->src[0];
    while (x->op == Op::kCast || x->op == Op::kReshape || x->op == Op::kPermute) x = x->src[0];
    return x->op == Op::kMul ? x : nullptr;
  }

  // The narrowest float that an operand's values were on their way.
  static int WidthOf(const UOp* x) {
    int width = ByteWidth(x->dtype);
    while (x->op == Op::kCast || x->op == Op::kReshape || x->op == Op::kPermute ||
           x->op == Op::kExpand) {
      x = x->src[0];
      if (IsFloat(x->dtype)) width = std::min(width, ByteWidth(x->dtype));
    }
    return width;
  }
  // A matrix unit multiplies both operands as the wider one is.
  static ProductKind KindOf(const UOp* product) {
    switch (std::max(WidthOf(product->src[0]), WidthOf(product->src[1]))) {
      case 1: return ProductKind::kF8;
      case 2: return ProductKind::kHalf;
      default: return ProductKind::kF32;
    }
  }

  static bool IsStored(const UOp* node) {
    return (node->op == Op::kReduce && !IsGather(node)) || node->op == Op::kContiguous ||
           node->op == Op::kCall;
  }

  Kernels KernelsUnder(Sources roots) {
    Kernels kernels;
    absl::flat_hash_set<const UOp*> counted, stored;
    std::vector<const UOp*> open(roots.rbegin(), roots.rend());
    while (!open.empty()) {
      const UOp* const node = open.back();
      open.pop_back();
      if (!stored.insert(node).second) continue;
      if (node->op == Op::kParam || node->op == Op::kConst) continue;
      if (node->op == Op::kTuple || node->op == Op::kGetTuple) {
        for (int i = 0; i < node->own_sources(); ++i) open.push_back(node->src[i]);
        continue;
      }
      if (node->op == Op::kCall) {
        const Kernels& body = BodyOf(node->src[0]);
        kernels.insert(kernels.end(), body.begin(), body.end());
        for (int i = 1; i < node->own_sources(); ++i) open.push_back(node->src[i]);
        continue;
      }
      KernelWork kernel;
      kernel.bytes = Elements(node) * static_cast<double>(ByteWidth(node->dtype));
      Inline(node, kernel, counted, open);
      kernels.emplace_back(kernel, 1.0);
    }
    return kernels;
  }

  // Counts what is computed within the kernel that stores `root`; what it reads and others store is
  // put into `open`.
  void Inline(const UOp* root, KernelWork& kernel, absl::flat_hash_set<const UOp*>& counted,
              std::vector<const UOp*>& open) {
    struct Visit {
      const UOp* node;
      double most;  // elements of it that are read
      bool is_selected;  // within a gather, which computes nothing of it
    };
    absl::flat_hash_set<const UOp*> seen;
    std::vector<Visit> visits = {{root, 1e300, false}};
    while (!visits.empty()) {
      const Visit visit = visits.back();
      visits.pop_back();
      const UOp* const node = visit.node;
      if (!seen.insert(node).second) continue;
      const double elements = Elements(node);
      if (node != root && (node->op == Op::kParam || IsStored(node) || node->op == Op::kGetTuple)) {
        kernel.bytes +=
            std::min(elements, visit.most) * static_cast<double>(ByteWidth(node->dtype));
        if (node->op != Op::kParam) open.push_back(node);
        continue;
      }
      Visit next{nullptr, visit.most, visit.is_selected};
      if (node->op == Op::kShrink) next.most = std::min(next.most, elements);
      if (node->op == Op::kReduce) {
        const double read = Elements(node->src[0]);
        if (IsGather(node)) {
          kernel.others += std::min(elements, visit.most);
          next.most = std::min(elements, visit.most);
          next.is_selected = true;
        } else if (const UOp* const product = ProductOf(node); product != nullptr) {
          kernel.products += 2 * read;
          kernel.kind = KindOf(product);
          if (Elements(product) == read) counted.insert(product);
        } else {
          kernel.others += read;
        }
      } else if (IsAlu(node->op) && !visit.is_selected && counted.insert(node).second) {
        kernel.others += CostOf(node->op) * elements;
      }
      for (int i = 0; i < node->own_sources(); ++i) {
        next.node = node->src[i];
        visits.push_back(next);
      }
    }
  }

  const Kernels& BodyOf(const UOp* function) {
    if (const auto known = bodies_.find(function); known != bodies_.end()) return known->second;
    // A body's own calls come first, without recursion.
    for (const UOp* node : PostOrder(function->src[0]))
      if (node->op == Op::kFunction && !bodies_.contains(node))
        bodies_.emplace(node, KernelsUnder({node->src.data(), 1}));
    return bodies_.emplace(function, KernelsUnder({function->src.data(), 1})).first->second;
  }

  absl::flat_hash_map<int64_t, int64_t> bindings_;
  absl::flat_hash_map<const UOp*, double> dims_;
  // Nodes of a map move when it grows, so what is found is copied before it does.
  absl::flat_hash_map<const UOp*, Kernels> bodies_;
};

}  // namespace

// Each kernel as often as it runs.
template <typename Of>
static double SumOver(const std::vector<KernelWork>& kernels, Of of) {
  double sum = 0;
  for (const KernelWork& k : kernels) sum += of(k) * k.count;
  return sum;
}

double GraphWork::products() const {
  return SumOver(kernels, [](const KernelWork& k) { return k.products; });
}
double GraphWork::others() const {
  return SumOver(kernels, [](const KernelWork& k) { return k.others; });
}
double GraphWork::bytes() const {
  return SumOver(kernels, [](const KernelWork& k) { return k.bytes; });
}
double GraphWork::count() const {
  return SumOver(kernels, [](const KernelWork&) { return 1.0; });
}

GraphWork WorkOf(const UOp* sink, absl::Span<const Binding> bindings) {
  return Counter(bindings).Count(sink);
}

std::vector<int64_t> DimsOf(const UOp* value, absl::Span<const Binding> bindings) {
  return Counter(bindings).Dims(value);
}

absl::StatusOr<GraphWork> WorkOfEncoding(std::string_view encoding,
                                         absl::Span<const Binding> bindings) {
  Graph graph;
  OB_ASSIGN_OR_RETURN(const UOp* const sink, DecodeGraph(graph, encoding));
  return WorkOf(sink, bindings);
}

}  // namespace outboard::session
