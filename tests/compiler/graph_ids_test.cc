// The ids of graphs that the compiler writes itself, as recorded in graph_ids.txt: gradients (of
// the table of gradient_cases.h in three types and to the second order, of symbolic shapes, of
// random graphs) and transcendental operations as arithmetic. A change of how the rules are written
// leaves every id as it is. Where another graph is meant, OUTBOARD_UPDATE=1 writes the ids anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/gradient/gradient.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/print.h"
#include "compiler/kernel/decompose_math.h"
#include "tests/compiler/gradient_cases.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/random_graph.h"
#include "tests/support/paths.h"

namespace outboard::test {
namespace {

using Xs = std::vector<const UOp*>;

std::string IdOf(const UOp* sink) { return ValueOrDie(EncodeGraph(sink)).id.ToHex().substr(0, 16); }

const UOp* SumOfSquares(Graph& g, const Xs& values) {
  const UOp* sum = nullptr;
  for (const UOp* value : values) {
    std::vector<int64_t> axes;
    for (int i = 0; i < value->rank(); ++i) axes.push_back(i);
    const UOp* const part = Reshape(g, Reduce(g, Op::kAdd, Mul(g, value, value), axes), {});
    sum = sum == nullptr ? part : Add(g, sum, part);
  }
  return sum;
}

// The gradients with respect to `xs`, and those of the sum of their squares.
void AddGradients(Graph& g, const std::string& name, const UOp* y, const Xs& xs,
                  std::map<std::string, std::string>& ids) {
  const UOp* const dy = Param(g, 100, y->dtype, y->shape);
  const Xs first = ValueOrDie(Gradient(g, y, dy, xs));
  ids[name + "/first"] = IdOf(Sink(g, first));
  const Xs second = ValueOrDie(Gradient(g, SumOfSquares(g, first), nullptr, xs));
  ids[name + "/second"] = IdOf(Sink(g, second));
}

void AddTable(std::map<std::string, std::string>& ids) {
  for (const GradientCase& c : GradientCases()) {
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16}) {
      Graph g;
      Xs xs;
      for (const auto& dims : c.shapes)
        xs.push_back(
            Param(g, static_cast<int64_t>(xs.size()), dtype, Shape(dims.begin(), dims.end())));
      AddGradients(g, absl::StrCat("gradient/", c.name, "/", std::string(Name(dtype))),
                   c.build(g, xs), xs, ids);
    }
  }
}

// Corners that the table does not reach.
void AddCorners(std::map<std::string, std::string>& ids) {
  Graph g;
  const UOp *const x = Param(g, 0, DType::kF32, {3, 4}), *const w =
                                                             Param(g, 1, DType::kF32, {3, 4});
  const auto full = [&](double value) { return Full(g, ConstOf(g, x->dtype, value), x->shape); };
  const auto add = [&](const char* name, const UOp* y, const Xs& xs) {
    AddGradients(g, absl::StrCat("gradient/corner ", name), y, xs, ids);
  };
  add("negated expand", Alu(g, Op::kNeg, Expand(g, Reduce(g, Op::kAdd, x, {1}), {3, 4})), {x});
  add("one factor of needs", Mul(g, x, w), {w});
  add("divisor alone", Alu(g, Op::kFDiv, x, w), {w});
  add("constant first", Alu(g, Op::kMax, full(0), x), {x});
  add("constant branch", Where(g, Alu(g, Op::kCmpLt, x, w), full(3), x), {x});
  add("times one", Mul(g, full(1), Alu(g, Op::kMax, x, full(1))), {x});
  add("cast", Cast(g, Cast(g, Mul(g, x, x), DType::kF16), DType::kF64), {x});
  add("product of odd length", Reduce(g, Op::kMul, Mul(g, x, w), {0}), {x, w});
  add("over no axes",
      g.MakeChecked(Op::kReduce, DType::kVoid, {Mul(g, x, x)}, {static_cast<int64_t>(Op::kAdd)}),
      {x});
  const UOp* const n = Var(g, 0, 1, 6);
  const UOp* const rows = Param(g, 2, DType::kF32, {Dim(n), 2});
  const UOp* const square = Mul(g, rows, rows);
  add("symbolic pad", Pad(g, square, {2, 1, 0, 0}), {rows});
  add("symbolic largest", Expand(g, Reduce(g, Op::kMax, square, {0}), rows->shape), {rows});
  const UOp* const cache = Param(g, 3, DType::kF32, {8});
  const UOp* const length = Add(g, n, ConstIndex(g, 1));
  add("symbolic shrink", Shrink(g, Mul(g, cache, cache), {Dim(n), Dim(length)}), {cache});
}

// One id for ten seeds: of the gradients of every float result with respect to every float input,
// and of the message where there is none.
void AddRandom(std::map<std::string, std::string>& ids) {
  int differentiated = 0;
  for (int block = 0; block < 20; ++block) {
    std::string all;
    for (int i = 0; i < 10; ++i) {
      const RandomCase c = MakeRandomCase(10 * block + i);
      Graph& g = *c.graph;
      Xs wrt;
      for (const UOp* node : PostOrder(c.sink, /*into_functions=*/false))
        if (node->op == Op::kParam && IsFloat(node->dtype)) wrt.push_back(node);
      for (const UOp* y : c.sink->src) {
        if (!IsFloat(y->dtype) || wrt.empty()) continue;
        const auto gradients = Gradient(g, y, Param(g, 4000, y->dtype, y->shape), wrt);
        absl::StrAppend(&all, gradients.ok() ? IdOf(Sink(g, *gradients))
                                             : absl::StatusCodeToString(gradients.status().code()));
        differentiated += gradients.ok();
      }
    }
    ids[absl::StrCat("gradient/random from ", 10 * block)] =
        IdOfEncoding(all).ToHex().substr(0, 16);
  }
  EXPECT_GT(differentiated, 100);
}

void AddTranscendentals(std::map<std::string, std::string>& ids) {
  for (const Op op : {Op::kExp, Op::kExp2, Op::kLog, Op::kLog2, Op::kSin, Op::kCos, Op::kTanh}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kF64}) {
      Graph g;
      const UOp* const r = Range(g, 0, 100);
      const UOp* const y = Alu(g, op, LoadAt(g, 1, dtype, 100, r));
      const UOp* const sink = Sink(g, {StoreAt(g, 0, 100, r, y)});
      ids[absl::StrCat("arithmetic/", std::string(Name(op)), "/", std::string(Name(dtype)))] =
          IdOf(codegen::DecomposeTranscendentals(g, sink));
    }
  }
}

TEST(GraphIds, AreThoseRecorded) {
  std::map<std::string, std::string> ids, recorded;
  AddTable(ids);
  AddCorners(ids);
  AddRandom(ids);
  AddTranscendentals(ids);
  if (std::getenv("OUTBOARD_UPDATE") != nullptr) {
    std::ofstream file(test::SourceFile("tests/compiler/graph_ids.txt"));
    for (const auto& [name, id] : ids) file << id << " " << name << "\n";
    return;
  }
  std::ifstream file(test::SourceFile("tests/compiler/graph_ids.txt"));
  for (std::string line; std::getline(file, line);)
    if (line.size() > 17) recorded[line.substr(17)] = line.substr(0, 16);
  EXPECT_GT(recorded.size(), 200u);
  for (const auto& [name, id] : ids) EXPECT_EQ(id, recorded[name]) << name;
  EXPECT_EQ(ids.size(), recorded.size());
}

}  // namespace
}  // namespace outboard::test
