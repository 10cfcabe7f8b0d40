#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/lazy/node_expr.h"
#include "client/ops/shape/shape.h"

namespace outboard {

using internal::DimsToString;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

namespace {

using Names = std::vector<std::string>;
constexpr char kDots[] = "...";

// The names that one axis is made of: one, or those of a parenthesis, which may be none.
struct Group {
  Names names;
  bool is_closed;  // in parentheses
};
using Side = std::vector<Group>;

class Formula {
 public:
  Formula(const NodeBuilder& rec, std::string_view text) : rec_(rec), text_(text) {
    const Names sides = absl::StrSplit(std::string(text), "->");
    if (sides.size() != 2) Refuse("it needs one arrow");
    from = SideOf(sides[0]);
    to = SideOf(sides[1]);
    Names left = Flat(from), right = Flat(to);
    std::sort(left.begin(), left.end());
    std::sort(right.begin(), right.end());
    if (left != right) Refuse("the names of its sides differ");
    if (std::adjacent_find(left.begin(), left.end()) != left.end()) Refuse("a name stands twice");
  }

  [[noreturn]] void Refuse(const std::string& why) const {
    rec_.Invalid(absl::StrCat("rearrange \"", std::string(text_), "\": ", why), Mistake::kCheck);
  }

  static Names Flat(const Side& side) {
    Names names;
    for (const Group& group : side)
      names.insert(names.end(), group.names.begin(), group.names.end());
    return names;
  }

  // Puts as many names in place of the dots as x has axes that are not named.
  void SpellDots(int rank) {
    const auto has_dots = [](const Group& group) {
      return std::find(group.names.begin(), group.names.end(), kDots) != group.names.end();
    };
    const auto dots = std::find_if(from.begin(), from.end(), has_dots);
    if (dots == from.end()) return;
    if (dots->is_closed) Refuse("dots in parentheses on the left");
    const int count = rank - static_cast<int>(from.size()) + 1;
    for (Side* side : {&from, &to}) {
      Side spelt;
      for (const Group& group : *side) {
        Names names;
        for (const std::string& name : group.names) {
          if (name != kDots) names.push_back(name);
          for (int i = 0; name == kDots && i < count; ++i) names.push_back(absl::StrCat(kDots, i));
        }
        if (group.is_closed || !has_dots(group))
          spelt.push_back({names, group.is_closed});
        else
          for (const std::string& name : names) spelt.push_back({{name}, false});
      }
      *side = spelt;
    }
  }

  Side from, to;

 private:
  bool IsName(const std::string& word) const {
    const auto is_part = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
    return word == kDots || (std::all_of(word.begin(), word.end(), is_part) &&
                             !std::isdigit(word[0]) && word.front() != '_' && word.back() != '_');
  }

  Side SideOf(const std::string& text) const {
    const std::string spaced =
        absl::StrReplaceAll(text, {{"(", " ( "}, {")", " ) "}, {"\u2026", kDots}, {"\t", " "}});
    Side side;
    bool is_open = false;
    for (const std::string& word : Names(absl::StrSplit(spaced, ' ', absl::SkipEmpty()))) {
      if (word == "(" || word == ")") {
        if (is_open == (word == "(")) Refuse("its parentheses do not match");
        is_open = word == "(";
        if (is_open) side.push_back({{}, true});
      } else if (word == "1") {
        if (!is_open) side.push_back({{}, true});
      } else if (!IsName(word)) {
        Refuse(absl::StrCat("\"", word, "\" is no name"));
      } else if (is_open) {
        side.back().names.push_back(word);
      } else {
        side.push_back({{word}, false});
      }
    }
    if (is_open) Refuse("its parentheses do not match");
    return side;
  }

  const NodeBuilder& rec_;
  std::string_view text_;
};

// The lengths of all names, from those of the axes and those that are given.
std::map<std::string, int64_t> LengthsOf(const Formula& f, const NodeExpr& x,
                                         std::map<std::string, int64_t> lengths) {
  const Names names = Formula::Flat(f.from);
  for (const auto& [name, length] : lengths) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      f.Refuse(absl::StrCat("it has no axis ", name));
    if (length < 0) f.Refuse(absl::StrCat("a length of ", length, " for ", name));
  }
  for (size_t axis = 0; axis < f.from.size(); ++axis) {
    const int64_t length = x.Length(static_cast<int64_t>(axis));
    int64_t known = 1;
    const std::string* open = nullptr;
    for (const std::string& name : f.from[axis].names) {
      if (const auto given = lengths.find(name); given != lengths.end()) {
        if (__builtin_mul_overflow(known, given->second, &known)) f.Refuse("the lengths overflow");
      } else if (open == nullptr) {
        open = &name;
      } else {
        f.Refuse(absl::StrCat("neither ", *open, " nor ", name, " has a length"));
      }
    }
    if (open == nullptr ? known != length : known == 0 || length % known != 0)
      f.Refuse(
          absl::StrCat("axis ", axis, " of ", DimsToString(x->shape), " does not come to ", known));
    if (open != nullptr) lengths[*open] = length / known;
  }
  return lengths;
}

}  // namespace

Tensor rearrange(const Tensor& tensor, std::string_view formula,
                 const std::map<std::string, int64_t>& sizes, At at) {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, tensor);
  Formula f(rec, formula);
  f.SpellDots(x->rank());
  if (f.from.size() != x->shape.size())
    f.Refuse(absl::StrCat("it names ", f.from.size(), " axes of ", DimsToString(x->shape)));
  const std::map<std::string, int64_t> lengths = LengthsOf(f, x, sizes);
  const Names left = Formula::Flat(f.from), right = Formula::Flat(f.to);
  Shape apart, joined;
  std::vector<int64_t> order;
  for (const std::string& name : left) apart.emplace_back(lengths.at(name));
  for (const std::string& name : right)
    order.push_back(std::find(left.begin(), left.end(), name) - left.begin());
  for (const Group& group : f.to) {
    int64_t length = 1;
    for (const std::string& name : group.names) length *= lengths.at(name);
    joined.emplace_back(length);
  }
  return TensorOf(x.Reshape(apart).Permute(order).Reshape(joined));
}

}  // namespace outboard
