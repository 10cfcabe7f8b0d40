// Engines of a group, each a rank in a thread of its own, against the interpreter for groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/reference/interpret_group.h"
#include "compiler/search/neighbours.h"
#include "runtime/collective/loopback.h"
#include "tests/support/device.h"
#include "tests/support/temp_folder.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/engine.h"
#include "worker/engine/repeat.h"
#include "worker/tuning/tuner.h"

namespace outboard::worker {
namespace {

using GroupTensors = std::vector<std::vector<HostTensor>>;

constexpr int64_t kAdd = static_cast<int64_t>(Op::kAdd), kMax = static_cast<int64_t>(Op::kMax);

const UOp* Make(Graph& g, Op op, const UOp* x, std::vector<int64_t> arg = {}) {
  return g.MakeChecked(op, DType::kVoid, {x}, arg);
}
const UOp* Rank(Graph& g, int64_t ranks) { return Var(g, limits::kRankSlot, 0, ranks - 1); }

HostTensor Random(DType dtype, std::vector<int64_t> dims, uint64_t seed) {
  HostTensor tensor{dtype, std::move(dims), ""};
  tensor.bytes.resize(static_cast<size_t>(tensor.ElementCount() * ByteWidth(dtype)));
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
    char* const at = tensor.bytes.data() + i * ByteWidth(dtype);
    if (IsFloat(dtype)) {
      StoreFloat(dtype, RoundTo(dtype, static_cast<double>(random() % 2000) / 500 - 2), at);
    } else {
      StoreInt(dtype, WrapTo(dtype, static_cast<int64_t>(random() % 2000) - 1000), at);
    }
  }
  return tensor;
}

// Refuses to compile while told to, everything or what has Opts.
class MoodyCompiler final : public KernelCompiler {
 public:
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override {
    if (refuse) return {kernels.size(), absl::ResourceExhaustedError("the compiler is full")};
    compiled += kernels.size();
    auto objects = compiler_.Compile(kernels);
    for (size_t i = 0; refuse_opts && i < kernels.size(); ++i)
      if (kernels[i].opts.has_value()) objects[i] = absl::InvalidArgumentError("Opts");
    return objects;
  }
  const Target& target() const override { return compiler_.target(); }
  bool refuse = false, refuse_opts = false;
  size_t compiled = 0;

 private:
  InProcessCompiler compiler_{{.target = test::DeviceTarget()}};
};

class Group {
 public:
  // `store`: of rank 0; the others have none.
  explicit Group(std::vector<int64_t> mesh, bool reference = false, TuningStore* store = nullptr,
                 int beam = 0)
      : mesh_(std::move(mesh)) {
    auto collectives = collective::MakeLoopback(mesh_);
    compilers_.resize(collectives.size());
    for (size_t rank = 0; rank < collectives.size(); ++rank) {
      engines_.push_back(
          reference ? MakeReferenceEngine(test::MakeDevice(1 << 26, 1))
                    : MakeCompiledEngine(&compilers_[rank], test::MakeDevice(1 << 26, 1),
                                         {.store = rank == 0 ? store : nullptr,
                                          .idle_compiler = &compilers_[rank],
                                          .beam = beam}));
      engines_.back()->JoinGroup(std::move(collectives[rank]));
    }
  }

  size_t ranks() const { return engines_.size(); }
  const std::vector<int64_t>& mesh() const { return mesh_; }
  Engine& engine(size_t rank) { return *engines_[rank]; }
  MoodyCompiler& compiler(size_t rank) { return compilers_[rank]; }
  // A new life after an abort.
  void Renew(uint64_t epoch) {
    auto collectives = collective::MakeLoopback(mesh_, epoch);
    for (size_t rank = 0; rank < ranks(); ++rank)
      engines_[rank]->JoinGroup(std::move(collectives[rank]));
  }

  void OnAll(const std::function<void(size_t rank)>& body) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks(); ++rank) threads.emplace_back([&, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<DeviceArrayPtr> Upload(size_t rank, const std::vector<HostTensor>& tensors) {
    std::vector<DeviceArrayPtr> arrays;
    for (const HostTensor& tensor : tensors) {
      const auto array = ValueOrDie(engines_[rank]->NewArray(tensor.dtype, tensor.dims));
      test::SetBytes(*array, tensor.bytes);
      arrays.push_back(array);
    }
    return arrays;
  }

  // By rank; the status of each.
  std::vector<absl::Status> Run(const UOp* sink, const GroupTensors& params, GroupTensors& results,
                                std::span<const Binding> bindings = {},
                                std::span<const int64_t> donated = {}) {
    std::vector<absl::Status> statuses(ranks());
    results.assign(ranks(), {});
    const GraphId id = EncodeGraph(sink)->id;
    OnAll([&](size_t rank) {
      auto made = engines_[rank]->Run(id, sink, Upload(rank, params[rank]), bindings, donated);
      statuses[rank] = made.status();
      if (!made.ok()) return;
      for (const DeviceArrayPtr& array : *made)
        results[rank].push_back({array->dtype, array->dims, test::BytesOf(*array)});
    });
    return statuses;
  }

  // Fails the test unless every rank has the bytes of the interpreter.
  void ExpectAsInterpreted(const UOp* sink, const GroupTensors& params,
                           std::span<const Binding> bindings = {},
                           std::span<const int64_t> donated = {}) {
    const auto wanted = InterpretGroup(sink, mesh_, params, bindings);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    GroupTensors made;
    for (const absl::Status& status : Run(sink, params, made, bindings, donated))
      ASSERT_TRUE(status.ok()) << status;
    for (size_t rank = 0; rank < ranks(); ++rank)
      for (size_t i = 0; i < sink->src.size(); ++i)
        EXPECT_TRUE(made[rank][i] == (*wanted)[rank][i])
            << "rank " << rank << " of " << absl::StrJoin(mesh_, "x") << ", result " << i << ": "
            << ExpressionToString(sink->src[i], 2000);
  }

 private:
  const std::vector<int64_t> mesh_;
  std::vector<MoodyCompiler> compilers_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

GroupTensors ParamsFor(const Group& group, DType dtype, const std::vector<int64_t>& dims, int count,
                       uint64_t seed) {
  GroupTensors params(group.ranks());
  for (size_t rank = 0; rank < params.size(); ++rank)
    for (int i = 0; i < count; ++i)
      params[rank].push_back(Random(dtype, dims, seed * 1000 + rank * 10 + i));
  return params;
}

// One of each collective, and the rank.
const UOp* Everything(Graph& g, DType dtype, int64_t ranks, int64_t count, int64_t stride) {
  const UOp* const x = Param(g, 0, dtype, Shape{12, 6});
  const UOp* const begin = Mul(g, Rank(g, ranks), ConstIndex(g, 2));
  const UOp* const row =
      Shrink(g, x, Shape{Dim(begin), Dim(Add(g, begin, ConstIndex(g, 2))), 0, 6});
  return Sink(g, {Make(g, Op::kAllReduce, Add(g, x, x), {kAdd, count, stride}),
                  Make(g, Op::kAllReduce, x, {kMax, count, stride}),
                  Make(g, Op::kReduceScatter, Flip(g, x, {1}), {kAdd, 1, count, stride}),
                  Make(g, Op::kUnshard, row, {1, count, stride}),
                  Make(g, Op::kAllToAll, x, {0, 1, count, stride}),
                  Make(g, Op::kCopy, row, {count - 1, count, stride}),
                  Add(g, Make(g, Op::kUnshard, x, {0, count, stride}),
                      Make(g, Op::kUnshard, Add(g, x, x), {0, count, stride}))});
}

TEST(GroupEngines, EveryCollective_HasTheInterpretersBits) {
  for (const bool reference : {false, true})
    for (const std::vector<int64_t>& mesh :
         std::vector<std::vector<int64_t>>{{1}, {2}, {3}, {2, 2}, {2, 3}}) {
      Group group(mesh, reference);
      const auto ranks = static_cast<int64_t>(group.ranks());
      for (const DType dtype : {DType::kI32, DType::kF32, DType::kBF16}) {
        Graph g;
        group.ExpectAsInterpreted(Everything(g, dtype, ranks, mesh.back(), 1),
                                  ParamsFor(group, dtype, {12, 6}, 1, 7));
        if (mesh.size() == 1) continue;
        group.ExpectAsInterpreted(Everything(g, dtype, ranks, mesh[0], mesh[1]),
                                  ParamsFor(group, dtype, {12, 6}, 1, 8));
      }
    }
}

// Over the size from which an ALLREDUCE is done in parts.
TEST(GroupEngines, LargeFolds_HaveTheInterpretersBits) {
  Group group({3});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Graph g;
    const UOp* const x = Param(g, 0, dtype, Shape{7, 4699});
    group.ExpectAsInterpreted(Sink(g, {Make(g, Op::kAllReduce, x, {kAdd, 3, 1})}),
                              ParamsFor(group, dtype, {7, 4699}, 1, 3));
  }
}

// Graphs of integers with collectives everywhere: what is fused, ordered and placed in memory
// around them must not change one bit.
const UOp* RandomGraph(Graph& g, std::mt19937_64& random, const std::vector<int64_t>& mesh) {
  const auto below = [&](size_t n) { return static_cast<int64_t>(random() % n); };
  int64_t ranks = 1;
  for (const int64_t size : mesh) ranks *= size;
  const Shape shape = {12, 6};
  std::vector<const UOp*> pool;
  for (int64_t slot = 0; slot < 3; ++slot) pool.push_back(Param(g, slot, DType::kI32, shape));
  const auto pick = [&] { return pool[static_cast<size_t>(below(pool.size()))]; };
  for (int i = 0; i < 14; ++i) {
    const size_t axis = static_cast<size_t>(below(mesh.size()));
    const int64_t count = mesh[axis];
    int64_t stride = 1;
    for (size_t inner = axis + 1; inner < mesh.size(); ++inner) stride *= mesh[inner];
    const int64_t dim = below(2);
    const UOp* const x = pick();
    switch (below(12)) {
      case 0:
        pool.push_back(Make(g, Op::kAllReduce, x, {below(2) ? kAdd : kMax, count, stride}));
        break;
      case 1:
        pool.push_back(Make(g, Op::kUnshard,
                            Make(g, Op::kReduceScatter, x, {kAdd, dim, count, stride}),
                            {dim, count, stride}));
        break;
      case 2: pool.push_back(Make(g, Op::kAllToAll, x, {dim, dim, count, stride})); break;
      case 3:
        pool.push_back(Reshape(g, Make(g, Op::kAllToAll, x, {dim, 1 - dim, count, stride}), shape));
        break;
      case 4: pool.push_back(Make(g, Op::kCopy, x, {below(count), count, stride})); break;
      case 5: {  // its own slice, of all ranks
        const int64_t part = 12 / ranks;
        const UOp* const begin = Mul(g, Rank(g, ranks), ConstIndex(g, part));
        const UOp* const mine =
            Shrink(g, x, Shape{Dim(begin), Dim(Add(g, begin, ConstIndex(g, part))), 0, 6});
        pool.push_back(Make(g, Op::kUnshard, mine, {0, ranks, 1}));
        break;
      }
      case 6: pool.push_back(Expand(g, Reduce(g, Op::kAdd, x, {dim}), shape)); break;
      case 7:
        pool.push_back(Expand(
            g, Make(g, Op::kAllReduce, Reduce(g, Op::kAdd, x, {0, 1}), {kAdd, count, stride}),
            shape));
        break;
      case 8: pool.push_back(Flip(g, x, {dim})); break;
      case 9: pool.push_back(Make(g, Op::kContiguous, Add(g, x, pick()))); break;
      default: pool.push_back(Alu(g, below(2) ? Op::kAdd : Op::kMul, x, pick()));
    }
  }
  std::vector<const UOp*> results;
  for (int i = 0; i < 3; ++i) results.push_back(pick());
  results.push_back(pool.back());
  // Every input is read, so that slots are 0, 1, 2.
  results.push_back(Add(g, pool[0], Add(g, pool[1], pool[2])));
  return Sink(g, results);
}

TEST(GroupEngines, RandomGraphs_HaveTheInterpretersBits) {
  const char* const wanted = std::getenv("OUTBOARD_RANDOM_GRAPHS");
  const int graphs = wanted != nullptr ? std::atoi(wanted) : 20;
  for (const std::vector<int64_t>& mesh :
       std::vector<std::vector<int64_t>>{{2}, {3}, {2, 2}, {2, 3}}) {
    Group group(mesh);
    for (int seed = 0; seed < graphs; ++seed) {
      SCOPED_TRACE(absl::StrCat("mesh ", absl::StrJoin(mesh, "x"), ", seed ", seed));
      std::mt19937_64 random(static_cast<unsigned>(seed));
      Graph g;
      const UOp* const sink = RandomGraph(g, random, mesh);
      const std::vector<int64_t> donated =
          seed % 2 == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{0, 1, 2};
      group.ExpectAsInterpreted(sink, ParamsFor(group, DType::kI32, {12, 6}, 3, seed), {}, donated);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(GroupEngines, OnePlan_ServesEveryRunAndBinding) {
  Group group({2});
  Graph g;
  const Dim n(Var(g, 0, 1, 9));
  const UOp* const x = Param(g, 0, DType::kI32, Shape{n, 4});
  const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Add(g, x, x), {kAdd, 2, 1}),
                                   Make(g, Op::kUnshard, x, {1, 2, 1})});
  for (const int64_t length : {1, 5, 9, 5}) {
    const Binding binding{0, length};
    group.ExpectAsInterpreted(sink, ParamsFor(group, DType::kI32, {length, 4}, 1, length),
                              {&binding, 1});
  }
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(group.engine(rank).stats().plans_made, 1u);
}

TEST(GroupEngines, Repetitions_CarryThroughCollectives) {
  // w <- sum over ranks of (w + x), 5 times.
  for (const bool reference : {false, true}) {
    Group group({2}, reference);
    Graph g;
    const UOp *const w = Param(g, 0, DType::kI32, Shape{100}), *const x = Param(g, 1, DType::kI32,
                                                                                Shape{100});
    const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Add(g, w, x), {kAdd, 2, 1})});
    GroupTensors params = ParamsFor(group, DType::kI32, {100}, 2, 5);
    params[1][0] = params[0][0];
    GroupTensors wanted = params;
    for (int i = 0; i < 5; ++i) {
      const auto next = InterpretGroup(sink, group.mesh(), wanted);
      ASSERT_TRUE(next.ok()) << next.status();
      for (size_t rank = 0; rank < 2; ++rank) wanted[rank][0] = (*next)[rank][0];
    }
    Repeat repeat;
    repeat.count = 5;
    repeat.carry = {{0, 0}};
    group.OnAll([&](size_t rank) {
      const auto made = group.engine(rank).RunRepeated(
          EncodeGraph(sink)->id, sink, group.Upload(rank, params[rank]), {}, repeat, [] {});
      ASSERT_TRUE(made.ok()) << made.status();
      EXPECT_EQ(test::BytesOf(*(*made)[0]), wanted[rank][0].bytes);
    });
  }
}

TEST(GroupEngines, ARankThatCannotPlan_IsSaidByAllAndTheGroupGoesOn) {
  Group group({3});
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI32, Shape{10});
  const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Add(g, x, x), {kAdd, 3, 1})});
  const GroupTensors params = ParamsFor(group, DType::kI32, {10}, 1, 1);
  group.compiler(1).refuse = true;
  GroupTensors results;
  const std::vector<absl::Status> statuses = group.Run(sink, params, results);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kResourceExhausted) << statuses[rank];
    EXPECT_TRUE(absl::StrContains(statuses[rank].message(), "the compiler is full"));
    EXPECT_EQ(absl::StrContains(statuses[rank].message(), "rank 1"), rank != 1) << statuses[rank];
  }
  group.compiler(1).refuse = false;
  group.ExpectAsInterpreted(sink, params);
}

// What one rank's snapshot holds is given back before the Run launches anything; the other rank
// notices nothing.
TEST(GroupEngines, ARankWithoutRoom_MakesSomeBeforeItBegins) {
  Group group({2});
  Graph g;
  constexpr int64_t kNumbers = 1 << 21;
  const UOp* const x = Param(g, 0, DType::kI32, Shape{kNumbers});
  const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Add(g, x, x), {kAdd, 2, 1})});
  const GroupTensors params = ParamsFor(group, DType::kI32, {kNumbers}, 1, 1);
  GroupTensors results;
  for (const absl::Status& status : group.Run(sink, params, results)) ASSERT_TRUE(status.ok());
  const GroupTensors expected = results;
  std::vector<std::shared_ptr<DeviceArray>> held;  // until there is no more
  for (;;) {
    auto array = group.engine(1).NewArray(DType::kI32, {kNumbers / 8});
    if (!array.ok()) break;
    held.push_back(*std::move(array));
  }
  held.resize(held.size() - 9);  // room for the input alone
  bool asked = false;
  group.engine(1).SetMakeRoom([&] {
    asked = true;
    held.clear();
  });
  for (const absl::Status& status : group.Run(sink, params, results))
    EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(asked);
  EXPECT_EQ(results, expected);
}

TEST(GroupEngines, AnAbortedCollective_FreesAllWithOneCause) {
  for (const bool reference : {false, true}) {
    Group group({3}, reference);
    Graph g;
    const UOp* const x = Param(g, 0, DType::kI32, Shape{10});
    const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, x, {kAdd, 3, 1})});
    const GroupTensors params = ParamsFor(group, DType::kI32, {10}, 1, 1);
    group.ExpectAsInterpreted(sink, params);
    std::vector<absl::Status> statuses(3);
    group.OnAll([&](size_t rank) {
      if (rank == 1) {
        group.engine(1).group()->Abort(absl::InternalError("its device has failed"));
        return;
      }
      statuses[rank] = group.engine(rank)
                           .Run(EncodeGraph(sink)->id, sink, group.Upload(rank, params[rank]), {})
                           .status();
    });
    for (const size_t rank : {0, 2}) {
      EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kUnavailable) << statuses[rank];
      EXPECT_TRUE(absl::StrContains(statuses[rank].message(), "rank 1")) << statuses[rank];
      EXPECT_TRUE(absl::StrContains(statuses[rank].message(), "its device has failed"));
    }
    // Nothing goes on in an ended group, also what needs no partner.
    const UOp* const alone = Sink(g, {Add(g, x, x)});
    GroupTensors results;
    for (const absl::Status& status : group.Run(alone, params, results))
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    group.Renew(2);
    group.ExpectAsInterpreted(sink, params);
    group.ExpectAsInterpreted(alone, params);
  }
}

TEST(GroupEngines, TheRank_IsNotForARunToBind) {
  Group group({2});
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI64, Shape{});
  const UOp* const sink = Sink(g, {Add(g, x, Rank(g, 2))});
  const GroupTensors params = {{Random(DType::kI64, {}, 1)}, {Random(DType::kI64, {}, 1)}};
  group.ExpectAsInterpreted(sink, params);
  const Binding binding{limits::kRankSlot, 0};
  GroupTensors results;
  for (const absl::Status& status : group.Run(sink, params, results, {&binding, 1}))
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

// Kernels of a group whose rank 0 has a store, in which plain loops are said to be best.
class GroupKernels : public ::testing::Test {
 protected:
  // A product and its sum over ranks, of integers, whose bits do not depend on Opts.
  static const UOp* Step(Graph& g) {
    const UOp* const x = Param(g, 0, DType::kI32, Shape{8, 8});
    const UOp* const left = Expand(g, Reshape(g, x, {8, 8, 1}), {8, 8, 8});
    const UOp* const right = Expand(g, Reshape(g, x, {1, 8, 8}), {8, 8, 8});
    return Sink(g, {Make(g, Op::kAllReduce, Reduce(g, Op::kAdd, Mul(g, left, right), {1}),
                         {kAdd, 2, 1})});
  }
  // Runs the step once on all ranks, with the interpreter's result.
  void Run(Group& group) {
    Graph g;
    group.ExpectAsInterpreted(Step(g), ParamsFor(group, DType::kI32, {8, 8}, 1, 1));
  }
  // By rank, the versions that came into use.
  static std::vector<std::vector<KernelVersion>> VersionsOf(Group& group) {
    std::vector<std::vector<KernelVersion>> versions;
    for (size_t rank = 0; rank < group.ranks(); ++rank)
      versions.push_back(group.engine(rank).TakeVersions());
    return versions;
  }
  // After a Run of `group`: its costliest kernel.
  void MakePlainBest(Group& group) {
    group.engine(0).TellCosts([] { return false; });
    const std::string hardware = test::DeviceTarget().Fingerprint();
    const auto demand =
        ValueOrDie(store_->Costliest(search::kSpaceVersion, hardware, kIdleSearchWidth));
    ASSERT_TRUE(demand.has_value());
    const auto other = ValueOrDie(codegen::ParseOpts("UNROLL:0:2"));  // said to be the heuristic's
    ASSERT_TRUE(store_->Add(demand->key, "x", {other, 1000, true, true}).ok());
    ASSERT_TRUE(store_->Add(demand->key, "x", {{}, 1, true, true}).ok());
  }
  static size_t PlainOnes(const std::vector<KernelVersion>& versions) {
    return static_cast<size_t>(
        std::ranges::count(versions, std::optional<std::string>(""), &KernelVersion::opts));
  }

  test::TempFolder folder_;
  std::unique_ptr<TuningFile> store_ = ValueOrDie(TuningFile::Open(folder_ / "kernels.db"));
};

TEST_F(GroupKernels, AreThoseThatRank0Finds) {
  Group first({2}, false, store_.get());
  Run(first);
  for (const auto& versions : VersionsOf(first)) EXPECT_EQ(PlainOnes(versions), 0u);
  MakePlainBest(first);
  Group second({2}, false, store_.get());
  Run(second);
  const auto versions = VersionsOf(second);
  EXPECT_EQ(PlainOnes(versions[0]), 1u);
  EXPECT_EQ(versions[0], versions[1]);
}

// BEAM, on rank 0 for all; also of a kernel that reads at its rank.
TEST_F(GroupKernels, AreSearchedForOnRank0) {
  Group group({2}, false, store_.get(), /*beam=*/1);
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI32, Shape{8, 8});
  const UOp* const begin = Mul(g, Rank(g, 2), ConstIndex(g, 4));
  const UOp* const mine =
      Shrink(g, x, Shape{Dim(begin), Dim(Add(g, begin, ConstIndex(g, 4))), 0, 8});
  group.ExpectAsInterpreted(Sink(g, {Make(g, Op::kUnshard, Reduce(g, Op::kAdd, mine, {1}),
                                          {0, 2, 1})}),
                            ParamsFor(group, DType::kI32, {8, 8}, 1, 1));
  const auto versions = VersionsOf(group);
  ASSERT_FALSE(versions[0].empty());
  for (const KernelVersion& version : versions[0]) EXPECT_TRUE(version.opts.has_value());
  EXPECT_EQ(versions[0], versions[1]);
  EXPECT_GT(group.compiler(0).compiled, group.compiler(1).compiled);
}

TEST_F(GroupKernels, ThatOneRankCannotMake_NoneUses) {
  Group first({2}, false, store_.get());
  Run(first);
  MakePlainBest(first);
  Group second({2}, false, store_.get());
  second.compiler(1).refuse_opts = true;
  Run(second);
  const auto versions = VersionsOf(second);
  EXPECT_FALSE(versions[0].empty());
  EXPECT_EQ(PlainOnes(versions[0]), 0u);
  EXPECT_EQ(versions[0], versions[1]);
}

TEST_F(GroupKernels, AreReplacedOnAllRanksAtOneRun) {
  for (const bool refuses : {false, true}) {
    Group group({2}, false, store_.get());
    group.compiler(1).refuse_opts = refuses;
    Run(group);
    if (!refuses) MakePlainBest(group);
    VersionsOf(group);
    std::vector<int> at;  // Runs after the first
    for (int run = 1; run <= 130; ++run) {
      Run(group);
      const auto versions = VersionsOf(group);
      EXPECT_EQ(versions[0], versions[1]);
      if (!versions[0].empty()) at.push_back(run);
    }
    EXPECT_EQ(at, refuses ? std::vector<int>{} : std::vector<int>{64});
  }
}

TEST(GroupEngines, AGraphForAGroup_OnOneDeviceAloneIsRefused) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI32, Shape{10});
  const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, x, {kAdd, 2, 1})});
  MoodyCompiler compiler;
  for (const auto& engine : {MakeCompiledEngine(&compiler, test::MakeDevice(1 << 26, 1), {}),
                             MakeReferenceEngine(test::MakeDevice(1 << 26, 1))}) {
    const auto array = ValueOrDie(engine->NewArray(DType::kI32, {10}));
    EXPECT_FALSE(engine->Run(EncodeGraph(sink)->id, sink, {array}, {}).ok());
  }
}

}  // namespace
}  // namespace outboard::worker
