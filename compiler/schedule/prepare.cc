#include "compiler/schedule/prepare.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"

namespace outboard::schedule {
namespace {

// One body being written out: the graph itself, or that of a function being called. Calls nest as
// deep as a client likes, so frames are a stack of ours.
struct Frame {
  std::vector<const UOp*> nodes;  // PostOrder, not into functions
  size_t next = 0;
  absl::flat_hash_map<const UOp*, const UOp*> made;
  const UOp* call = nullptr;  // the CALL, in the frame below, that this one stands for
};

class Preparer {
 public:
  explicit Preparer(Graph& graph) : graph_(graph) {}

  absl::StatusOr<const UOp*> Run(const UOp* sink) {
    std::vector<std::unique_ptr<Frame>> frames;
    frames.push_back(std::make_unique<Frame>());
    frames[0]->nodes = PostOrder(sink, /*into_functions=*/false);
    while (true) {
      Frame& frame = *frames.back();
      if (frame.next == frame.nodes.size()) {
        const UOp* const value = frame.made.at(frame.nodes.back());
        if (frames.size() == 1) return value;
        const UOp* const call = frame.call;
        frames.pop_back();
        frames.back()->made[call] = value;
        ++frames.back()->next;
        continue;
      }
      if (++visits_ > limits::kGraphNodesMax)
        return absl::ResourceExhaustedError(absl::StrCat(
            "with its calls written out the graph has over ", limits::kGraphNodesMax, " nodes"));
      const UOp* const node = frame.nodes[frame.next];
      if (node->op == Op::kFunction) {
        ++frame.next;
      } else if (node->op == Op::kCall) {
        frames.push_back(Enter(frame, node));
      } else {
        if (frame.made.contains(node)) {  // a PARAM of a function: its argument
          ++frame.next;
          continue;
        }
        OB_ASSIGN_OR_RETURN(frame.made[node], Make(frame, node));
        ++frame.next;
      }
    }
  }

 private:
  static std::unique_ptr<Frame> Enter(const Frame& caller, const UOp* call) {
    auto frame = std::make_unique<Frame>();
    const UOp& function = *call->src[0];
    frame->nodes = PostOrder(function.src[0], /*into_functions=*/false);
    frame->call = call;
    for (size_t i = 1; i < call->src.size(); ++i)
      frame->made[function.src[i]] = caller.made.at(call->src[i]);
    return frame;
  }

  absl::StatusOr<const UOp*> Make(Frame& frame, const UOp* node) {
    const auto source = [&](int i) { return frame.made.at(node->src[i]); };
    switch (node->op) {
      case Op::kDetach:
      case Op::kLayout: return source(0);
      case Op::kAssign: return source(1);
      case Op::kGetTuple: return source(0)->src[GetTupleOf(node).index()];
      default: break;
    }
    const int own = node->own_sources();
    std::vector<const UOp*> src;
    for (int i = 0; i < own; ++i) src.push_back(source(i));
    std::vector<int64_t> arg(node->arg.begin(), node->arg.end());
    int next = own;
    if (InfoOf(node->op).has_dims)
      for (int64_t& a : arg) {
        if (a != kSymbolicDim) continue;
        const UOp* const value = source(next++);
        if (value->vmin == value->vmax && !HasVar(value)) {
          a = value->vmin;
        } else {
          src.push_back(value);
        }
      }
    return graph_.Make(node->op, node->dtype, src, arg);
  }

  // A VAR of one value stays: a sum with it is another expression than one with the number, and a
  // RESHAPE compares them.
  bool HasVar(const UOp* scalar) {
    std::vector<const UOp*> open = {scalar};
    while (!open.empty()) {
      const UOp* const node = open.back();
      const size_t before = open.size();
      for (const UOp* source : node->src)
        if (!has_var_.contains(source)) open.push_back(source);
      if (open.size() > before) continue;
      open.pop_back();
      has_var_[node] = node->op == Op::kVar ||
                       std::ranges::any_of(node->src, [&](const UOp* s) { return has_var_.at(s); });
    }
    return has_var_.at(scalar);
  }

  Graph& graph_;
  int64_t visits_ = 0;
  absl::flat_hash_map<const UOp*, bool> has_var_;
};

}  // namespace

absl::StatusOr<const UOp*> Prepare(Graph& graph, const UOp* sink) {
  return Preparer(graph).Run(sink);
}

}  // namespace outboard::schedule
