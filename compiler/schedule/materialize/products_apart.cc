#include "compiler/schedule/materialize/products_apart.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"
#include "compiler/schedule/gather/one_hot.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

// Products that threads compute in the time of one byte of memory, by NVIDIA's data sheets: 6.25 of
// A100, 8.75 of H100; a core of Sapphire Rapids computes fewer, of bf16. A matrix unit takes a
// tenth of their time, or less.
constexpr double kProductsOfByte = 6.25, kSavedOfProduct = 0.9;
// A kernel more, 3 us on a GPU and some 20 on a processor, takes the time of so many bytes.
constexpr double kGpuKernelBytes = 1 << 23, kCpuKernelBytes = 1 << 18;
// Sums of one kernel: their sets are bits.
constexpr size_t kSumsMax = 64;

double Elements(const UOp* node) { return static_cast<double>(PaddedSize(node->shape)); }
double Bytes(const UOp* node) { return Elements(node) * ByteWidth(node->dtype); }

// One sum of a kernel, or several that are added in f32.
struct Sum {
  double products = 0;          // terms, all together
  std::vector<const UOp*> of;   // REDUCEs
  const UOp* stored = nullptr;  // of which the kernel can compute all else
};

// What one kernel computes.
struct Computed {
  std::vector<const UOp*> order;  // from the REDUCEs with loops up; sources before users
  absl::flat_hash_map<const UOp*, int> users;
  std::vector<const UOp*> loops;  // REDUCEs, of those that no other one sums
};

class Parts {
 public:
  Parts(Graph& graph, Choice& choice, const absl::flat_hash_set<const UOp*>& never,
        const Target& target, MatrixUnitKernels& units)
      : graph_(graph),
        choice_(choice),
        never_(never),
        kernel_bytes_(target.kind == TargetKind::kCpu ? kCpuKernelBytes : kGpuKernelBytes),
        units_(units) {}

  struct Kernel {
    const UOp* value;
    LoweredKernel lowered;
  };

  // Appends the kernel of `value`, behind those of what is stored of it.
  absl::Status Divide(const UOp* value, LoweredKernel kernel, std::vector<Kernel>& out) {
    std::vector<Kernel> divided;
    if (MayGain(kernel)) {
      OB_ASSIGN_OR_RETURN(divided, Divided(value));
    }
    if (divided.empty()) {
      out.push_back({value, std::move(kernel)});
      return absl::OkStatus();
    }
    // Each has fewer sums than this one.
    for (Kernel& part : divided)
      OB_RETURN_IF_ERROR(Divide(part.value, std::move(part.lowered), out));
    return absl::OkStatus();
  }

 private:
  // Whether two sums or more, one of them large, are in the kernel.
  bool MayGain(const LoweredKernel& kernel) const {
    if (kernel.then != nullptr || !units_.AreAsked() ||
        graph_.node_count() > limits::kGraphNodesMax / 2)
      return false;
    double points = 1, most = 0;
    int loops = 0;
    const std::vector<const UOp*> nodes = PostOrder(kernel.ast);
    for (const UOp* node : nodes)
      if (IsRange(node, RangeKind::kOutput)) points *= static_cast<double>(RangeOf(node).extent());
    for (const UOp* node : nodes) {
      if (node->op != Op::kReduceLoop) continue;
      ++loops;
      double terms = points;
      for (const UOp* range : node->src.subspan(1))
        terms *= static_cast<double>(RangeOf(range).extent());
      if (ReduceOf(node).op() == Op::kAdd && IsFloat(node->dtype)) most = std::max(most, terms);
    }
    // With fewer products a kernel saves less than another one takes.
    return loops > 1 && most >= kernel_bytes_ * kProductsOfByte &&
           !units_.Multiplies(graph_, kernel.ast);
  }

  // The kernels of `value` and of what is stored of it; none where it is better as it is.
  absl::StatusOr<std::vector<Kernel>> Divided(const UOp* value) {
    OB_ASSIGN_OR_RETURN(const std::optional<Computed> computed, ComputedWith(value));
    if (!computed || computed->loops.size() < 2 || computed->loops.size() > kSumsMax)
      return std::vector<Kernel>{};
    // What is added in f32 is one sum, if a matrix unit takes it.
    for (const bool together : {true, false}) {
      std::vector<Sum> sums = SumsOf(*computed, together);
      if (together && sums.size() == computed->loops.size()) continue;
      if (!FindStored(value, *computed, sums)) continue;
      OB_ASSIGN_OR_RETURN(std::vector<Kernel> kernels, Apart(value, sums));
      if (!kernels.empty()) return kernels;
    }
    return std::vector<Kernel>{};
  }

  bool IsLoaded(const UOp* node) const {
    return node->op == Op::kParam || choice_.read_again.contains(node);
  }

  // nullopt where some value of `never` is computed.
  absl::StatusOr<std::optional<Computed>> ComputedWith(const UOp* value) {
    Computed computed;
    absl::flat_hash_set<const UOp*> seen = {value};
    std::vector<std::pair<const UOp*, size_t>> open = {{value, 0}};
    std::vector<const UOp*> below;  // sources of the loops
    while (!open.empty()) {
      auto& [node, next] = open.back();
      bool is_loop = false;
      if (next == 0) {
        if (never_.contains(node)) return std::nullopt;
        if (node->op == Op::kReduce) {
          OB_ASSIGN_OR_RETURN(const OneHot one_hot, FindOneHot(graph_, node));
          is_loop = one_hot.loops_left > 1;
        }
      }
      if (is_loop) {
        computed.loops.push_back(node);
        below.push_back(node->src[0]);
      }
      if (is_loop || next == node->src.size()) {
        computed.order.push_back(node);
        open.pop_back();
        continue;
      }
      const UOp* const source = node->src[next++];
      ++computed.users[source];
      if (!IsLoaded(source) && seen.insert(source).second) open.emplace_back(source, 0);
    }
    while (!below.empty()) {
      const UOp* const node = below.back();
      below.pop_back();
      if (IsLoaded(node) || !seen.insert(node).second) continue;
      if (never_.contains(node)) return std::nullopt;
      below.insert(below.end(), node->src.begin(), node->src.end());
    }
    return computed;
  }

  // The sums of the kernel. `together`: of those that are added in f32, and not used otherwise, one
  // is made.
  std::vector<Sum> SumsOf(const Computed& computed, bool together) const {
    // Of a value that is nothing but a sum: its loops, as bits.
    absl::flat_hash_map<const UOp*, uint64_t> whole;
    std::vector<uint64_t> all;
    for (const UOp* node : computed.order) {
      const auto loop = std::find(computed.loops.begin(), computed.loops.end(), node);
      if (loop != computed.loops.end()) {
        whole[node] = uint64_t{1} << (loop - computed.loops.begin());
        all.push_back(whole[node]);
        continue;
      }
      if (!together || node->dtype != DType::kF32) continue;
      const auto is_part = [&](const UOp* s) {
        return whole.contains(s) && computed.users.at(s) == 1;
      };
      if ((node->op == Op::kReshape || node->op == Op::kPermute) && is_part(node->src[0])) {
        whole[node] = whole.at(node->src[0]);
      } else if (node->op == Op::kAdd && is_part(node->src[0]) && is_part(node->src[1])) {
        whole[node] = whole.at(node->src[0]) | whole.at(node->src[1]);
        std::erase_if(all, [&](uint64_t bits) { return (bits & whole.at(node)) != 0; });
        all.push_back(whole[node]);
      }
    }
    std::vector<Sum> sums;
    for (const uint64_t bits : all) {
      Sum& sum = sums.emplace_back();
      for (size_t i = 0; i < computed.loops.size(); ++i) {
        if ((bits >> i & 1) == 0) continue;
        sum.of.push_back(computed.loops[i]);
        sum.products += Elements(computed.loops[i]->src[0]);
      }
    }
    return sums;
  }

  // Finds for each sum what could be stored of it: what all that the kernel computes of it is
  // computed from, in as few bytes as possible; of two with as many bytes the one that has more
  // computed. Returns false where one has no such value.
  bool FindStored(const UOp* value, const Computed& computed, std::vector<Sum>& sums) const {
    absl::flat_hash_map<const UOp*, uint64_t> sums_in;  // as bits
    for (size_t i = 0; i < sums.size(); ++i)
      for (const UOp* loop : sums[i].of) sums_in[loop] = uint64_t{1} << i;
    const auto in = [&](const UOp* node) {
      const auto found = sums_in.find(node);
      return found == sums_in.end() ? uint64_t{0} : found->second;
    };
    absl::flat_hash_map<uint64_t, absl::flat_hash_set<const UOp*>> last;  // of one sum alone
    for (const UOp* node : computed.order) {
      uint64_t bits = in(node);
      const bool is_loop = bits != 0;
      if (!is_loop)
        for (const UOp* s : node->src) bits |= in(s);
      if (bits == 0) continue;
      sums_in[node] = bits;
      if (is_loop) continue;
      for (const UOp* s : node->src)
        if (in(s) != 0 && in(s) != bits) last[in(s)].insert(s);
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      const auto found = last.find(uint64_t{1} << i);
      if (found == last.end()) return false;
      if (found->second.size() == 1)
        sums[i].stored = Smallest(*found->second.begin(), in);
      else if (sums[i].of.size() == 1)
        sums[i].stored = sums[i].of[0];
      else
        return false;
      if (sums[i].stored == value || Elements(sums[i].stored) == 0) return false;
    }
    return true;
  }

  // From `top` down, as long as one source alone has sums in it.
  template <typename SumsIn>
  static const UOp* Smallest(const UOp* top, const SumsIn& in) {
    const UOp* best = top;
    for (const UOp* node = top; node != nullptr;) {
      const UOp* below = nullptr;
      int count = 0;
      for (const UOp* s : node->src) {
        if (in(s) == 0 || s == below) continue;
        below = s;
        ++count;
      }
      if (count != 1) break;
      if (Bytes(below) < Bytes(best) || (Bytes(below) == Bytes(best) && IsMovement(best->op)))
        best = below;
      node = below;
    }
    return best;
  }

  // The kernel of `value` where those parts are stored, too.
  absl::StatusOr<LoweredKernel> Lowered(const UOp* value, const std::vector<Kernel>& parts = {}) {
    for (const Kernel& part : parts) choice_.read_again.insert(part.value);
    absl::StatusOr<LoweredKernel> lowered = LowerKernel(graph_, value, choice_.read_again);
    for (const Kernel& part : parts) choice_.read_again.erase(part.value);
    return lowered;
  }

  // The kernels with all sums stored but the last of the largest; that one, too, where only a
  // kernel of its own is computed by a matrix unit. None if no kernel with it is, or that does not
  // pay.
  absl::StatusOr<std::vector<Kernel>> Apart(const UOp* value, const std::vector<Sum>& sums) {
    size_t largest = 0;
    for (size_t i = 0; i < sums.size(); ++i)
      if (sums[i].products >= sums[largest].products) largest = i;
    std::vector<Kernel> parts;
    double saved = 0, cost = 0;
    const auto store = [&](const Sum& sum, LoweredKernel lowered) {
      cost += 2 * Bytes(sum.stored) + kernel_bytes_;
      parts.push_back({sum.stored, std::move(lowered)});
    };
    for (size_t i = 0; i < sums.size(); ++i) {
      if (i == largest) continue;
      OB_ASSIGN_OR_RETURN(LoweredKernel alone, Lowered(sums[i].stored));
      if (units_.Multiplies(graph_, alone.ast)) saved += sums[i].products;
      store(sums[i], std::move(alone));
    }
    OB_ASSIGN_OR_RETURN(LoweredKernel left, Lowered(value, parts));
    saved += sums[largest].products;
    if (!units_.Multiplies(graph_, left.ast)) {
      OB_ASSIGN_OR_RETURN(LoweredKernel alone, Lowered(sums[largest].stored));
      if (!units_.Multiplies(graph_, alone.ast)) return std::vector<Kernel>{};
      store(sums[largest], std::move(alone));
      OB_ASSIGN_OR_RETURN(left, Lowered(value, parts));
    }
    if (saved * kSavedOfProduct / kProductsOfByte <= cost) return std::vector<Kernel>{};
    for (const Kernel& part : parts) choice_.read_again.insert(part.value);
    parts.push_back({value, std::move(left)});
    return parts;
  }

  Graph& graph_;
  Choice& choice_;
  const absl::flat_hash_set<const UOp*>& never_;
  const double kernel_bytes_;
  MatrixUnitKernels& units_;
};

}  // namespace

bool MatrixUnitKernels::Multiplies(Graph& graph, const UOp* ast) {
  if (const auto known = known_.find(ast); known != known_.end()) return known->second;
  if (!AreAsked()) return false;
  nodes_left_ -= static_cast<int64_t>(PostOrder(ast).size());
  const UOp* const kernel = tf32_ && SumsProductsOfF32(ast) ? WithTf32(graph, ast) : ast;
  return known_[ast] = nodes_left_ > 0 && multiplies_(kernel);
}

absl::Status StoreProductsApart(Graph& graph, Choice& choice, std::vector<LoweredKernel>& kernels,
                                const absl::flat_hash_set<const UOp*>& never, const Target& target,
                                MatrixUnitKernels& units) {
  if (!units.AreAsked()) return absl::OkStatus();
  Parts parts(graph, choice, never, target, units);
  std::vector<Parts::Kernel> all;
  for (size_t i = 0; i < kernels.size(); ++i)
    OB_RETURN_IF_ERROR(parts.Divide(choice.kept[i], std::move(kernels[i]), all));
  kernels.clear();
  choice.kept.clear();
  for (Parts::Kernel& kernel : all) {
    choice.kept.push_back(kernel.value);
    kernels.push_back(std::move(kernel.lowered));
  }
  return absl::OkStatus();
}

}  // namespace outboard::schedule
