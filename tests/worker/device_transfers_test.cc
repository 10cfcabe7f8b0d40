// Groups whose transfers are between devices, over the tests' own NCCL: on the CPU, whose addresses
// are the host's.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "runtime/collective/loopback.h"
#include "tests/runtime/nccl_ranks.h"
#include "tests/support/device.h"
#include "tests/support/paths.h"
#include "tests/worker/engine_group.h"
#include "worker/groups/device_transfers.h"

namespace outboard::worker {
namespace {

using Collectives = std::vector<std::unique_ptr<collective::Collective>>;

class DeviceTransfersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::DeviceKind() != runtime::kCpu)
      GTEST_SKIP() << "the tests' NCCL reads the memory of the CPU alone";
  }
  // As executors join; `library` by rank. Streams are never destroyed, as what they have queued.
  static Collectives JoinAll(const std::vector<std::string>& libraries) {
    class Stream final : public collective::NcclStream {
     public:
      void* handle() override { return stream_->handle(); }
      absl::StatusOr<uint64_t> Mark() override { return stream_->Mark(); }
      absl::StatusOr<bool> IsDone(uint64_t mark) override { return stream_->IsDone(mark); }

     private:
      test::FakeNcclStream* const stream_ = new test::FakeNcclStream;
    };
    Collectives joined = collective::MakeLoopback({static_cast<int64_t>(libraries.size())});
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < libraries.size(); ++rank)
      threads.emplace_back([&, rank] {
        const DeviceTransfers transfers{
            libraries[rank], [] { return std::make_unique<Stream>(); }};
        joined[rank] = ValueOrDie(WithDeviceTransfers(std::move(joined[rank]), transfers));
      });
    for (std::thread& thread : threads) thread.join();
    return joined;
  }
};

TEST_F(DeviceTransfersTest, EveryCollective_HasTheInterpretersBits) {
  for (const std::vector<int64_t>& mesh : std::vector<std::vector<int64_t>>{{2}, {3}, {2, 2}}) {
    Group group(mesh);
    group.Join(test::MakeNcclRanks(mesh));
    ExpectEveryCollectiveAsInterpreted(group);
  }
}

TEST_F(DeviceTransfersTest, ARankThatCannotPlan_IsSaidByAll_AndOneThatLeavesFreesAll) {
  Group group({2});
  group.Join(test::MakeNcclRanks({2}));
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI32, Shape{10});
  const UOp* const sink = Sink(g, {Make(g, Op::kAllReduce, Add(g, x, x), {kAdd, 2, 1})});
  const GroupTensors params = ParamsFor(group, DType::kI32, {10}, 1, 1);
  GroupTensors results;
  group.compiler(1).refuse = true;
  for (const absl::Status& status : group.Run(sink, params, results))
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  group.compiler(1).refuse = false;
  group.ExpectAsInterpreted(sink, params);
  group.OnAll([&](size_t rank) {
    if (rank == 1)
      return group.engine(1).group()->Abort(absl::InternalError("its device has failed"));
    const absl::Status status =
        group.engine(0)
            .Execute(EncodeGraph(sink)->id, sink, group.Upload(0, params[0]), {})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "its device has failed")) << status;
  });
}

TEST_F(DeviceTransfersTest, WhereAllRanksHaveTheLibrary_AllUseIt_ElseNone) {
  for (const std::string& of_one :
       {std::string(test::kFakeNccl), std::string("/no/libnccl.so.2")}) {
    const bool all = of_one == test::kFakeNccl;
    Collectives joined = JoinAll({test::kFakeNccl, of_one});
    for (const auto& rank : joined) EXPECT_EQ(rank->takes_device_memory(), all);
    Group group({2});
    group.Join(std::move(joined));
    Graph g;
    const UOp* const x = Param(g, 0, DType::kI32, Shape{10});
    group.ExpectAsInterpreted(Sink(g, {Make(g, Op::kAllReduce, x, {kAdd, 2, 1})}),
                              ParamsFor(group, DType::kI32, {10}, 1, 1));
  }
}

TEST_F(DeviceTransfersTest, NothingIsAskedOfNccl_WhereNobodyNamesIt) {
  EXPECT_EQ(DeviceTransfersOf("cuda"), nullptr);
  EXPECT_EQ(DeviceTransfersOf("cpu"), nullptr);
}

}  // namespace
}  // namespace outboard::worker
