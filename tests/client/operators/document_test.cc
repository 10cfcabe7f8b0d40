// docs/operators.md is the table for people. It is written again by
//
//   OUTBOARD_UPDATE=1 build/tests/operator_document_test
//
// and reviewed as a diff.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/dtype.h"
#include "tests/client/operators/table.h"
#include "tests/support/paths.h"

namespace outboard::operators {
namespace {

constexpr char kHead[] = R"(# Every operator

Written from the table that `tests/client/operators` runs: each line is computed on the reference
interpreter and on the compiler for every type it names, against plain loops, and its gradient
against central differences. What an operation means to the last corner is in `semantics.md`.

Floats are f8e4m3, f8e5m2, f16, bf16, f32 and f64; integers are of 8 to 64 bits with and without a
sign. Operands of different types promote: bool < integers < floats; a number takes the tensor's
type, unless a fraction meets an integer (then f32). u64 and a signed integer become f32, which
rounds what has more than 24 bits; comparisons of the two are exact. Another type than the named
ones is INVALID_ARGUMENT where the operator is written. A result "as x" has the type of the
operands; "float" is that of the operands, or f32 where they are no floats; "sum" is that of the
operands, or 32 bits where they are narrower integers or bool.

An axis of -1 is the last one; axes that are left out are all of them. Errors are thrown as
`outboard::Error` with the line of the program that asked, before anything is sent; they are
INVALID_ARGUMENT where no other code is named.
)";

std::string TypeWords(const std::set<DType>& types) {
  for (const auto& [kind, words] :
       std::vector<std::pair<Types, const char*>>{{Types::kAll, "all"},
                                                  {Types::kNumbers, "all but bool"},
                                                  {Types::kFloats, "floats"},
                                                  {Types::kIntegers, "integers"},
                                                  {Types::kIntegersAndBool, "integers, bool"},
                                                  {Types::kBool, "bool"}}) {
    bool same = true;
    for (int code = 1; code < kDTypeCount; ++code)
      same =
          same && Has(kind, static_cast<DType>(code)) == types.contains(static_cast<DType>(code));
    if (same) return words;
  }
  return "some";
}

std::string YieldWords(const std::set<Yields>& yields) {
  if (yields.size() > 1) return "as asked";
  switch (*yields.begin()) {
    case Yields::kSame: return "as x";
    case Yields::kFloat: return "float";
    case Yields::kBool: return "bool";
    case Yields::kSum: return "sum";
    case Yields::kI32: return "i32";
    case Yields::kU32: return "u32";
    default: return "f32";
  }
}

std::string ErrorWords(const std::string& name) {
  std::vector<std::string> words;
  for (const Mistake& mistake : AllMistakes()) {
    if (mistake.name != name) continue;
    words.push_back(mistake.what);
    if (mistake.code != absl::StatusCode::kInvalidArgument)
      absl::StrAppend(&words.back(), " (", absl::StatusCodeToString(mistake.code), ")");
  }
  return absl::StrJoin(words, "; ");
}

std::string Code(const std::string& text) {
  return absl::StrCat("`", absl::StrReplaceAll(text, {{"|", "\\|"}}), "`");
}

std::string Document() {
  std::string text = kHead;
  std::set<std::string> named;
  for (const Group& group : AllGroups()) {
    absl::StrAppend(&text, "\n## ", group.title,
                    "\n\n| operator | shapes | types | result | gradient | errors |\n"
                    "| --- | --- | --- | --- | --- | --- |\n");
    std::set<std::string> done;
    for (const Row& row : group.rows) {
      if (!done.insert(row.form).second) continue;
      std::set<DType> types;
      std::set<Yields> yields;
      bool gradient = false;
      for (const Row& other : group.rows) {
        if (other.form != row.form) continue;
        for (int code = 1; code < kDTypeCount; ++code)
          if (Has(other.types, static_cast<DType>(code))) types.insert(static_cast<DType>(code));
        yields.insert(other.yields);
        gradient = gradient || other.gradient == Gradient::kYes;
      }
      absl::StrAppend(&text, "| ", Code(row.form), " | ", row.shapes, " | ", TypeWords(types),
                      " | ", YieldWords(yields), " | ", gradient ? "yes" : "", " | ",
                      named.insert(row.name).second ? ErrorWords(row.name) : "", " |\n");
    }
  }
  absl::StrAppend(&text,
                  "\n## Values, gradients and state\n\n| function | errors |\n| --- | --- |\n");
  for (const Mistake& mistake : AllMistakes())
    if (named.insert(mistake.name).second)
      absl::StrAppend(&text, "| ", Code(mistake.name), " | ", ErrorWords(mistake.name), " |\n");
  return text;
}

TEST(OperatorDocument, IsTheTable) {
  const std::string path = test::SourceFile("docs/operators.md");
  const std::string wanted = Document();
  if (std::getenv("OUTBOARD_UPDATE") != nullptr) std::ofstream(path) << wanted;
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_TRUE(text.str() == wanted)
      << "docs/operators.md is not the table: OUTBOARD_UPDATE=1 build/tests/operator_document_test";
}

}  // namespace
}  // namespace outboard::operators
