#include "compiler/rewrite/result.h"

#include <array>
#include <bit>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/rules/fold.h"

namespace outboard {
namespace {

using Kind = PatternNode::Kind;

// A bound name somewhere under `at`: comparisons have the type of what they are made of.
DType TypeUnder(const Pattern& pattern, int at, const Match& match) {
  const PatternNode& p = pattern.nodes[at];
  if (p.name >= 0) return match.bound[p.name]->dtype;
  DType found = DType::kVoid;
  for (int i = 0; i < p.source_count && found == DType::kVoid; ++i)
    found = TypeUnder(pattern, p.source[i], match);
  return found;
}

int64_t FoldAt(const Pattern& pattern, int at, const Match& match, DType dtype) {
  const PatternNode& p = pattern.nodes[at];
  if (p.kind == Kind::kInt) return WrapTo(dtype, p.number);
  if (p.kind == Kind::kConstName) return ConstantOf(match.bound[p.name])->int_value();
  OB_CHECK(p.kind == Kind::kOp);
  const int64_t a = FoldAt(pattern, p.source[0], match, dtype);
  const int64_t b = p.source_count > 1 ? FoldAt(pattern, p.source[1], match, dtype) : 0;
  const auto folded = FoldInt(p.op, dtype, a, b);
  OB_CHECK(folded.has_value());
  return *folded;
}

// `dtype` is the type that the place asks for; kVoid where the place leaves it open.
const UOp* BuildAt(Graph& graph, const Pattern& pattern, int at, const Match& match, DType dtype) {
  const PatternNode& p = pattern.nodes[at];
  const auto constant = [&](const UOp* scalar) { return Full(graph, scalar, match.root->shape); };
  switch (p.kind) {
    case Kind::kName:
    case Kind::kConstName: return match.bound[p.name];
    case Kind::kInt: return constant(ConstOf(graph, dtype, static_cast<double>(p.number)));
    case Kind::kFloatBits:
      return constant(ConstFloat(graph, dtype, std::bit_cast<double>(p.number)));
    case Kind::kFold:
      return constant(ConstInt(graph, dtype, FoldAt(pattern, p.source[0], match, dtype)));
    default: break;
  }
  OB_CHECK(p.kind == Kind::kOp);
  const DType wanted = IsCompare(p.op) ? TypeUnder(pattern, at, match) : dtype;
  std::array<const UOp*, 3> src;
  for (int i = 0; i < p.source_count; ++i) {
    const bool gate = (p.op == Op::kWhere && i == 0) || (p.op == Op::kLoad && i == 1);
    src[i] = BuildAt(graph, pattern, p.source[i], match, gate ? DType::kBool : wanted);
  }
  return graph.MakeChecked(p.op, p.op == Op::kCast ? dtype : DType::kVoid,
                           Sources(src.data(), p.source_count));
}

}  // namespace

const UOp* BuildResult(Graph& graph, const Pattern& result, const Match& match) {
  return BuildAt(graph, result, result.size - 1, match, match.root->dtype);
}

}  // namespace outboard
