// Every limit that a kernel, its Opts or a graph can hit: what is refused, and that the message
// says what there is too much of, how much, and the most there may be.
#include <gmock/gmock.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "compiler/optimize/limits.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_shapes.h"

namespace outboard::test {
namespace {

using absl::StatusCode;

struct Case {
  std::string name;
  std::function<absl::Status(Graph&)> hit;
  std::vector<std::string> words;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

absl::Status Compiled(const UOp* sink, const std::string& opts = "") {
  CompileOptions options{.cpu = "skylake-avx512"};
  if (!opts.empty()) options.opts = *codegen::ParseOpts(opts);
  return CompileKernel(sink, options).status();
}

// y[i] = x[i] after `steps` operations.
const UOp* Chain(Graph& g, Op op, int64_t steps) {
  const UOp* const i = Range(g, 0, 1000);
  const UOp* x = LoadAt(g, 1, DType::kF32, 1000, i);
  for (int64_t k = 0; k < steps; ++k) x = Alu(g, op, x);
  return Sink(g, {StoreAt(g, 0, 1000, i, x)});
}

// The sums of the rows of a matrix.
const UOp* RowSums(Graph& g) {
  const UOp *i = Range(g, 0, 1000), *k = ReduceRange(g, 1, 1000);
  const UOp* const x = LoadAt(g, 1, DType::kF32, 1000000, RowMajor(g, {i, k}, {1000, 1000}));
  return Sink(g, {StoreAt(g, 0, 1000, i, Fold(g, Op::kAdd, x, {k}))});
}

// One number: a sum over `count` ranges, of each of which an array is read.
const UOp* SumOverRanges(Graph& g, int64_t count) {
  std::vector<const UOp*> ranges;
  const UOp* sum = ConstOf(g, DType::kF32, 0);
  for (int64_t id = 0; id < count; ++id) {
    ranges.push_back(ReduceRange(g, id, 2));
    sum = Add(g, sum, LoadAt(g, 1 + id, DType::kF32, 2, ranges.back()));
  }
  return Sink(g, {StoreAt(g, 0, 1, ConstIndex(g, 0), Fold(g, Op::kAdd, sum, ranges))});
}

// Sums over the last of nine ranges; no two are one in both the source and the result.
const UOp* NineRanges(Graph& g) {
  std::vector<const UOp*> ranges, reversed;
  for (int id = 0; id < 8; ++id) ranges.push_back(Range(g, id, id == 7 ? 16 : 4));
  reversed.assign(ranges.rbegin(), ranges.rend());
  const UOp* const k = ReduceRange(g, 8, 4);
  reversed.push_back(k);
  const int64_t count = 16 << 14;
  const UOp* const x =
      LoadAt(g, 1, DType::kF32, 4 * count, RowMajor(g, reversed, {16, 4, 4, 4, 4, 4, 4, 4, 4}));
  return Sink(g, {StoreAt(g, 0, count, RowMajor(g, ranges, {4, 4, 4, 4, 4, 4, 4, 16}),
                          Fold(g, Op::kAdd, x, {k}))});
}

std::vector<Case> Cases() {
  using namespace limits;  // NOLINT
  const auto opts = [](const UOp* (*kernel)(Graph&), const std::string& text) {
    return [=](Graph& g) { return Compiled(kernel(g), text); };
  };
  const auto product = [](Graph& g) { return MatMul(g, 1024, 1024, 1024); };
  return {
      {"nodes of a kernel",
       [](Graph& g) { return Compiled(Chain(g, Op::kNeg, kKernelNodesMax)); },
       {"kernel", "nodes", absl::StrCat(kKernelNodesMax)}},
      {"sines count as what they are written as",
       [](Graph& g) { return Compiled(Chain(g, Op::kSin, kKernelNodesMax / 20)); },
       {"kernel", "nodes", absl::StrCat(kKernelNodesMax)}},
      {"loops of a kernel",
       [](Graph& g) { return Compiled(SumOverRanges(g, kKernelRangesMax + 1)); },
       {"kernel", "65 loops", absl::StrCat(kKernelRangesMax)}},
      {"loops of a kernel before some are merged",
       [](Graph& g) { return Compiled(SumOverRanges(g, kWrittenRangesMax + 1)); },
       {"kernel", "129 loops", absl::StrCat(kWrittenRangesMax)}},
      {"slots of a kernel",
       [](Graph& g) {
         const UOp* const i = Range(g, 0, 5);
         return Compiled(
             Sink(g, {StoreAt(g, kKernelSlotsMax, 5, i, LoadAt(g, 1, DType::kF32, 5, i))}));
       },
       {"kernel", "slot 4096", absl::StrCat(kKernelSlotsMax)}},
      {"an axis of a tile",
       opts(RowSums, "UPCAST:0:129"),
       {"an axis of 129", absl::StrCat(kTilePointsMax)}},
      {"a tile",
       opts(product, "UPCAST:0:16 UPCAST:1:9"),
       {"a tile of 144", absl::StrCat(kTilePointsMax)}},
      {"steps written out",
       opts(RowSums, "UNROLL:1:256"),
       {"steps written out 256", absl::StrCat(kTilePiecesMax)}},
      {"an unrolled tile",
       opts(product, "UPCAST:0:8 UPCAST:1:8 UNROLL:2:9"),
       {"an unrolled tile of 576", absl::StrCat(kUnrolledPointsMax)}},
      {"tiled loops",
       opts(NineRanges,
            "VECTOR:7:16 UPCAST:0:2 UPCAST:1:2 UPCAST:2:2 UPCAST:3:2 UPCAST:4:2 UPCAST:5:2 "
            "UPCAST:6:2 "
            "UNROLL:8:2"),
       {"tiled loops 9", absl::StrCat(kTiledLoopsMax)}},
      {"copies of a kernel",
       opts(product, "VECTOR:1:16 LOCAL:1:0"),
       {"bytes of copies 4194304", absl::StrCat(kLocalBytesMax)}},

      {"nodes of a graph",
       [](Graph& g) {
         const UOp* x = Param(g, 0, DType::kF32, {});
         absl::StatusOr<const UOp*> next = x;
         while (next.ok()) next = g.Make(Op::kNeg, DType::kVoid, {*next});
         return next.status();
       },
       {"nodes", absl::StrCat(kGraphNodesMax)}},
      {"bodies of functions",
       [](Graph& g) {
         g.walk_budget = kWalkStepsMax;  // as while a graph is decoded
         const UOp* const param = Param(g, 0, DType::kF32, {});
         const UOp* body = param;
         for (int k = 0; k < 1 << 18; ++k) body = Alu(g, Op::kNeg, body);
         absl::Status status;
         for (int k = 0; status.ok() && k < 20; ++k)
           status = g.Make(Op::kFunction, DType::kVoid,
                           {Add(g, body, ConstOf(g, DType::kF32, k)), param})
                        .status();
         return status;
       },
       {"FUNCTION", "nodes", absl::StrCat(kWalkStepsMax)}},
      {"sources of functions' bodies",
       [](Graph& g) {
         g.walk_budget = kWalkStepsMax;  // as while a graph is decoded
         const UOp* const param = Param(g, 0, DType::kF32, {});
         std::vector<const UOp*> values(8191, param);
         const UOp* body = param;
         for (int k = 0; k < 100; ++k) {
           values[0] = body;
           const UOp* const tuple = g.MakeChecked(Op::kTuple, DType::kVoid, values);
           body = g.MakeChecked(Op::kGetTuple, DType::kVoid, {tuple}, {0});
         }
         absl::Status status;
         for (int k = 0; status.ok() && k < 20; ++k)
           status = g.Make(Op::kFunction, DType::kVoid,
                           {Add(g, body, ConstOf(g, DType::kF32, k)), param})
                        .status();
         return status;
       },
       {"FUNCTION", "sources", absl::StrCat(kWalkStepsMax)}},
      {"sums of dimensions",
       [](Graph& g) {
         g.walk_budget = kWalkStepsMax;  // as while a graph is decoded
         const UOp* length = ConstIndex(g, 1);
         for (int64_t slot = 0; slot < 58; ++slot) length = Add(g, length, Var(g, slot, 0, 0));
         const UOp* x = Expand(g, ConstOf(g, DType::kI32, 1), {});
         x = Expand(g, Reshape(g, x, Shape(16, Dim(1))), Shape(16, Dim(length)));
         absl::Status status;
         for (int k = 0; status.ok() && k < 4000; ++k) {
           x = Add(g, x, x);
           status = g.Make(Op::kPad, DType::kVoid, {x}, std::vector<int64_t>(32, 1)).status();
         }
         return status;
       },
       {"sums of dimensions", absl::StrCat(kWalkStepsMax)}},
      {"products of dimensions",
       [](Graph& g) {
         g.walk_budget = kWalkStepsMax;  // as while a graph is decoded
         const UOp* length = ConstIndex(g, 1);
         for (int64_t slot = 0; slot < 58; ++slot) length = Mul(g, length, Var(g, slot, 0, 1));
         const UOp* x = Expand(g, ConstOf(g, DType::kI32, 1), {});
         x = Expand(g, Reshape(g, x, Shape(16, Dim(1))), Shape(16, Dim(length)));
         std::vector<const UOp*> sources(17, length);
         const std::vector<int64_t> dims(16, kSymbolicDim);
         absl::Status status;
         for (int k = 0; status.ok() && k < 4000; ++k) {
           sources[0] = x = Add(g, x, x);
           status = g.Make(Op::kReshape, DType::kVoid, sources, dims).status();
         }
         return status;
       },
       {"products of dimensions", absl::StrCat(kWalkStepsMax)}},
      {"bytes of a graph",
       [](Graph& g) { return DecodeGraph(g, std::string(kGraphBytesMax + 1, 'O')).status(); },
       {absl::StrCat(kGraphBytesMax + 1, " bytes"), absl::StrCat(kGraphBytesMax)}},
  };
}

class Limits : public testing::TestWithParam<Case> {};

TEST_P(Limits, AreNamed) {
  Graph g;
  const absl::Status status = GetParam().hit(g);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  for (const std::string& word : GetParam().words)
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(word));
}

INSTANTIATE_TEST_SUITE_P(All, Limits, testing::ValuesIn(Cases()));

// A sum of more terms than an affine form holds is no error: it is computed as it is written.
TEST(LimitsThatAreNoErrors, LongSums) {
  Graph g;
  const UOp* const i = Range(g, 0, 7);
  const UOp* sum = i;
  for (int id = 0; id < limits::kAffineTermsMax + 3; ++id)
    sum = Add(g, sum, Alu(g, Op::kMod, Mul(g, i, ConstIndex(g, id + 2)), ConstIndex(g, 2)));
  EXPECT_EQ(Compiled(Sink(g, {StoreAt(g, 0, 7, i, Cast(g, sum, DType::kF32))})), absl::OkStatus());
}

}  // namespace
}  // namespace outboard::test
