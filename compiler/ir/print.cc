#include "compiler/ir/print.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/accessors.h"

namespace outboard {
namespace {

std::string Text(std::string_view view) { return std::string(view); }

const char* Infix(Op op) {
  switch (op) {
    case Op::kAdd: return " + ";
    case Op::kMul: return " * ";
    case Op::kFDiv:
    case Op::kIDiv: return " / ";
    case Op::kMod: return " % ";
    case Op::kCmpLt: return " < ";
    case Op::kCmpNe: return " != ";
    case Op::kCmpEq: return " == ";
    case Op::kAnd: return " & ";
    case Op::kOr: return " | ";
    case Op::kXor: return " ^ ";
    case Op::kShl: return " << ";
    case Op::kShr: return " >> ";
    default: return nullptr;
  }
}

std::string ConstToString(const UOp& node) {
  return IsFloat(node.dtype) ? absl::StrCat(node.float_value()) : absl::StrCat(node.arg[0]);
}

// Bounded by depth and length: for people, so a long expression is cut.
void Write(const UOp& node, int depth, size_t length_max, std::string& out) {
  if (out.size() > length_max || depth > 64) {
    out += "...";
    return;
  }
  const auto source = [&](size_t i) { Write(*node.src[i], depth + 1, length_max, out); };
  if (node.op == Op::kConst) {
    out += ConstToString(node);
  } else if (node.op == Op::kVar) {
    if (IsRank(&node)) {
      out += "rank";
    } else {
      absl::StrAppend(&out, "n", node.arg[0]);
    }
  } else if (node.op == Op::kRange) {
    absl::StrAppend(&out, node.arg[2] == static_cast<int64_t>(RangeKind::kReduce) ? "k" : "r",
                    node.arg[0]);
  } else if (node.op == Op::kGlobal) {
    absl::StrAppend(&out, "g", node.arg[0]);
  } else if (node.op == Op::kIndex) {
    source(0);
    out += "[";
    source(1);
    out += "]";
  } else if (node.op == Op::kLoad && node.src.size() == 1) {
    source(0);
  } else if (const char* infix = Infix(node.op)) {
    out += "(";
    source(0);
    out += infix;
    source(1);
    out += ")";
  } else {
    absl::StrAppend(&out, Text(Name(node.op)));
    if (node.op == Op::kCast || node.op == Op::kBitcast)
      absl::StrAppend(&out, ":", Text(Name(node.dtype)));
    out += "(";
    for (size_t i = 0; i < node.src.size(); ++i) {
      if (i) out += ", ";
      source(i);
    }
    out += ")";
  }
}

std::string GroupToString(const UOp& node) {
  const CollectiveOf group(&node);
  return absl::StrCat(" of ", group.count(), " ranks, stride ", group.stride());
}

std::string ArgToString(const UOp& node) {
  if (node.arg.empty()) return "";
  switch (node.op) {
    case Op::kConst: return " " + ConstToString(node);
    case Op::kReduce:
      return absl::StrCat(" ", Text(Name(static_cast<Op>(node.arg[0]))), " axes ",
                          absl::StrJoin(node.arg.subspan(1), ","));
    case Op::kLayout:
      return absl::StrCat(
          node.arg[1] < 0 ? std::string(" whole") : absl::StrCat(" cut dim ", node.arg[1]),
          node.arg[0] < 0 ? std::string(" of any mesh axis")
                          : absl::StrCat(" of mesh axis ", node.arg[0]));
    case Op::kUnshard: return absl::StrCat(" dim ", node.arg[0], GroupToString(node));
    case Op::kReduceScatter:
      return absl::StrCat(" ", Text(Name(static_cast<Op>(node.arg[0]))), " dim ", node.arg[1],
                          GroupToString(node));
    case Op::kAllReduce:
      return absl::StrCat(" ", Text(Name(static_cast<Op>(node.arg[0]))), GroupToString(node));
    case Op::kAllToAll:
      return absl::StrCat(" cut dim ", node.arg[0], " join dim ", node.arg[1], GroupToString(node));
    case Op::kCopy: return absl::StrCat(" root ", node.arg[0], GroupToString(node));
    case Op::kReduceLoop: return absl::StrCat(" ", Text(Name(static_cast<Op>(node.arg[0]))));
    case Op::kReshape:
    case Op::kExpand:
    case Op::kIota: return "";  // the shape says it
    case Op::kParam:
    case Op::kBuffer: return absl::StrCat(" ", node.arg[0]);
    default:
      return absl::StrCat(" ", absl::StrJoin(node.arg, ",", [](std::string* out, int64_t a) {
                            absl::StrAppend(out,
                                            a == kSymbolicDim ? std::string("?") : absl::StrCat(a));
                          }));
  }
}

}  // namespace

std::string ShapeToString(ShapeView shape) {
  return absl::StrCat(
      "[",
      absl::StrJoin(shape, ", ",
                    [](std::string* out, const Dim& dim) {
                      absl::StrAppend(out, dim.is_const() ? absl::StrCat(dim.value())
                                                          : ExpressionToString(dim.expression()));
                    }),
      "]");
}

std::string NodeToString(const UOp* node) {
  std::string out = Text(Name(node->op));
  if (node->dtype != DType::kVoid)
    absl::StrAppend(&out, " ", Text(Name(node->dtype)), ShapeToString(node->shape));
  return out + ArgToString(*node);
}

std::string GraphToString(const UOp* root) {
  std::string out;
  absl::flat_hash_map<const UOp*, int> number;
  for (const UOp* node : PostOrder(root)) {
    const int id = static_cast<int>(number.size());
    number[node] = id;
    absl::StrAppend(&out, "%", id, " = ", NodeToString(node));
    for (const UOp* source : node->src) absl::StrAppend(&out, " %", number[source]);
    out += "\n";
  }
  return out;
}

std::string ExpressionToString(const UOp* node, size_t length_max) {
  std::string out;
  Write(*node, 0, length_max, out);
  return out;
}

}  // namespace outboard
