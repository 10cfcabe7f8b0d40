// Runs rewrite_golden.h.
#include "tests/compiler/rewrite_golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"

namespace outboard {
namespace {

struct Name {
  DType dtype = DType::kVoid;
  const UOp* free = nullptr;     // unbounded, or as the block bounds it
  const UOp* bounded = nullptr;  // as the line bounds it
};

class Block {
 public:
  Block(const std::string& header, int line) : line_(line) {
    std::istringstream in(header);
    std::string word, last;
    in >> word;
    same = word == "same:";
    while (in >> word) {
      if (word == "in") {
        in >> word;
        Name& name = names_.at(last);
        name.free = name.bounded = Bounded(name, word, 0);
        continue;
      }
      const size_t colon = word.find(':');
      last = word.substr(0, colon);
      Name& name = names_[last];
      name.dtype = DTypeFromName(word.substr(colon + 1)).value();
      name.free = name.bounded = Param(g, static_cast<int64_t>(names_.size()), name.dtype, {});
      if (type_ == DType::kVoid) type_ = name.dtype;
    }
  }

  void Add(std::string text, int line) {
    for (auto& [unused, name] : names_) name.bounded = name.free;
    absl::flat_hash_map<const UOp*, const UOp*> back;
    if (const size_t where = text.find("where "); where != std::string::npos) {
      std::istringstream in(text.substr(where));
      std::string word, which, bounds;
      in >> word >> which >> word >> bounds;
      Name& name = names_.at(which);
      name.bounded = Bounded(name, bounds, 32);
      back[name.bounded] = name.free;
      text = text.substr(0, where);
    }
    in_ = std::istringstream(text);
    const UOp* const before = Parse(results_.empty() ? type_ : results_[0]->dtype);
    const UOp* const after = Simplify(g, before);
    EXPECT_EQ(Simplify(g, after), after) << "line " << line << ": not a fixed point";
    results_.push_back(Substitute(g, after, back));
    for (size_t i = 0; i + 1 < results_.size(); ++i) {
      if (same && i > 0) continue;
      EXPECT_EQ(results_[i] == results_.back(), same)
          << "line " << line << " of the block at line " << line_ << ": "
          << ExpressionToString(before) << "\nbecomes " << ExpressionToString(results_.back())
          << ", line " << i << " " << ExpressionToString(results_[i]);
    }
  }

  bool same = false;

 private:
  // A value of the name's type between the numbers of "a..b".
  const UOp* Bounded(const Name& name, const std::string& bounds, int64_t slot) {
    const size_t dots = bounds.find("..");
    slot += 1 + static_cast<int64_t>(std::distance(names_.begin(), names_.find(Of(name))));
    return Cast(
        g, Var(g, slot, std::stoll(bounds.substr(0, dots)), std::stoll(bounds.substr(dots + 2))),
        name.dtype);
  }
  std::string Of(const Name& name) const {
    for (const auto& [text, n] : names_)
      if (&n == &name) return text;
    return "";
  }

  std::string Word() {
    while (std::isspace(in_.peek())) in_.get();
    std::string word;
    if (in_.peek() == '(' || in_.peek() == ')') return word = static_cast<char>(in_.get());
    while (in_.peek() != EOF && !std::isspace(in_.peek()) && in_.peek() != '(' && in_.peek() != ')')
      word += static_cast<char>(in_.get());
    return word;
  }

  static Op OpOf(const std::string& text) {
    for (int code = 1; code < kOpCodeMax; ++code)
      if (Name_(static_cast<Op>(code)) == text) return static_cast<Op>(code);
    ADD_FAILURE() << "no operation " << text;
    return Op::kAdd;
  }
  static std::string Name_(Op op) { return std::string(outboard::Name(op)); }

  // A number takes `dtype`; where that is kVoid, nullptr is returned and the place is tried again
  // once it is known.
  const UOp* Number(const std::string& word, DType dtype) {
    if (word == "true" || word == "false") return ConstInt(g, DType::kBool, word == "true");
    if (dtype == DType::kVoid) return nullptr;
    return IsFloat(dtype) ? ConstFloat(g, dtype, std::stod(word))
                          : ConstInt(g, dtype, std::stoll(word));
  }

  const UOp* Parse(DType dtype) {
    const std::string word = Word();
    if (word != "(") {
      const auto found = names_.find(word);
      return found != names_.end() ? found->second.bounded : Number(word, dtype);
    }
    const std::string head = Word();
    const size_t colon = head.find(':');
    const Op op = OpOf(head.substr(0, colon));
    std::vector<const UOp*> src;
    std::vector<std::string> numbers;
    DType known = DType::kVoid;
    while (true) {
      while (std::isspace(in_.peek())) in_.get();
      if (in_.peek() == ')') break;
      const auto place = in_.tellg();
      const bool is_bool = (op == Op::kWhere && src.empty());
      const UOp* const source = Parse(is_bool ? DType::kBool : DType::kVoid);
      numbers.emplace_back();
      if (source == nullptr) {
        in_.seekg(place);
        numbers.back() = Word();
      } else if (!is_bool) {
        known = source->dtype;
      }
      src.push_back(source);
    }
    in_.get();
    if (known == DType::kVoid) known = dtype;
    for (size_t i = 0; i < src.size(); ++i)
      if (src[i] == nullptr) src[i] = Number(numbers[i], known);
    const DType type =
        colon == std::string::npos ? DType::kVoid : DTypeFromName(head.substr(colon + 1)).value();
    return g.MakeChecked(op, type, src);
  }

  Graph g;
  int line_;
  DType type_ = DType::kVoid;
  std::map<std::string, Name> names_;
  std::vector<const UOp*> results_;
  std::istringstream in_;
};

TEST(RewriteGolden, Blocks) {
  std::istringstream in(test::kGolden);
  std::string text;
  std::unique_ptr<Block> block;
  int blocks = 0;
  for (int line = 1; std::getline(in, text); ++line) {
    text = text.substr(0, text.find('#'));
    while (!text.empty() && std::isspace(text.back())) text.pop_back();
    if (text.empty()) continue;
    if (text[0] != ' ') {
      block = std::make_unique<Block>(text, line);
      ++blocks;
    } else {
      block->Add(text, line);
    }
  }
  EXPECT_GT(blocks, 20);
}

}  // namespace
}  // namespace outboard
