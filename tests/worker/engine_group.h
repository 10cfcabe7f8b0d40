// Engines of a group, each a rank in a thread of its own, and the interpreter for groups, whose
// bits they have.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/reference/interpret_group.h"
#include "runtime/collective/loopback.h"
#include "tests/support/device.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/engine.h"

namespace outboard::worker {

using GroupTensors = std::vector<std::vector<HostTensor>>;

inline constexpr int64_t kAdd = static_cast<int64_t>(Op::kAdd);
inline constexpr int64_t kMax = static_cast<int64_t>(Op::kMax);

inline const UOp* Make(Graph& g, Op op, const UOp* x, std::vector<int64_t> arg = {}) {
  return g.MakeChecked(op, DType::kVoid, {x}, arg);
}
inline const UOp* Rank(Graph& g, int64_t ranks) { return Var(g, limits::kRankSlot, 0, ranks - 1); }

inline HostTensor Random(DType dtype, std::vector<int64_t> dims, uint64_t seed) {
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

// Refuses to compile while told to, everything, what has Opts, or what is in several copies. Of
// `driver_takes_plain_alone` no driver takes what it compiles but plain loops.
class MoodyCompiler final : public KernelCompiler {
 public:
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override {
    if (refuse) return {kernels.size(), refusal};
    compiled += kernels.size();
    auto objects = compiler_.Compile(kernels);
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (refuse_opts && kernels[i].opts.has_value())
        objects[i] = absl::InvalidArgumentError("Opts");
      if (objects[i].ok() && objects[i]->copies > copies_max)
        objects[i] = absl::InvalidArgumentError("copies");
      if (driver_takes_plain_alone && objects[i].ok() && kernels[i].opts != "")
        objects[i]->object = "not for this driver";
    }
    return objects;
  }
  const Target& target() const override { return compiler_.target(); }
  bool refuse = false, refuse_opts = false;
  int copies_max = CompiledKernel::kCopiesMax;  // a kernel in more copies is refused
  absl::Status refusal = absl::ResourceExhaustedError("the compiler is full");
  bool driver_takes_plain_alone = false;
  size_t compiled = 0;

 private:
  InProcessCompiler compiler_{{.target = test::DeviceTarget()}};
};

class Group {
 public:
  // `store`: of rank 0; the others have none.
  explicit Group(std::vector<int64_t> mesh, bool reference = false, TuningStore* store = nullptr,
                 int beam = 0, size_t plans_max = 256)
      : mesh_(std::move(mesh)) {
    auto collectives = collective::MakeLoopback(mesh_);
    compilers_.resize(collectives.size());
    for (size_t rank = 0; rank < collectives.size(); ++rank) {
      engines_.push_back(
          reference ? MakeReferenceEngine(test::MakeDevice(1 << 26, 1))
                    : MakeCompiledEngine(&compilers_[rank], test::MakeDevice(1 << 26, 1),
                                         {.store = rank == 0 ? store : nullptr,
                                          .idle_compiler = &compilers_[rank],
                                          .beam = beam,
                                          .plans_max = plans_max}));
      engines_.back()->JoinGroup(std::move(collectives[rank]));
    }
  }

  size_t ranks() const { return engines_.size(); }
  const std::vector<int64_t>& mesh() const { return mesh_; }
  Engine& engine(size_t rank) { return *engines_[rank]; }
  MoodyCompiler& compiler(size_t rank) { return compilers_[rank]; }
  // From now on they exchange data so.
  void Join(std::vector<std::unique_ptr<collective::Collective>> collectives) {
    for (size_t rank = 0; rank < ranks(); ++rank)
      engines_[rank]->JoinGroup(std::move(collectives[rank]));
  }
  // A new life after an abort.
  void Renew(uint64_t epoch) {
    Join(collective::MakeLoopback(mesh_, epoch));
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
      auto made = engines_[rank]->Execute(id, sink, Upload(rank, params[rank]), bindings, donated);
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
  std::deque<MoodyCompiler> compilers_;  // which cannot be moved
  std::vector<std::unique_ptr<Engine>> engines_;
};

inline GroupTensors ParamsFor(const Group& group, DType dtype, const std::vector<int64_t>& dims,
                              int count, uint64_t seed) {
  GroupTensors params(group.ranks());
  for (size_t rank = 0; rank < params.size(); ++rank)
    for (int i = 0; i < count; ++i)
      params[rank].push_back(Random(dtype, dims, seed * 1000 + rank * 10 + i));
  return params;
}

// One of each collective, and the rank.
inline const UOp* Everything(Graph& g, DType dtype, int64_t ranks, int64_t count, int64_t stride) {
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

// Fails the test unless every collective, over each axis of the group's mesh, has the bytes of the
// interpreter.
inline void ExpectEveryCollectiveAsInterpreted(Group& group) {
  const std::vector<int64_t>& mesh = group.mesh();
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

}  // namespace outboard::worker
