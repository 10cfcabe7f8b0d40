// The interpreter beyond single operations: calls, symbolic dimensions, values that are never kept,
// limits, errors.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/reference/interpret.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

const UOp* Make(Graph& g, Op op, std::vector<const UOp*> src, std::vector<int64_t> arg = {}) {
  return g.MakeChecked(op, DType::kVoid, src, arg);
}

TEST(Calls, TupleOfTwoAndCallsInCalls) {
  Graph g;
  const Shape s = {3};
  const UOp *const p0 = Param(g, 0, DType::kI32, s), *const p1 = Param(g, 1, DType::kI32, s);
  // inner(a, b) = (a + b, a * b); outer(a) = inner(a, inner(a, a)[0])[1]
  const UOp* const inner =
      Make(g, Op::kFunction, {Make(g, Op::kTuple, {Add(g, p0, p1), Mul(g, p0, p1)}), p0, p1});
  const UOp* const twice = Make(g, Op::kGetTuple, {Make(g, Op::kCall, {inner, p0, p0})}, {0});
  const UOp* const body = Make(g, Op::kGetTuple, {Make(g, Op::kCall, {inner, p0, twice})}, {1});
  const UOp* const outer = Make(g, Op::kFunction, {body, p0});
  const HostTensor x = Ints(DType::kI32, {3}, {1, 2, 5});
  const UOp* const input = Param(g, 0, DType::kI32, s);
  const UOp* const call = Make(g, Op::kCall, {outer, Add(g, input, input)});
  ExpectValue(call, std::span(&x, 1), Ints(DType::kI32, {3}, {8, 32, 200}));  // 2a * (2a + 2a)
}

TEST(Calls, DeepNestingAndManyCallsEnd) {
  Graph g;
  const UOp* const p = Param(g, 0, DType::kU32, {});
  const UOp* value = Add(g, p, p);
  for (int i = 0; i < 5000; ++i)  // each function calls the one before
    value = Make(g, Op::kCall, {Make(g, Op::kFunction, {value, p}), p});
  const HostTensor x = Ints(DType::kU32, {}, {21});
  const auto deep = Interpret(Sink(g, {value}), std::span(&x, 1));
  ASSERT_TRUE(deep.ok()) << deep.status();
  EXPECT_EQ(IntsOf((*deep)[0]), std::vector<int64_t>{42});

  value = Add(g, p, p);
  for (int i = 0; i < 60; ++i) {  // each function calls the one before twice: 2^60 additions
    const UOp* const f = Make(g, Op::kFunction, {value, p});
    value = Make(g, Op::kCall, {f, Make(g, Op::kCall, {f, p})});
  }
  InterpretOptions options;
  options.work_max = 1 << 20;
  EXPECT_EQ(Interpret(Sink(g, {value}), std::span(&x, 1), {}, options).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Symbolic, OneGraphForManyLengths) {
  Graph g;
  const UOp* const n = Var(g, 0, 1, 8);
  const UOp* const x = Param(g, 0, DType::kI32, Shape{Dim(n), 2});
  const UOp* const all = Param(g, 1, DType::kI32, Shape{8});
  const UOp* const sum = Reduce(g, Op::kAdd, x, {0});
  const UOp* const cut = Shrink(g, all, Shape{0, Dim(n)});
  const UOp* const sink =
      Sink(g, {sum, Add(g, cut, Iota(g, DType::kI32, Dim(n))), Pad(g, x, Shape{1, 1, 0, 0})});
  for (const int64_t length : {1, 3, 8}) {
    std::vector<int64_t> values(2 * length, 1);
    const HostTensor params[] = {Ints(DType::kI32, {length, 2}, values),
                                 Ints(DType::kI32, {8}, {0, 10, 20, 30, 40, 50, 60, 70})};
    const Binding binding{0, length};
    const Results results = ExpectSame(sink, params, std::span(&binding, 1));
    ASSERT_EQ(results.size(), 3u);
    EXPECT_EQ(IntsOf(results[0]), (std::vector<int64_t>{length, length}));
    EXPECT_EQ(results[1].dims, std::vector<int64_t>{length});
    EXPECT_EQ(IntsOf(results[1])[length - 1], 11 * (length - 1));
    EXPECT_EQ(results[2].dims, (std::vector<int64_t>{length + 2, 2}));
  }
}

// x[index] of 2^24 products, of which none is kept.
TEST(Virtual, OneHotSumKeepsNothing) {
  Graph g;
  const Shape dims = {16, 1 << 14, 64};
  const HostTensor params[] = {Ints(DType::kI32, {16}, std::vector<int64_t>(16, 9999)),
                               Ints(DType::kI32, {1 << 14}, std::vector<int64_t>(1 << 14, 7))};
  const UOp* const index = Param(g, 0, DType::kI32, Shape{16});
  const UOp* const x = Param(g, 1, DType::kI32, Shape{1 << 14});
  const Shape small = {16, 1 << 14, 1};
  const UOp* const hot =
      Alu(g, Op::kCmpEq,
          Expand(g, Reshape(g, Iota(g, DType::kI32, 1 << 14), Shape{1, 1 << 14, 1}), small),
          Expand(g, Reshape(g, index, Shape{16, 1, 1}), small));
  const UOp* const spread = Expand(g, Reshape(g, x, Shape{1, 1 << 14, 1}), dims);
  const UOp* const sum = Reduce(
      g, Op::kAdd,
      Where(g, Expand(g, hot, dims), spread, Full(g, ConstInt(g, DType::kI32, 0), dims)), {1});
  InterpretOptions options;
  options.bytes_max = 8 << 20;  // of 128 MiB
  const auto results = Interpret(Sink(g, {sum}), params, {}, options);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(IntsOf((*results)[0]), std::vector<int64_t>(16 * 64, 7));
}

// A doubling chain over a large value: as a tree it has 2^40 nodes.
TEST(Virtual, SharedValuesAreNotComputedForEachUse) {
  Graph g;
  const UOp* x = Iota(g, DType::kU32, 1000);
  for (int i = 0; i < 40; ++i) x = Add(g, x, x);
  InterpretOptions options;
  options.stored_elements = 10;
  options.work_max = 1 << 24;
  const auto results = Interpret(Sink(g, {Shrink(g, x, Shape{998, 1000})}), {}, {}, options);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(IntsOf((*results)[0]), (std::vector<int64_t>{0, 0}));
}

TEST(Limits, AreNamed) {
  Graph g;
  const UOp* const wide = Expand(g, Reshape(g, Iota(g, DType::kI64, 1 << 20), Shape{1 << 20, 1}),
                                 Shape{1 << 20, 1 << 20});
  const auto work = Interpret(Sink(g, {Reduce(g, Op::kAdd, wide, {0, 1})}), {});
  EXPECT_EQ(work.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(work.status().message(), absl::StrCat(reference_limits::kWorkMax)))
      << work.status();
  InterpretOptions options;
  options.bytes_max = 1 << 20;
  const auto bytes = Interpret(Sink(g, {Iota(g, DType::kI64, 1 << 20)}), {}, {}, options);
  EXPECT_EQ(bytes.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(bytes.status().message(), "IOTA")) << bytes.status();
  EXPECT_TRUE(absl::StrContains(bytes.status().message(), absl::StrCat(options.bytes_max)))
      << bytes.status();
}

TEST(Errors, InputsAndBindings) {
  Graph g;
  const UOp* const n = Var(g, 3, 1, 8);
  const UOp* const sink = Sink(g, {Param(g, 0, DType::kF32, Shape{Dim(n)})});
  const HostTensor good = Floats(DType::kF32, {2}, {1, 2});
  HostTensor cut = good;
  cut.bytes.pop_back();
  const Binding two{3, 2};
  const struct {
    const char* name;
    std::vector<HostTensor> params;
    std::vector<Binding> bindings;
    absl::StatusCode code;
  } cases[] = {
      {"good", {good}, {two}, absl::StatusCode::kOk},
      {"no tensor", {}, {two}, absl::StatusCode::kInvalidArgument},
      {"another type", {Ints(DType::kI32, {2}, {1, 2})}, {two}, absl::StatusCode::kInvalidArgument},
      {"another length",
       {Floats(DType::kF32, {3}, {1, 2, 3})},
       {two},
       absl::StatusCode::kInvalidArgument},
      {"another rank",
       {Floats(DType::kF32, {2, 1}, {1, 2})},
       {two},
       absl::StatusCode::kInvalidArgument},
      {"too few bytes", {cut}, {two}, absl::StatusCode::kInvalidArgument},
      {"no binding", {good}, {}, absl::StatusCode::kInvalidArgument},
      {"binding too small", {good}, {{3, 0}}, absl::StatusCode::kInvalidArgument},
      {"binding too large", {good}, {{3, 9}}, absl::StatusCode::kInvalidArgument},
      {"two bindings", {good}, {two, two}, absl::StatusCode::kInvalidArgument},
  };
  for (const auto& c : cases)
    EXPECT_EQ(Interpret(sink, c.params, c.bindings).status().code(), c.code) << c.name;
}

TEST(Errors, Graphs) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, Shape{4});
  const HostTensor tensor = Floats(DType::kF32, {4}, {1, 2, 3, 4});
  const std::span<const HostTensor> params(&tensor, 1);
  EXPECT_EQ(Interpret(x, params).status().code(), absl::StatusCode::kInvalidArgument);  // no SINK
  EXPECT_EQ(Interpret(Sink(g, {BufferNode(g, 7, DType::kF32, Shape{4})}), params).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Interpret(Sink(g, {Make(g, Op::kMulAcc, {x, x, x})}), params).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Interpret(Sink(g, {Make(g, Op::kCopy, {x}, {1, 2, 1})}), params).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Devices, AHintChangesNothing) {
  Graph g;
  const HostTensor tensor = Floats(DType::kF32, {4}, {1, 2, 3, 4});
  const UOp* const x = Param(g, 0, DType::kF32, Shape{4});
  ExpectValue(Make(g, Op::kLayout, {x}, {0, 0}), std::span(&tensor, 1), tensor);
  ExpectValue(Make(g, Op::kAssign, {Alu(g, Op::kNeg, x), x}), std::span(&tensor, 1), tensor);
  ExpectValue(Make(g, Op::kDetach, {Make(g, Op::kContiguous, {x})}), std::span(&tensor, 1), tensor);
}

}  // namespace
}  // namespace outboard::test
