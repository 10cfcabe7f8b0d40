// Collectives as transfers and folds: of the forms that a transport knows, and of the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/reference/interpret_group.h"
#include "compiler/schedule/collective/lower.h"
#include "compiler/schedule/prepare.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

using GroupParams = std::vector<std::vector<HostTensor>>;

const UOp* Make(Graph& g, Op op, const UOp* x, std::vector<int64_t> arg) {
  return g.MakeChecked(op, DType::kVoid, {x}, arg);
}

// Values whose sums depend on the order and on the type that they are computed in.
HostTensor Spread(DType dtype, const std::vector<int64_t>& dims, std::mt19937_64& random) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  std::vector<double> floats;
  std::vector<int64_t> ints;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t word = static_cast<int64_t>(random() >> 1);
    floats.push_back(RoundTo(IsFloat(dtype) ? dtype : DType::kF64,
                             std::ldexp(static_cast<double>(word % 4096 - 2048) / 256.0,
                                        static_cast<int>(word / 4096 % 8))));
    ints.push_back(WrapTo(IsFloat(dtype) ? DType::kI64 : dtype, word));
  }
  return IsFloat(dtype) ? Floats(dtype, dims, floats) : Ints(dtype, dims, ints);
}

// The lowered graph has transfers of the three forms alone, and gives every rank the same bytes.
void ExpectSameBits(Graph& g, const UOp* sink, const std::vector<int64_t>& mesh,
                    const GroupParams& params) {
  const auto wanted = InterpretGroup(sink, mesh, params);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  const auto prepared = schedule::Prepare(g, sink);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const auto lowered = schedule::LowerCollectives(g, *prepared);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  for (const UOp* node : PostOrder(*lowered)) {
    if (!IsCollective(node->op)) continue;
    const int64_t count = CollectiveOf(node).count();
    EXPECT_GT(count, 1);
    if (node->op == Op::kUnshard) {
      EXPECT_TRUE(UnshardOf(node).dim() == 0 && node->src[0]->shape[0] == Dim(1))
          << NodeToString(node);
    } else if (node->op == Op::kAllToAll) {
      EXPECT_TRUE(AllToAllOf(node).cut_dim() == 0 && AllToAllOf(node).join_dim() == 0 &&
                  node->shape[0] == Dim(count))
          << NodeToString(node);
    } else {
      EXPECT_EQ(node->op, Op::kCopy) << NodeToString(node);
    }
  }
  const auto made = InterpretGroup(*lowered, mesh, params);
  ASSERT_TRUE(made.ok()) << made.status();
  for (size_t rank = 0; rank < wanted->size(); ++rank)
    for (size_t i = 0; i < (*wanted)[rank].size(); ++i)
      EXPECT_TRUE((*made)[rank][i] == (*wanted)[rank][i])
          << "rank " << rank << ", " << NodeToString(sink->src[i]);
}

struct MeshCase {
  std::vector<int64_t> mesh;
  int64_t count, stride;
};
const MeshCase kMeshes[] = {
    {{1}, 1, 1},    {{2}, 2, 1},    {{3}, 3, 1},    {{4}, 4, 1},    {{2, 2}, 2, 1},
    {{2, 2}, 2, 2}, {{2, 3}, 3, 1}, {{2, 3}, 2, 3}, {{2, 3}, 6, 1},
};

GroupParams ParamsFor(const MeshCase& mesh, DType dtype, const std::vector<int64_t>& dims) {
  std::mt19937_64 random(static_cast<unsigned>(mesh.count * 100 + mesh.stride * 10 + dims.size()));
  int64_t ranks = 1;
  for (const int64_t size : mesh.mesh) ranks *= size;
  GroupParams params;
  for (int64_t rank = 0; rank < ranks; ++rank) params.push_back({Spread(dtype, dims, random)});
  return params;
}

TEST(LowerCollectives, Folds_HaveTheBitsOfTheInterpreter) {
  for (const MeshCase& mesh : kMeshes)
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kF8E5M2,
                              DType::kI8, DType::kI32, DType::kU64})
      for (const Op op : {Op::kAdd, Op::kMul, Op::kMax}) {
        SCOPED_TRACE(absl::StrCat(absl::StrJoin(mesh.mesh, "x"), " group ", mesh.count, " ",
                                  mesh.stride, " ", std::string(Name(dtype)), " ",
                                  std::string(Name(op))));
        const auto code = static_cast<int64_t>(op);
        Graph g;
        const std::vector<int64_t> dims = {2, 12, 3};
        const UOp* const x = Param(g, 0, dtype, Shape(dims.begin(), dims.end()));
        ExpectSameBits(
            g,
            Sink(g, {Make(g, Op::kAllReduce, x, {code, mesh.count, mesh.stride}),
                     Make(g, Op::kReduceScatter, x, {code, 1, mesh.count, mesh.stride})}),
            mesh.mesh, ParamsFor(mesh, dtype, dims));
      }
}

// Over the size from which an ALLREDUCE is done in parts, with lengths that do not divide.
TEST(LowerCollectives, LargeFolds_AreDoneInParts) {
  for (const MeshCase& mesh : kMeshes) {
    SCOPED_TRACE(absl::StrCat(absl::StrJoin(mesh.mesh, "x"), " group ", mesh.count));
    Graph g;
    const std::vector<int64_t> dims = {7, 4699};
    const UOp* const x = Param(g, 0, DType::kF32, Shape(dims.begin(), dims.end()));
    const UOp* const sink = Sink(
        g, {Make(g, Op::kAllReduce, x, {static_cast<int64_t>(Op::kAdd), mesh.count, mesh.stride})});
    ExpectSameBits(g, sink, mesh.mesh, ParamsFor(mesh, DType::kF32, dims));
    const UOp* const lowered = *schedule::LowerCollectives(g, sink);
    int64_t exchanges = 0;
    for (const UOp* node : PostOrder(lowered)) exchanges += node->op == Op::kAllToAll ? 1 : 0;
    EXPECT_EQ(exchanges, mesh.count > 2 ? 1 : 0);
  }
}

TEST(LowerCollectives, Movements_OfEveryDimension) {
  for (const MeshCase& mesh : kMeshes) {
    SCOPED_TRACE(
        absl::StrCat(absl::StrJoin(mesh.mesh, "x"), " group ", mesh.count, " ", mesh.stride));
    Graph g;
    const std::vector<int64_t> dims = {6, 12, 6};
    const UOp* const x = Param(g, 0, DType::kI16, Shape(dims.begin(), dims.end()));
    std::vector<const UOp*> results;
    for (int64_t dim = 0; dim < 3; ++dim) {
      results.push_back(Make(g, Op::kUnshard, x, {dim, mesh.count, mesh.stride}));
      for (int64_t join = 0; join < 3; ++join)
        if (dims[dim] % mesh.count == 0)
          results.push_back(Make(g, Op::kAllToAll, x, {dim, join, mesh.count, mesh.stride}));
    }
    for (int64_t root = 0; root < mesh.count; ++root)
      results.push_back(Make(g, Op::kCopy, x, {root, mesh.count, mesh.stride}));
    ExpectSameBits(g, Sink(g, results), mesh.mesh, ParamsFor(mesh, DType::kI16, dims));
  }
}

TEST(LowerCollectives, ValuesWithoutElements_NeedNoTransfer) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, Shape{0, 4});
  const int64_t add = static_cast<int64_t>(Op::kAdd);
  const UOp* const sink = Sink(
      g, {Make(g, Op::kUnshard, x, {0, 2, 1}), Make(g, Op::kAllReduce, x, {add, 2, 1}),
          Make(g, Op::kReduceScatter, x, {add, 1, 2, 1}), Make(g, Op::kAllToAll, x, {1, 0, 2, 1})});
  ExpectSameBits(g, sink, {2},
                 {{Floats(DType::kF32, {0, 4}, {})}, {Floats(DType::kF32, {0, 4}, {})}});
  for (const UOp* node : PostOrder(*schedule::LowerCollectives(g, sink)))
    EXPECT_FALSE(IsCollective(node->op));
}

TEST(LowerCollectives, DimensionsOfVars_StayAsTheyAre) {
  Graph g;
  const Dim n(Var(g, 0, 1, 5));
  const UOp* const x = Param(g, 0, DType::kF32, Shape{n, 4});
  const int64_t add = static_cast<int64_t>(Op::kAdd);
  const UOp* const sink =
      Sink(g, {Make(g, Op::kAllReduce, x, {add, 3, 1}), Make(g, Op::kUnshard, x, {1, 3, 1})});
  const auto lowered = schedule::LowerCollectives(g, sink);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  GroupParams params;
  for (int rank = 0; rank < 3; ++rank)
    params.push_back({Floats(DType::kF32, {2, 4}, {1, 2, 3, 4, 5, 6, 7, 1e9 * rank})});
  const Binding two{0, 2};
  const int64_t mesh = 3;
  const auto wanted = InterpretGroup(sink, {&mesh, 1}, params, {&two, 1}),
             made = InterpretGroup(*lowered, {&mesh, 1}, params, {&two, 1});
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(*wanted == *made);
}

}  // namespace
}  // namespace outboard::test
