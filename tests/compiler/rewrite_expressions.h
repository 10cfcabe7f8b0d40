// Scalar expressions for the tests of rewrites: random ones, and their values over many assignments
// at once.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"
#include "compiler/reference/alu.h"

namespace outboard::test {

// Values of leaves (PARAM, VAR, RANGE), one a lane.
using Assignment = absl::flat_hash_map<const UOp*, reference::LaneBlock>;

// The values of a scalar expression of leaves, arithmetic, WHERE, CAST and BITCAST, by the
// arithmetic of the reference interpreter. LOADs read a leaf, the value of their GLOBAL, so a gate
// decides and the place does not matter; where `leaves` has no GLOBAL, an i64 one holds
// MemoryAt(place), and kNowhere outside of its elements.
inline constexpr int64_t kNowhere = -0x6e6f7768657265;
int64_t MemoryAt(int64_t place);
reference::LaneBlock Evaluate(const UOp* node, const Assignment& leaves, int64_t lanes);

// Every leaf under the roots.
std::vector<const UOp*> LeavesOf(std::vector<const UOp*> roots);

// Values in the bounds of each leaf: all of them, in every combination, where they are at most
// `lanes_max`; else random, corners first. Floats by random bits, with NaN, infinities and -0.
Assignment Assign(const std::vector<const UOp*>& leaves, int64_t lanes_max, std::mt19937_64& random,
                  int64_t* lanes);

// Empty where `before` and `after` agree for every lane: integers exactly, floats bit for bit but
// for NaN; else the leaves' values where they do not.
std::string Difference(const UOp* before, const UOp* after, int64_t lanes_max,
                       std::mt19937_64& random);

class RandomExpressions {
 public:
  RandomExpressions(Graph& graph, std::mt19937_64& random) : graph_(graph), random_(random) {}

  // An expression of `dtype` of at most `depth` operations on any path.
  const UOp* Make(DType dtype, int depth);
  // The same with this operation at the root, whose sources are of `operands`.
  const UOp* MakeOp(Op op, DType dtype, DType operands, int depth);
  const UOp* Leaf(DType dtype);
  const UOp* Constant(DType dtype);
  // An i64 expression as they come from shapes: ranges, sums of multiples, quotients and
  // remainders.
  const UOp* Index(int depth);

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  const UOp* Bool(int depth);

  Graph& graph_;
  std::mt19937_64& random_;
};

}  // namespace outboard::test
