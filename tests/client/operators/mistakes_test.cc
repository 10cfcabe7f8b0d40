// Every mistake of the table is named: code, the numbers that matter, the user's line; and no
// operator of the headers is missing from the table.
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "tests/client/client_test.h"
#include "tests/client/operators/table.h"
#include "tests/support/paths.h"

namespace outboard::operators {
namespace {

using MistakesTest = ClientTest;
using Names = std::set<std::string>;

constexpr int kLastRowLines = 3;  // at most

TEST_F(MistakesTest, AreNamedAtTheUsersLine) {
  const std::vector<Mistake>& mistakes = AllMistakes();
  for (size_t i = 0; i < mistakes.size(); ++i) {
    const Mistake& mistake = mistakes[i];
    SCOPED_TRACE(testing::Message()
                 << "mistakes.cc:" << mistake.line << ": " << mistake.name << ", " << mistake.what);
    const auto end = i + 1 < mistakes.size() ? mistakes[i + 1].line : mistake.line + kLastRowLines;
    try {
      mistake.statement();
      ADD_FAILURE() << "did not throw";
    } catch (const Error& error) {
      EXPECT_EQ(error.status().code(), mistake.code) << error.what();
      for (const std::string& word : mistake.words)
        EXPECT_TRUE(absl::StrContains(error.what(), word)) << error.what() << " lacks " << word;
      EXPECT_TRUE(absl::StrContains(error.what(), "mistakes.cc:")) << error.what();
      EXPECT_GE(static_cast<int>(error.location().line()), mistake.line) << error.what();
      EXPECT_LT(static_cast<int>(error.location().line()), end) << error.what();
    }
  }
}

std::string ReadSource(const std::string& path) {
  std::ifstream in(test::SourceFile(path));
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

Names Matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern, std::regex::multiline);
  Names names;
  for (std::sregex_iterator i(text.begin(), text.end(), regex), end; i != end; ++i)
    names.insert((*i)[1]);
  return names;
}

// What stands before the first parenthesis of each member's declaration.
Names Members(const std::string& text) {
  Names names;
  std::stringstream statements(std::regex_replace(text, std::regex("//[^\n]*"), ""));
  static const std::regex kName(R"((operator *[^\s\w(]+|[A-Za-z_]\w*)\()");
  for (std::string statement; std::getline(statements, statement, ';');) {
    std::smatch match;
    if (std::regex_search(statement, match, kName)) names.insert(match[1]);
  }
  return names;
}

// Functions and types at the first column.
Names Outside(const std::string& text) {
  Names names =
      Matches(text, R"(^[A-Za-z][\w:<>,]*[ &]+(?:[\w:<>,]+[ &]+)*(operator[^\s\w(]+|\w+)\()");
  names.merge(Matches(text, R"(^(?:struct|class|enum class) (\w+)(?: :[^;{]*)?\s*\{)"));
  return names;
}

Names Declared() {
  const std::string tensor = ReadSource("client/tensor/tensor.h");
  const size_t begin = tensor.find("class Tensor {"), end = tensor.find("// ---- for the library");
  EXPECT_LT(begin, end);
  Names names = Members(tensor.substr(begin, end - begin));
  names.erase("Tensor");  // the constructor
  names.merge(Outside(tensor));
  static constexpr const char* kHeaders[] = {
      "nn/layers.h",
      "nn/optim.h",
      "nn/state.h",
      "lazy/items.h",
      "ops/elementwise/activations.h",
      "ops/elementwise/arithmetic.h",
      "ops/elementwise/transcendental.h",
      "ops/index/index.h",
      "ops/product/product.h",
      "ops/random/random.h",
      "ops/reduce/losses.h",
      "ops/reduce/norms.h",
      "ops/reduce/scans.h",
      "ops/shape/shape.h",
      "ops/window/window.h",
  };
  for (const char* header : kHeaders)
    names.merge(Outside(ReadSource(std::string("client/") + header)));
  return names;
}

// What is no operator, and where it is tested.
const std::map<std::string, std::string>& Elsewhere() {
  static const std::map<std::string, std::string> kElsewhere = {
      {"Tensor", "tensor_test.cc"},
      {"Arg", "tensor_test.cc"},
      {"empty", "nn_test.cc"},
      {"manual_seed", "random_test.cc"},
      {"rank", "operators/mistakes_test.cc"},
      {"numel", "operators/mistakes_test.cc"},
      {"size", "variable_test.cc"},
      {"realized", "tensor_test.cc"},
      {"fetch", "future_test.cc"},
      {"from_blob", "safetensors_test.cc"},
      {"state_", "tensor_test.cc"},
      {"requires_grad", "operators/mistakes_test.cc"},
      {"grad", "nn_test.cc"},
      {"set_grad", "operators/mistakes_test.cc"},
      {"training", "operators/mistakes_test.cc"},
      {"TrainingMode", "nn_test.cc"},
      {"Tf32Mode", "tensor_test.cc"},
      {"allow_tf32", "tensor_test.cc"},
      {"DTypeOf", "operators/mistakes_test.cc"},
      {"Axes", "operators/mistakes_test.cc"},
      {"Size2d", "operators/mistakes_test.cc"},
      {"Conv2dOptions", "operators/products.cc"},
      {"Pool2dOptions", "operators/products.cc"},
      {"AttentionOptions", "operators/networks.cc"},
      {"BatchStatistics", "operators/networks.cc"},
      {"RunningStatistics", "operators/networks.cc"},
      {"LstmState", "operators/networks.cc"},
      {"LstmWeights", "operators/networks.cc"},
      {"ConvolutionOptions", "operators/windows.cc"},
      {"TransposedConvolutionOptions", "operators/windows.cc"},
      {"PoolOptions", "operators/windows.cc"},
      {"MaxPooled", "operators/windows.cc"},
      {"Padding", "operators/windows.cc"},
      {"PerAxis", "operators/windows.cc"},
      {"Reduction", "operators/losses.cc"},
      {"PadMode", "operators/resizing.cc"},
      {"Interpolation", "operators/resizing.cc"},
      {"reduced", "operators/losses.cc"},
      {"RunningExtreme", "operators/reductions.cc"},
      {"randperm", "random_test.cc"},
      {"scaled_uniform", "random_test.cc"},
      {"ScatterReduce", "operators/order.cc"},
      {"Slice", "operators/indexing.cc"},
      {"Ellipsis", "operators/indexing.cc"},
      {"NewAxis", "operators/indexing.cc"},
      {"Index", "operators/indexing.cc"},
      {"Qr", "operators/formulas.cc"},
      {"Svd", "operators/formulas.cc"},
      {"Sorted", "operators/order.cc"},
      {"Optimizer", "operators/layers.cc"},
      {"LARS", "nn_test.cc"},
      {"LarsOptions", "nn_test.cc"},
      {"LAMB", "nn_test.cc"},
      {"Muon", "nn_test.cc"},
      {"MuonOptions", "nn_test.cc"},
      {"state_dict", "nn_test.cc"},
      {"parameters", "nn_test.cc"},
      {"Add", "nn_test.cc"},
      {"Join", "nn_test.cc"},
  };
  return kElsewhere;
}

TEST(OperatorNames, NoneIsMissingFromTheTable) {
  Names rows;
  for (const Group& group : AllGroups())
    for (const Row& row : group.rows) rows.insert(row.name);
  Names mistakes;
  for (const Mistake& mistake : AllMistakes()) mistakes.insert(mistake.name);
  const Names declared = Declared();
  EXPECT_GT(declared.size(), 150u) << "the headers are not read as they should be";
  for (const std::string& name : declared)
    EXPECT_TRUE(rows.contains(name) || mistakes.contains(name) || Elsewhere().contains(name))
        << name << " has no row, no mistake, and is not named as tested elsewhere";
  // Nor is anything in the table that is not declared.
  for (const Names* names : {&rows, &mistakes})
    for (const std::string& name : *names)
      EXPECT_TRUE(declared.contains(name)) << name << " is not declared";
  for (const auto& [name, file] : Elsewhere()) {
    EXPECT_TRUE(declared.contains(name)) << name << " is not declared";
    EXPECT_FALSE(rows.contains(name)) << name << " has a row";
    EXPECT_TRUE(absl::StrContains(ReadSource("tests/client/" + file), name))
        << name << " in " << file;
  }
}

TEST_F(MistakesTest, WhatATensorTells) {
  Tensor x = Tensor::ones({2, 3});
  EXPECT_EQ(x.rank(), 2);
  EXPECT_EQ(x.numel(), 6);
  EXPECT_FALSE(x.requires_grad());
  EXPECT_TRUE(x.requires_grad_().requires_grad());
  x.set_grad(Tensor::ones({2, 3}));
  EXPECT_FALSE(x.grad().empty());
  EXPECT_FALSE(Tensor::training());
  {
    const TrainingMode mode(true);
    EXPECT_TRUE(Tensor::training());
  }
  EXPECT_FALSE(Tensor::training());
  EXPECT_EQ(x.sum(Axes()).numel(), 1);
  EXPECT_EQ(x.sum(1).shape(), (Dims{2}));
  EXPECT_EQ(x.sum({0, -1}).shape(), Dims{});
  EXPECT_EQ(x.sum(Dims{0}).shape(), (Dims{3}));
  EXPECT_EQ(Size2d(3).h, Size2d(3).w);
  EXPECT_EQ(DTypeOf<uint16_t>(), DType::kU16);
  EXPECT_EQ(DTypeOf<int64_t>(), DType::kI64);
  const Tensor large = Tensor::from<int64_t>({(int64_t{1} << 53) + 1});
  EXPECT_EQ(large.item<int64_t>(), (int64_t{1} << 53) + 1);
}

}  // namespace
}  // namespace outboard::operators
