// SymShape of variables: one graph for all their values, and the same numbers as without them.
#include "client/tensor/variable.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>

#include "client/lazy/items.h"
#include "client/ops/index/index.h"
#include "client/ops/shape/shape.h"
#include "compiler/ir/encoding.h"
#include "tests/client/client_test.h"
#include "tests/support/paths.h"

namespace outboard {
namespace {

class VariableTest : public ClientTest {
 protected:
  const Variable n{"n", 1, 6}, m{"m", 0, 5};
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {6, 2});
};

TEST_F(VariableTest, ASizeIsANumberWithAName) {
  const SymInt size = (n.bind(4) + 1) * 3 - 2;
  EXPECT_FALSE(size.is_number());
  EXPECT_EQ(size.value(), 13);
  EXPECT_EQ((size / 4).value(), 3);
  EXPECT_EQ((size % 4).value(), 1);
  EXPECT_TRUE(SymInt(3).is_number());
  EXPECT_EQ((SymInt(3) + 4).value(), 7);
}

// The same id for every value: what OneGraph counts.
TEST_F(VariableTest, OneGraph) {
  for (int64_t rows = 1; rows <= 6; ++rows)
    ExpectNear(x.slice(0, 0, n.bind(rows)).sum(0),
               {static_cast<double>(rows * rows), static_cast<double>(rows * rows + rows)});
  EXPECT_EQ(session->graph_count(), 1u);
  EXPECT_EQ(session->last.bindings.size(), 1u);
  EXPECT_EQ(session->last.bindings[0].value, 6);
}

// The program of docs/symbolic-shapes.md, as it stands there.
void TheDocumentsProgram(const Tensor& table) {
  // clang-format off
const Variable length("length", 1, 6);
for (int64_t n = 1; n <= 6; ++n) {
  const SymInt rows = length.bind(n);
  const Tensor mean = table.slice(0, 0, rows).mean(0);
  std::printf("%f\n", mean.sum().item());
}
  // clang-format on
}

TEST_F(VariableTest, TheDocumentRuns) {
  const auto text_of = [](const std::string& path) {
    std::ifstream file(test::SourceFile(path));
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string document = text_of("docs/symbolic-shapes.md");
  const size_t begin = document.find("```cpp\n") + 7, end = document.find("```", begin);
  ASSERT_LT(begin, end);
  EXPECT_NE(text_of("tests/client/variable_test.cc").find(document.substr(begin, end - begin)),
            std::string::npos);
  testing::internal::CaptureStdout();
  TheDocumentsProgram(x);
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "3.000000\n5.000000\n7.000000\n9.000000\n11.000000\n13.000000\n");
}

TEST_F(VariableTest, SlotsFollowTheFirstUse) {
  const auto run = [&](const SymInt& a, const SymInt& b) {
    x.slice(0, b, b + 1).sum().item();  // meets b first
    const session::GraphId first = session->last.graph_id;
    x.slice(0, a - 1, a).sum().item();
    return std::make_pair(first, session->last.graph_id);
  };
  const auto [first, second] = run(n.bind(2), m.bind(3));
  EXPECT_NE(first, second);
  EXPECT_EQ(session->last.bindings[0].slot, 0);
  EXPECT_EQ(session->last.bindings[0].value, 2);
}

TEST_F(VariableTest, Operators) {
  const SymInt rows = n.bind(3), at = m.bind(2);
  ExpectNear(x.slice(0, at, at + 1).reshape({2}), {5, 6});
  ExpectNear(x.shrink({{0, rows}, {1, 2}}).reshape({-1}), {2, 4, 6});
  ExpectNear(x.slice(0, 0, rows).mean(0), {3, 4});
  ExpectNear(x.slice(0, 0, rows).max(0), {5, 6});
  ExpectNear(x.slice(0, 0, rows).slice(1, 0, 1).flatten(), {1, 3, 5});
  ExpectNear(Tensor::ones({1, 2}).expand({rows, -1}).sum(), {6});
  ExpectNear(x.slice(0, 0, rows).reshape({rows, 2, 1}).transpose().sum(0).reshape({2}), {9, 12});
  ExpectNear(x.slice(0, 0, rows).pad({{0, 6 - rows}, {0, 0}}).slice(0, 2, 4).flatten(),
             {5, 6, 0, 0});
  const Tensor part = x.slice(0, 0, rows);
  ExpectNear(part.matmul(part.transpose()).sum(), {9.0 * 9 + 12 * 12});
  ExpectNear(x.slice(0, 0, rows).transpose().softmax().sum(1), {1, 1});
  ExpectNear(Tensor::arange(6) * rows, {0, 3, 6, 9, 12, 15});
  ExpectNear((Tensor::arange(6) == at).where(1.0, 0.0), {0, 0, 1, 0, 0, 0});
  ExpectNear(x.slice(0, 0, rows).flip(0).slice(0, 0, 1).flatten(), {5, 6});
}

TEST_F(VariableTest, RealisedSizesAreNumbers) {
  Tensor part = x.slice(0, 0, n.bind(3));
  EXPECT_FALSE(part.size(0).is_number());
  EXPECT_EQ(part.size(0).value(), 3);
  EXPECT_EQ(part.size(-1).value(), 2);
  EXPECT_EQ(part.rank(), 2);
  EXPECT_EQ(StatusOf([&] { part.shape(); }).code(), absl::StatusCode::kInvalidArgument);
  part.realize();
  EXPECT_EQ(part.shape(), (Dims{3, 2}));
  EXPECT_TRUE(part.size(0).is_number());
}

TEST_F(VariableTest, AssignsRowAfterRow) {
  Tensor cache = Tensor::zeros({4, 2}).contiguous().state_().realize();
  for (int64_t i = 0; i < 4; ++i) {
    const SymInt at = m.bind(i);
    const Tensor row = x.slice(0, at, at + 1);
    cache.assign((Tensor::arange(4).reshape({4, 1}) == at).where(row, cache));
    cache.realize();
  }
  ExpectNear(cache, {1, 2, 3, 4, 5, 6, 7, 8});
}

// What a cache of keys and values does: the part between two places is written, all before it read.
TEST_F(VariableTest, SlicesAndPartsBetweenBrackets) {
  Tensor cache = Tensor::zeros({6, 2}).contiguous().realize();
  for (int64_t i = 0; i < 5; ++i) {
    const SymInt at = m.bind(i);
    part(cache, {Slice{at, at + 1}}).assign(x[Slice{at, at + 1}]);
    ExpectNear(cache[{Slice{{}, at + 1}, 1}].sum(), {static_cast<double>((i + 1) * (i + 2))});
    ExpectNear(cache[at], {2.0 * static_cast<double>(i) + 1, 2.0 * static_cast<double>(i) + 2});
  }
  ExpectNear(cache.sum(0), {25, 30});
}

TEST_F(VariableTest, Gradients) {
  Tensor w = Tensor::ones({2}).requires_grad_();
  for (const int64_t rows : {2, 5}) {
    w.set_grad({});
    (x.slice(0, 0, n.bind(rows)) * w).sum().backward();
    ExpectNear(w.grad(),
               {static_cast<double>(rows * rows), static_cast<double>(rows * (rows + 1))});
  }
}

// ---- parts that fit for some values only --------------------------------------------------------

// The variable of every graph that is sent, as the fake session has it.
TEST_F(VariableTest, APartThatFitsForSomeValues) {
  const Variable start("start", 0, 6);
  for (const int64_t at : {0, 3, 5}) {
    const SymInt s = start.bind(at);
    const double a = 2.0 * static_cast<double>(at) + 1;
    ExpectNear(x.slice(0, s, s + 1).flatten(), {a, a + 1});
    ExpectNear(x[{Slice{s, s + 1}, 1}], {a + 1});
    ExpectNear(x.shrink({{s, s + 1}, {0, 1}}).flatten(), {a});
    ExpectNear(x[s], {a, a + 1});
  }
  if (IsFake()) EXPECT_EQ(session->graph_count(), 3u);        // x[s] is the first one
  ExpectNear(x.slice(0, 0, start.bind(6)).sum(0), {36, 42});  // has all values again
}

TEST_F(VariableTest, WritesToAPartThatFitsForSomeValues) {
  const Variable start("start", 0, 6);
  Tensor cache = Tensor::zeros({6, 2}).contiguous().realize();
  for (int64_t at = 0; at < 5; ++at) {
    const SymInt s = start.bind(at);
    part(cache, {Slice{s, s + 2}}).assign(x[Slice{s, s + 2}] * 10);
    ExpectNear(cache.slice(0, 0, s + 2).sum(), {10 * static_cast<double>((at + 2) * (2 * at + 5))});
  }
  ExpectNear(cache.flatten(), {10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120});
}

// A comparison with the row's number, of which the scheduler makes a store of that row.
TEST_F(VariableTest, AWriteOfOneRowPadsNothing) {
  Tensor cache = Tensor::zeros({6, 2}).contiguous().realize();
  const auto pads_in = [&](const SymInt& begin, const SymInt& end) {
    set_items(cache, {Slice{begin, end}}, 1);
    cache.realize();
    Graph graph;
    const UOp* const sink = *DecodeGraph(graph, *session->last.graph);
    return std::ranges::count(PostOrder(sink), Op::kPad, &UOp::op);
  };
  EXPECT_EQ(pads_in(m.bind(2), m.bind(2) + 1), 0);
  EXPECT_GT(pads_in(n.bind(5) - 1, n.bind(5) + 1), 0);
  ExpectNear(cache.slice(1, 0, 1).flatten(), {0, 0, 1, 0, 1, 1});
}

// What was made before the variable was narrowed has the sizes of what is made after it.
TEST_F(VariableTest, LazyTensorsAreNarrowedToo) {
  const Variable start("start", 0, 9);
  for (const int64_t at : {1, 4}) {
    const SymInt s = start.bind(at);
    const Tensor mask = Tensor::full({s + 1}, 2), rows = x.slice(0, 0, s + 1);
    ExpectNear((rows * mask.reshape({s + 1, 1})).sum(),
               {2 * static_cast<double>((at + 1) * (2 * at + 3))});
  }
  Tensor w = Tensor::ones({2}).requires_grad_();
  const SymInt s = start.bind(2);
  const Tensor loss = (Tensor::ones({s + 1, 2}) * w).sum();
  (loss + x.slice(0, 0, s + 4).sum() * 0).backward();
  ExpectNear(w.grad(), {3, 3});
}

TEST_F(VariableTest, BothEndsAndTwoVariables) {
  const Variable i("i", 0, 9), k("k", 0, 9);
  const auto rows = [](int64_t from, int64_t to) {  // their sum
    return static_cast<double>(to * (2 * to + 1) - from * (2 * from + 1));
  };
  for (const int64_t at : {2, 3, 4})
    ExpectNear(x.slice(0, i.bind(at) - 2, i.bind(at) + 2).sum(), {rows(at - 2, at + 2)});
  if (IsFake()) EXPECT_EQ(session->graph_count(), 1u);
  for (int64_t from = 0; from <= 6; ++from)
    for (int64_t count = 0; count <= 6 - from; ++count)
      ExpectNear(x.slice(0, i.bind(from), i.bind(from) + k.bind(count)).sum(),
                 {rows(from, from + count)});
  for (const int64_t at : {0, 3, 6}) ExpectNear(x[Slice{i.bind(at), {}}].sum(), {rows(at, 6)});
  const Tensor part = x.slice(0, 0, i.bind(3));
  ExpectNear(part[0], {1, 2});
  ExpectNear(part[-1], {5, 6});
  ExpectNear(part[Slice{-2, {}}].sum(), {rows(1, 3)});
  ExpectNear(part.pad({{0, 5 - i.bind(3)}, {0, 0}}).slice(0, 2, 4).flatten(), {5, 6, 0, 0});
}

TEST_F(VariableTest, ValuesThatDoNotFit) {
  const Variable start("start", 0, 9);
  const auto refuses = [&](const std::function<void(const SymInt&)>& f, int64_t value) {
    const absl::Status status = StatusOf([&] { f(start.bind(value)); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << value << ": " << status;
  };
  for (const int64_t value : {6, 9}) {
    refuses([&](const SymInt& s) { x.slice(0, s, s + 1); }, value);
    refuses([&](const SymInt& s) { x[s]; }, value);
    refuses([&](const SymInt& s) { x.shrink({{0, s + 1}, {0, 2}}); }, value);
    refuses([&](const SymInt& s) { with_items(x, {Slice{s, s + 1}}, 1); }, value);
  }
  refuses([&](const SymInt& s) { x.slice(0, s - 1, s); }, 0);
  refuses([&](const SymInt& s) { x.slice(0, s, 4); }, 5);
  refuses([&](const SymInt& s) { x.slice(0, 0, s)[0]; }, 0);
  refuses([&](const SymInt& s) { x.pad({{0, 5 - s}, {0, 0}}); }, 6);
  refuses([&](const SymInt& s) { x.slice(0, 0, s).argmax(0); }, 0);
  refuses([&](const SymInt& s) { topk(x.slice(0, 0, s), 2, 0); }, 1);
}

// ---- operators over such an axis ----------------------------------------------------------------

TEST_F(VariableTest, OperatorsOverAnAxis) {
  const Tensor y = Tensor::from<float>({3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}, {6, 2});
  const std::vector<double> columns[] = {{3, 4, 5, 2, 5, 5}, {1, 1, 9, 6, 3, 8}};
  for (int64_t rows = 1; rows <= 6; ++rows) {
    const Tensor part = y.slice(0, 0, n.bind(rows));
    std::vector<double> first(columns[0].begin(), columns[0].begin() + rows), sums, sorted = first;
    std::partial_sum(first.begin(), first.end(), std::back_inserter(sums));
    std::sort(sorted.begin(), sorted.end());
    const auto place = [&](int column, bool largest) {
      const auto begin = columns[column].begin(), end = begin + rows;
      return static_cast<double>(
          (largest ? std::max_element(begin, end) : std::min_element(begin, end)) - begin);
    };
    ExpectNear(part.argmax(0), {place(0, true), place(1, true)});
    ExpectNear(part.argmin(0), {place(0, false), place(1, false)});
    ExpectNear(part.cumsum(0).slice(1, 0, 1).flatten(), sums);
    ExpectNear(sort(part, 0).values.slice(1, 0, 1).flatten(), sorted);
    ExpectNear(topk(part, 1, 0).values.flatten(),
               {*std::max_element(first.begin(), first.end()), columns[1][place(1, true)]});
    std::vector<double> larger;
    for (int64_t i = 0; i < rows; ++i) larger.push_back(std::max(columns[0][i], columns[1][i]));
    ExpectNear(topk(part, 1, 1).values.flatten(), larger);
    ExpectNear(
        part.argmax(1).sum(),
        {static_cast<double>(std::count_if(larger.begin(), larger.end(), [&](const double& value) {
          return value != first[&value - larger.data()];
        }))});
    ExpectNear(part.repeat({2, 1}).slice(1, 0, 1).flatten().sum(), {2 * sums.back()});
    const double all = part.sum().item();
    ExpectNear(part.flatten().sum(), {all});
    ExpectNear(part.reshape({-1}).slice(0, 1, 2), {1});
    ExpectNear(part.split(1, 1)[1].sum(), {all - sums.back()});
    ExpectNear(part.chunk(2, 1)[0].sum(), {sums.back()});
    const Tensor pictures = part.reshape({n.bind(rows), 1, 1, 2});
    ExpectNear(pictures.conv2d(Tensor::ones({1, 1, 1, 2})).sum(), {all});
    ExpectNear(pictures.max_pool2d({.kernel = {1, 2}}).flatten(), larger);
  }
}

// ---- what goes wrong, and at which line ---------------------------------------------------------

void ExpectInvalid(const std::function<void()>& f, const std::vector<std::string>& words) {
  const absl::Status status = StatusOf(f);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& word : words)
    EXPECT_NE(std::string(status.message()).find(word), std::string::npos) << status;
}

TEST_F(VariableTest, Mistakes) {
  ExpectInvalid([] { Variable("k", 3, 2); }, {"k", "3..2"});
  ExpectInvalid([&] { n.bind(0); }, {"n", "0", "1..6"});
  ExpectInvalid([&] { n.bind(7); }, {"n", "7", "1..6"});
  const Tensor two = x.slice(0, 0, n.bind(2)).sum(), three = x.slice(0, 0, n.bind(3)).sum();
  ExpectInvalid([&] { two + three; }, {"n", "2", "3"});
  ExpectInvalid([&] { realize(std::vector<Tensor>{two, three}); }, {"n", "2", "3"});
  EXPECT_EQ(two.item(), 10);
  EXPECT_EQ(three.item(), 21);
  const Variable other("n", 0, 6);
  ExpectInvalid([&] { x.slice(0, 0, n.bind(2)) + x.slice(0, 0, other.bind(2)); },
                {"n", "0..6", "1..6"});
  ExpectInvalid([&] { x.slice(0, n.bind(2), other.bind(2)); }, {"n", "0..6", "1..6"});
  EXPECT_EQ(x.slice(0, 0, other.bind(2)).sum().item(), 10);
  ExpectInvalid([&] { x.slice(0, 0, n.bind(6) + 1); }, {"0:7", "axis of 6", "n = 6"});
  const Tensor part = x.slice(0, 0, n.bind(2));
  for (const auto& needs_numbers : std::vector<std::function<void()>>{
           [&] {
             part.reshape({-1, 5});
           },
           [&] { part.numel(); }, [&] { part.shape(0); }, [&] { part.chunk(2); },
           [&] {
             part.split(Dims{1, 1});
           },
           [&] { diag(part.slice(1, 0, 1).flatten()); }}) {
    const absl::Status status = StatusOf(needs_numbers);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  EXPECT_EQ(part.shape(1), 2);
}

TEST_F(VariableTest, ErrorsNameTheLine) {
  try {
    n.bind(9);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.location().line(), static_cast<uint32_t>(__LINE__ - 3));
    EXPECT_NE(std::string(error.what()).find("variable_test.cc"), std::string::npos);
  }
}

}  // namespace
}  // namespace outboard
