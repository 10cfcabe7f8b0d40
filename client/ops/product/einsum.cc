#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/lazy/node_expr.h"
#include "client/ops/elementwise/promote.h"
#include "client/ops/product/product.h"
#include "client/ops/shape/shape.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

namespace {

// Axes by name: letters, and for those of an ellipsis the numbers -n ... -1, so that the last ones
// of two operands are the same.
using Names = std::vector<int>;

bool Has(const Names& names, int name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Formula {
 public:
  Formula(const NodeBuilder& rec, std::string_view text, const std::vector<const UOp*>& operands)
      : rec_(rec), text_(text) {
    std::string bare(text);
    std::erase(bare, ' ');
    const std::vector<std::string> sides = absl::StrSplit(bare, "->");
    const std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
    if (sides.size() > 2) Refuse("it has several arrows");
    if (terms.size() != operands.size())
      Refuse(absl::StrCat("it has ", terms.size(), " operands, not ", operands.size()));
    for (size_t i = 0; i < terms.size(); ++i) {
      inputs.push_back(NamesOf(terms[i], operands[i]->rank(), true));
      if (inputs[i].size() != operands[i]->shape.size())
        Refuse(
            absl::StrCat("\"", terms[i], "\" for an operand of ", DimsToString(operands[i]->shape)),
            Mistake::kIndex);
    }
    if (sides.size() == 2) {
      output = NamesOf(sides[1], -1, false);
    } else {
      std::map<int, int> counts;
      for (const Names& names : inputs)
        for (const int name : names) ++counts[name];
      for (const auto& [name, count] : counts)
        if (name < 0 || count == 1) output.push_back(name);
    }
    for (size_t i = 0; i < output.size(); ++i) {
      if (std::count(output.begin(), output.end(), output[i]) > 1)
        Refuse("a letter stands twice on the right");
      if (std::none_of(inputs.begin(), inputs.end(),
                       [&](const Names& names) { return Has(names, output[i]); }))
        Refuse("a letter of the right is not on the left");
    }
  }

  [[noreturn]] void Refuse(const std::string& why, Mistake mistake = Mistake::kArgument) const {
    rec_.Invalid(absl::StrCat("einsum \"", std::string(text_), "\": ", why), mistake);
  }

  std::vector<Names> inputs;
  Names output;

 private:
  // `rank` is that of the operand; of the output it follows from the operands.
  Names NamesOf(std::string term, int rank, bool is_input) {
    Names names;
    const size_t dots = term.find("...");
    if (dots != std::string::npos) term.erase(dots, 3);
    const int hidden = is_input ? rank - static_cast<int>(term.size()) : hidden_;
    if (is_input && dots != std::string::npos) hidden_ = std::max(hidden_, hidden);
    for (size_t i = 0; i <= term.size(); ++i) {
      if (i == dots)
        for (int name = -hidden; name < 0; ++name) names.push_back(name);
      if (i == term.size()) break;
      if (!std::isalpha(static_cast<unsigned char>(term[i])))
        Refuse(absl::StrCat("'", term.substr(i, 1), "' is no letter"));
      names.push_back(term[i]);
    }
    return names;
  }

  const NodeBuilder& rec_;
  std::string_view text_;
  int hidden_ = 0;  // most axes of an ellipsis
};

// An operand or a product of some, with its axes in the order of the names.
struct Factor {
  NodeExpr node;
  Names names;
};

Factor WithoutRepeats(Factor x) {
  for (size_t i = 0; i < x.names.size(); ++i) {
    const auto again =
        std::find(x.names.begin() + static_cast<int64_t>(i) + 1, x.names.end(), x.names[i]);
    if (again == x.names.end()) continue;
    const int name = x.names[i];
    const int64_t other = again - x.names.begin();
    const Tensor kept = diagonal(TensorOf(x.node), 0, static_cast<int64_t>(i), other);
    x.names.erase(again);
    x.names.erase(x.names.begin() + static_cast<int64_t>(i));
    x.names.push_back(name);
    return WithoutRepeats({ExprOf(x.node.rec(), kept), x.names});
  }
  return x;
}

// The factor's axes in the order of `names`, with ones for those that it lacks.
NodeExpr Aligned(const Factor& x, const Names& names) {
  std::vector<int64_t> order;
  Shape dims;
  for (const int name : names) {
    const auto place = std::find(x.names.begin(), x.names.end(), name);
    dims.push_back(place == x.names.end() ? Dim(1) : x.node->shape[place - x.names.begin()]);
    if (place != x.names.end()) order.push_back(place - x.names.begin());
  }
  return x.node.Permute(order).Reshape(dims);
}

// Sums over the names that are not in `kept`.
Factor SummedTo(const Factor& x, const Names& kept) {
  std::vector<int64_t> axes;
  Names left;
  for (size_t i = 0; i < x.names.size(); ++i) {
    if (Has(kept, x.names[i]))
      left.push_back(x.names[i]);
    else
      axes.push_back(static_cast<int64_t>(i));
  }
  return {x.node.Sum(axes).Squeeze(axes), left};
}

}  // namespace

Tensor einsum(std::string_view formula, const std::vector<Tensor>& operands, At at) {
  const NodeBuilder rec(at);
  if (operands.empty()) rec.Invalid("einsum: no operands");
  std::vector<const UOp*> nodes;
  for (const Tensor& operand : operands) nodes.push_back(operand.NodeIn(rec));
  const Formula f(rec, formula, nodes);
  DType dtype = nodes[0]->dtype;
  std::map<int, Dim> lengths;
  for (size_t i = 0; i < nodes.size(); ++i) {
    dtype = Promote(dtype, nodes[i]->dtype);
    for (size_t axis = 0; axis < f.inputs[i].size(); ++axis) {
      const int name = f.inputs[i][axis];
      const Dim length = nodes[i]->shape[axis];
      const auto [known, is_new] = lengths.emplace(name, length);
      if (is_new || known->second == length) continue;
      const bool broadcasts = name < 0 && (length == Dim(1) || known->second == Dim(1));
      if (!broadcasts)
        f.Refuse(absl::StrCat("one axis has different lengths in ", DimsToString(nodes[i]->shape),
                              " and before"));
      if (known->second == Dim(1)) known->second = length;
    }
  }
  const DType wide = AccumulateType(SumType(dtype));
  const auto factor = [&](size_t i) {
    return WithoutRepeats({NodeExpr(rec, nodes[i]).Cast(wide), f.inputs[i]});
  };
  const auto needed_after = [&](size_t i) {
    Names names = f.output;
    for (size_t later = i + 1; later < nodes.size(); ++later)
      names.insert(names.end(), f.inputs[later].begin(), f.inputs[later].end());
    return names;
  };
  Factor product = factor(0);
  if (nodes.size() == 1) product = SummedTo(product, f.output);
  for (size_t i = 1; i < nodes.size(); ++i) {
    const Factor next = factor(i);
    // What is summed comes last, as in a product of matrices.
    const Names needed = needed_after(i);
    Names names;
    for (const bool wanted : {true, false})
      for (const Names* both : std::initializer_list<const Names*>{&product.names, &next.names})
        for (const int name : *both)
          if (Has(needed, name) == wanted && !Has(names, name)) names.push_back(name);
    Shape full;
    for (const int name : names) full.push_back(lengths.at(name));
    const NodeExpr a = Aligned(product, names).Broadcast(full);
    const NodeExpr b = Aligned(next, names).Broadcast(full);
    product = SummedTo({a * b, names}, needed);
  }
  Shape full;
  for (const int name : f.output) full.push_back(lengths.at(name));
  return TensorOf(Aligned(product, f.output).Expand(full).Cast(SumType(dtype)));
}

}  // namespace outboard
