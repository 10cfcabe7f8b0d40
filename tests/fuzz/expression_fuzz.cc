// Bytes as a scalar expression of variables with ranges, unknown values and gated loads. Whatever
// it is: what the simplifier makes of it has the same values wherever that is tried, is what the
// simplifier would make of it again, and every value lies within its node's bounds.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/rewrite/simplify.h"
#include "tests/compiler/rewrite_expressions.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/seeds.h"

using namespace outboard;

namespace {

constexpr int kNodesMax = 60;
constexpr int64_t kPoints = 512;

constexpr DType kTypes[] = {DType::kI64, DType::kI8,  DType::kU8,  DType::kBool, DType::kU64,
                            DType::kI32, DType::kU32, DType::kI16, DType::kF32,  DType::kF16};
constexpr Op kOps[] = {Op::kAdd,   Op::kMul,   Op::kIDiv, Op::kMod,  Op::kCmpLt,
                       Op::kCmpEq, Op::kCmpNe, Op::kMax,  Op::kAnd,  Op::kOr,
                       Op::kXor,   Op::kShl,   Op::kShr,  Op::kNeg,  Op::kTrunc,
                       Op::kFDiv,  Op::kWhere, Op::kCast, Op::kCast, Op::kLoad};

// A list of nodes, each over earlier ones: one byte chooses leaf or operation, the next ones what
// of.
class Maker {
 public:
  Maker(Graph& graph, test::ByteSource bytes) : graph_(graph), bytes_(bytes) {}

  const UOp* Make() {
    while (!bytes_.empty() && nodes_.size() < kNodesMax) {
      const UOp* const made = bytes_.OneIn(3) ? Leaf() : Operation();
      if (made != nullptr) nodes_.push_back(made);
    }
    return nodes_.empty() ? nullptr : nodes_.back();
  }

 private:
  DType Type() { return kTypes[bytes_.Below(std::size(kTypes))]; }

  int64_t Number() {
    const int small = bytes_.Byte();
    if (small < 200) return small - 70;
    static constexpr int64_t kLarge[] = {INT8_MIN,   INT8_MAX,  UINT8_MAX, INT32_MIN,    INT32_MAX,
                                         UINT32_MAX, INT64_MIN, INT64_MAX, INT64_MAX - 1};
    return kLarge[small % std::size(kLarge)];
  }

  const UOp* Leaf() {
    const DType type = Type();
    switch (bytes_.Below(4)) {
      case 0: {
        const int64_t number = Number();
        return IsFloat(type) ? ConstFloat(graph_, type, static_cast<double>(number))
                             : ConstInt(graph_, type, WrapTo(type, number));
      }
      case 1: return Param(graph_, 2 * static_cast<int64_t>(type) + bytes_.Below(2), type, {});
      case 2:
        return graph_.MakeChecked(Op::kRange, DType::kI64, {},
                                  {bytes_.Below(3), 1 + bytes_.Below(40), 0});
      default: {
        const int64_t low = bytes_.Byte() - 128;
        const UOp* const var = Var(graph_, bytes_.Below(3), low, low + bytes_.Byte());
        return Cast(graph_, var, type);
      }
    }
  }

  // The last node but a few.
  const UOp* Source() {
    return nodes_[nodes_.size() - 1 - bytes_.Below(static_cast<int>(nodes_.size()))];
  }
  // The same, in another type if need be.
  const UOp* SourceOf(DType type) { return Cast(graph_, Source(), type); }

  const UOp* Operation() {
    if (nodes_.empty()) return Leaf();
    const Op op = kOps[bytes_.Below(std::size(kOps))];
    const UOp* const first = Source();
    std::vector<const UOp*> src = {first};
    DType type = DType::kVoid;
    if (op == Op::kCast) {
      type = Type();
    } else if (op == Op::kLoad) {
      const UOp* const buffer =
          graph_.MakeChecked(Op::kGlobal, first->dtype, {}, {bytes_.Below(2), 8});
      const UOp* const place =
          graph_.MakeChecked(Op::kIndex, DType::kVoid, {buffer, SourceOf(DType::kI64)});
      src = {place, SourceOf(DType::kBool), first};
    } else if (op == Op::kWhere) {
      src = {SourceOf(DType::kBool), first, SourceOf(first->dtype)};
    } else if (!IsUnary(op)) {
      src.push_back(SourceOf(first->dtype));
      if (bytes_.OneIn(4)) std::swap(src[0], src[1]);
    }
    const auto made = graph_.Make(op, type, src);
    return made.ok() ? *made : nullptr;  // no such operation on this type
  }

  Graph& graph_;
  test::ByteSource bytes_;
  std::vector<const UOp*> nodes_;
};

[[noreturn]] void Fail(const char* what, const UOp* before, const std::string& detail) {
  const std::string text = GraphToString(before) + detail;
  internal::CheckFailed(__FILE__, __LINE__, what, text.c_str());
}

void CheckBounds(const UOp* root) {
  std::mt19937_64 random(1);
  int64_t points;
  const test::Assignment leaves = test::Assign(test::LeavesOf({root}), kPoints, random, &points);
  for (const UOp* node : PostOrder(root)) {
    if (IsFloat(node->dtype) || node->dtype == DType::kVoid || node->op == Op::kGlobal ||
        node->op == Op::kIndex)
      continue;
    const reference::LaneBlock values = test::Evaluate(node, leaves, points);
    const auto [least, most] = std::minmax_element(values.i.begin(), values.i.end());
    if (*least < node->vmin || *most > node->vmax) Fail("bounds", node, "a value is beyond them");
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  // Nothing of ours makes such bytes: a few lists of decisions that come to more than a leaf.
  std::vector<std::string> seeds;
  std::mt19937_64 random(1);
  for (int i = 0; i < 40; ++i) {
    std::string seed(20 + 4 * i, '\0');
    for (char& byte : seed) byte = static_cast<char>(random());
    seeds.push_back(seed);
  }
  test::WriteSeeds(*argc, *argv, seeds);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Graph graph;
  const UOp* const before = Maker(graph, test::ByteSource(data, size)).Make();
  if (before == nullptr) return 0;
  CheckBounds(before);
  RewriteStats stats;
  const UOp* const after = Simplify(graph, before, &stats);
  if (stats.stopped) Fail("the rules went on for ever", before, "");
  std::mt19937_64 random(size);
  const std::string difference = test::Difference(before, after, kPoints, random);
  if (!difference.empty()) Fail("other values", before, difference);
  if (const UOp* again = Simplify(graph, after); again != after)
    Fail("not canonical", before, GraphToString(after) + "became\n" + GraphToString(again));
  return 0;
}
