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

// Multiplications that threads compute in the time of one byte of memory, by NVIDIA's data sheets:
// 6.25 of A100, 8.75 of H100; a core of Sapphire Rapids computes fewer, of bf16. A matrix unit
// takes a tenth of their time, or less.
constexpr double kMultiplicationsOfByte = 6.25, kPartSaved = 0.9;
// The time of one more kernel, 3 us on a GPU and about 20 us on a processor, as the bytes of memory
// that take as long.
constexpr double kGpuKernelBytes = 1 << 23, kCpuKernelBytes = 1 << 18;
// A byte stored and loaded again, against one of a long load: cores store with fewer in flight.
constexpr double kCpuBytesOfStored = 1.5;
// All sums together are stored up to so many times the bytes that the kernel loads and stores.
constexpr double kStoredMax = 4;
// Sums of one kernel: their sets are bits.
constexpr size_t kSumsMax = 64;

double Elements(const UOp* node) { return static_cast<double>(PaddedSize(node->shape)); }
double Bytes(const UOp* node) { return Elements(node) * ByteWidth(node->dtype); }

// One sum of a kernel, or several that are added in f32.
struct Sum {
  double multiplications = 0;   // one for each term of each result
  std::vector<const UOp*> of;   // REDUCEs
  const UOp* stored = nullptr;  // of which the kernel can compute all else
};

// What one kernel computes.
struct Computed {
  std::vector<const UOp*> order;  // from the REDUCEs with loops up; sources before users
  absl::flat_hash_map<const UOp*, int> users;
  std::vector<const UOp*> loops;  // REDUCEs, of those that no other one sums
  double bytes = 0;               // of its value and of what it loads
};

using Nodes = absl::flat_hash_set<const UOp*>;

// Where the sums of a kernel meet. Sets of sums are bits.
struct Meeting {
  absl::flat_hash_map<const UOp*, uint64_t> sums_in;
  // By the sums in them, values that a value with more sums in it is computed from.
  absl::flat_hash_map<uint64_t, Nodes> last;

  uint64_t In(const UOp* node) const {
    const auto found = sums_in.find(node);
    return found == sums_in.end() ? uint64_t{0} : found->second;
  }
};

class Parts {
 public:
  Parts(Graph& graph, Choice& choice, const absl::flat_hash_set<const UOp*>& never,
        const Target& target, MatrixUnitKernels& units)
      : graph_(graph),
        choice_(choice),
        never_(never),
        kernel_bytes_(target.kind == TargetKind::kCpu ? kCpuKernelBytes : kGpuKernelBytes),
        of_stored_(target.kind == TargetKind::kCpu ? kCpuBytesOfStored : 1),
        units_(units) {}

  struct Kernel {
    const UOp* value;
    LoweredKernel lowered;
  };

  // Appends the kernel of `value`, behind those of what is stored of it.
  absl::Status Divide(const UOp* value, LoweredKernel kernel, std::vector<Kernel>& out) {
    std::vector<Kernel> divided;
    if (MayGain(kernel)) {
      OB_ASSIGN_OR_RETURN(divided, Divided(value, kernel.ast));
    }
    if (divided.empty()) {
      AddComputed(value, before_);
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
    double most = 0;
    int loops = 0;
    for (const UOp* node : PostOrder(kernel.ast)) {
      if (node->op != Op::kReduceLoop) continue;
      ++loops;
      if (ReduceOf(node).op() == Op::kAdd && IsFloat(node->dtype))
        most = std::max(most, TermsOf(node));
    }
    // With fewer multiplications a kernel saves less than another one takes.
    return loops > 1 && most >= kernel_bytes_ * kMultiplicationsOfByte;
  }

  // The kernels of `value` and of what is stored of it; none where it is better as it is, which is
  // `whole`.
  absl::StatusOr<std::vector<Kernel>> Divided(const UOp* value, const UOp* whole) {
    OB_ASSIGN_OR_RETURN(const std::optional<Computed> computed, ComputedWith(value));
    if (!computed || computed->loops.size() < 2 || computed->loops.size() > kSumsMax)
      return std::vector<Kernel>{};
    // What is added in f32 is one sum, if a matrix unit takes it.
    for (const bool together : {true, false}) {
      std::vector<Sum> sums = SumsOf(*computed, together);
      if (together && sums.size() == computed->loops.size()) continue;
      const Meeting meeting = MeetingOf(*computed, sums);
      if (!FindStored(value, meeting, sums)) continue;
      double bytes = 0;
      for (const Sum& sum : sums) bytes += Bytes(sum.stored);
      if (bytes > computed->bytes) {
        const std::vector<Sum> chain = ChainOf(value, *computed, meeting, sums);
        if (!chain.empty() && CanPay(chain) && !units_.Computes(graph_, whole)) {
          OB_ASSIGN_OR_RETURN(std::vector<Kernel> kernels, Chained(value, chain));
          if (!kernels.empty()) return kernels;
        }
      }
      if (bytes > kStoredMax * computed->bytes || !CanPay(sums) || units_.Computes(graph_, whole))
        continue;
      OB_ASSIGN_OR_RETURN(std::vector<Kernel> kernels, Apart(value, sums));
      if (!kernels.empty()) return kernels;
    }
    return std::vector<Kernel>{};
  }

  static size_t LargestOf(const std::vector<Sum>& sums) {
    size_t largest = 0;
    for (size_t i = 0; i < sums.size(); ++i)
      if (sums[i].multiplications >= sums[largest].multiplications) largest = i;
    return largest;
  }

  double CostOf(const Sum& sum) const { return 2 * of_stored_ * Bytes(sum.stored) + kernel_bytes_; }
  static bool Pays(double multiplications, double cost) {
    return multiplications * kPartSaved / kMultiplicationsOfByte > cost;
  }
  // Whether it pays if matrix units compute all of them. The last of a chain is not stored; else it
  // is the largest.
  bool CanPay(const std::vector<Sum>& sums) const {
    const size_t largest = LargestOf(sums);
    double multiplications = 0, cost = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      multiplications += sums[i].multiplications;
      if (sums.back().stored == nullptr ? i + 1 < sums.size() : i != largest)
        cost += CostOf(sums[i]);
    }
    return Pays(multiplications, cost);
  }

  // Adds `value` and what is computed for it, up to what is loaded.
  void AddComputed(const UOp* value, Nodes& to) const {
    std::vector<const UOp*> open = {value};
    while (!open.empty()) {
      const UOp* const node = open.back();
      open.pop_back();
      if ((node != value && IsLoaded(node)) || !to.insert(node).second) continue;
      open.insert(open.end(), node->src.begin(), node->src.end());
    }
  }

  // Whether each part is computed by no kernel before its own.
  bool AreFirst(const std::vector<Kernel>& parts) const {
    Nodes of_parts;
    for (const Kernel& part : parts) {
      if (before_.contains(part.value) || of_parts.contains(part.value)) return false;
      AddComputed(part.value, of_parts);
    }
    return true;
  }

  // `parts` are stored, and `left` is the kernel of `value` that loads them.
  std::vector<Kernel> Stored(const UOp* value, std::vector<Kernel> parts, LoweredKernel left) {
    for (const Kernel& part : parts) choice_.read_again.insert(part.value);
    parts.push_back({value, std::move(left)});
    return parts;
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
    Nodes loaded = {value};
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
      if (IsLoaded(source))
        loaded.insert(source);
      else if (seen.insert(source).second)
        open.emplace_back(source, 0);
    }
    while (!below.empty()) {
      const UOp* const node = below.back();
      below.pop_back();
      if (IsLoaded(node)) loaded.insert(node);
      if (IsLoaded(node) || !seen.insert(node).second) continue;
      if (never_.contains(node)) return std::nullopt;
      below.insert(below.end(), node->src.begin(), node->src.end());
    }
    for (const UOp* node : loaded) computed.bytes += Bytes(node);
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
        sum.multiplications += Elements(computed.loops[i]->src[0]);
      }
    }
    return sums;
  }

  static Meeting MeetingOf(const Computed& computed, const std::vector<Sum>& sums) {
    Meeting meeting;
    for (size_t i = 0; i < sums.size(); ++i)
      for (const UOp* loop : sums[i].of) meeting.sums_in[loop] = uint64_t{1} << i;
    for (const UOp* node : computed.order) {
      uint64_t bits = meeting.In(node);
      const bool is_loop = bits != 0;
      if (!is_loop)
        for (const UOp* s : node->src) bits |= meeting.In(s);
      if (bits == 0) continue;
      meeting.sums_in[node] = bits;
      if (is_loop) continue;
      for (const UOp* s : node->src) {
        const uint64_t of_source = meeting.In(s);
        if (of_source != 0 && of_source != bits) meeting.last[of_source].insert(s);
      }
    }
    return meeting;
  }

  // Finds for each sum what could be stored of it: what all that the kernel computes of it is
  // computed from, in as few bytes as possible; of two with as many bytes the one that has more
  // computed. Returns false where one has no such value, or none with as few elements as `value`:
  // the kernel computes them for these alone, where only some rows of what sums meet in are read.
  static bool FindStored(const UOp* value, const Meeting& meeting, std::vector<Sum>& sums) {
    for (size_t i = 0; i < sums.size(); ++i) {
      const auto found = meeting.last.find(uint64_t{1} << i);
      if (found == meeting.last.end()) return false;
      if (found->second.size() == 1)
        sums[i].stored = Smallest(*found->second.begin(), meeting);
      else if (sums[i].of.size() == 1)
        sums[i].stored = sums[i].of[0];
      else
        return false;
      if (sums[i].stored == value || Elements(sums[i].stored) == 0 ||
          Elements(sums[i].stored) > Elements(value))
        return false;
    }
    return true;
  }

  // The sums in an order in which each is added to, or multiplied by, the result of those before it
  // and of nothing else (what is read twice is in memory already): each is to store that result
  // with its own, and the last nothing. So two of these results are in memory at a time. None where
  // the sums do not meet like this.
  static std::vector<Sum> ChainOf(const UOp* value, const Computed& computed,
                                  const Meeting& meeting, const std::vector<Sum>& sums) {
    if (sums.size() < 3) return {};
    std::vector<Sum> chain;
    uint64_t left = ~uint64_t{0} >> (64 - sums.size());
    const UOp* stored = nullptr;
    while (chain.size() + 1 < sums.size()) {
      bool is_found = false;
      for (size_t i = sums.size(); i-- > 0 && !is_found;) {
        const uint64_t bit = uint64_t{1} << i;
        if ((left & bit) == 0) continue;
        const auto found = meeting.last.find(left & ~bit);
        if (found == meeting.last.end() || found->second.size() != 1) continue;
        chain.push_back({sums[i].multiplications, sums[i].of, stored});
        stored = Smallest(*found->second.begin(), meeting);
        left &= ~bit;
        is_found = stored != value && Elements(stored) <= Elements(value) &&
                   Bytes(stored) <= computed.bytes;
        if (!is_found) return {};
      }
      if (!is_found) return {};
    }
    for (size_t i = 0; i < sums.size(); ++i)
      if ((left >> i & 1) != 0) chain.push_back({sums[i].multiplications, sums[i].of, stored});
    std::reverse(chain.begin(), chain.end());
    return chain;
  }

  // From `top` down, as long as one source alone has sums in it. Elements that the kernel does not
  // need would be computed for nothing.
  static const UOp* Smallest(const UOp* top, const Meeting& meeting) {
    const UOp* best = top;
    for (const UOp* node = top; node != nullptr;) {
      const UOp* below = nullptr;
      int count = 0;
      for (const UOp* s : node->src) {
        if (meeting.In(s) == 0 || s == below) continue;
        below = s;
        ++count;
      }
      if (count != 1) break;
      if (Elements(below) <= Elements(best) &&
          (Bytes(below) < Bytes(best) || (Bytes(below) == Bytes(best) && IsMovement(best->op))))
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
    const size_t largest = LargestOf(sums);
    std::vector<Kernel> parts;
    double saved = 0, cost = 0;
    const auto store = [&](const Sum& sum, LoweredKernel lowered) {
      cost += CostOf(sum);
      parts.push_back({sum.stored, std::move(lowered)});
    };
    for (size_t i = 0; i < sums.size(); ++i) {
      if (i == largest) continue;
      OB_ASSIGN_OR_RETURN(LoweredKernel alone, Lowered(sums[i].stored));
      if (units_.Computes(graph_, alone.ast)) saved += sums[i].multiplications;
      store(sums[i], std::move(alone));
    }
    OB_ASSIGN_OR_RETURN(LoweredKernel left, Lowered(value, parts));
    saved += sums[largest].multiplications;
    if (!units_.Computes(graph_, left.ast)) {
      OB_ASSIGN_OR_RETURN(LoweredKernel alone, Lowered(sums[largest].stored));
      if (!units_.Computes(graph_, alone.ast)) return std::vector<Kernel>{};
      store(sums[largest], std::move(alone));
      OB_ASSIGN_OR_RETURN(left, Lowered(value, parts));
    }
    if (!Pays(saved, cost) || !AreFirst(parts)) return std::vector<Kernel>{};
    return Stored(value, std::move(parts), std::move(left));
  }

  // The kernels of a chain (ChainOf): each loads what the one before it stores. None unless a
  // matrix unit computes each.
  absl::StatusOr<std::vector<Kernel>> Chained(const UOp* value, const std::vector<Sum>& chain) {
    std::vector<Kernel> parts;
    for (const Sum& sum : chain) {
      const UOp* const result = sum.stored == nullptr ? value : sum.stored;
      if (result != value && before_.contains(result)) return std::vector<Kernel>{};
      OB_ASSIGN_OR_RETURN(LoweredKernel kernel, Lowered(result, parts));
      if (!units_.Computes(graph_, kernel.ast)) return std::vector<Kernel>{};
      parts.push_back({result, std::move(kernel)});
    }
    LoweredKernel last = std::move(parts.back().lowered);
    parts.pop_back();
    return Stored(value, std::move(parts), std::move(last));
  }

  Graph& graph_;
  Choice& choice_;
  const absl::flat_hash_set<const UOp*>& never_;
  const double kernel_bytes_, of_stored_;
  MatrixUnitKernels& units_;
  Nodes before_;  // computed by the kernels so far
};

}  // namespace

bool MatrixUnitKernels::Computes(Graph& graph, const UOp* ast) {
  if (const auto known = known_.find(ast); known != known_.end()) return known->second;
  if (!AreAsked()) return false;
  nodes_left_ -= static_cast<int64_t>(PostOrder(ast).size());
  const UOp* const kernel = tf32_ && SumsProductsOfF32(ast) ? WithTf32(graph, ast) : ast;
  return known_[ast] = nodes_left_ > 0 && uses_matrix_unit_(kernel);
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
