// What a session may take of its device: memory and time. Beyond either it is told so, and others
// notice nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "compiler/ir/build.h"
#include "tests/support/cluster.h"
#include "tests/support/documented.h"

namespace outboard {
namespace {

using absl::StatusCode;
using test::Step;

TEST(Limits, MemoryIsNamedAndTheSessionGoesOn) {
  test::Cluster cluster;
  cluster.StartUp(1, "--session-memory 8MiB");
  auto session = cluster.Connect();
  ASSERT_NE(session, nullptr);
  Graph g;
  const UOp* one = ConstFloat(g, DType::kF32, 1.0);
  const auto ones = [&](int64_t count) { return Sink(g, {Full(g, one, {Dim(count)})}); };
  const uint64_t large = session->NewHandle(), small = session->NewHandle();
  auto seq = session->Run(test::RequestOf(ones(int64_t{4} << 20), {}, {large}, /*fetch=*/true));
  ASSERT_TRUE(seq.ok()) << seq.status();
  const absl::Status status = session->Await(*seq, 0).status();
  test::ExpectAsDocumented("The device has no more memory", status);
  EXPECT_NE(std::string(status.message()).find("16777216"), std::string::npos) << status;
  EXPECT_NE(std::string(status.message()).find("8388608"), std::string::npos) << status;
  seq = session->Run(test::RequestOf(ones(1000), {}, {small}, /*fetch=*/true));
  EXPECT_TRUE(session->Await(*seq, 0).ok());
  EXPECT_TRUE(Step(*session).ok());
  EXPECT_TRUE(session->Close().ok());
  EXPECT_TRUE(cluster.Books()->Verify().ok());
}

TEST(Limits, AStepThatIsTooLongEndsItsSessionOnly) {
  test::Cluster cluster;
  cluster.StartUp(2, "", {"OUTBOARD_STEP_SECONDS=1"});
  auto slow = cluster.Connect(), other = cluster.Connect();
  ASSERT_TRUE(slow != nullptr && other != nullptr);
  ASSERT_TRUE(Step(*slow).ok());
  Graph g;
  // Minutes of sines.
  const int64_t rows = 1 << 8, columns = 1 << 30;
  const UOp* i = Reshape(g, Iota(g, DType::kI64, Dim(rows)), {Dim(rows), Dim(1)});
  const UOp* j = Reshape(g, Iota(g, DType::kI64, Dim(columns)), {Dim(1), Dim(columns)});
  const UOp* angles =
      Mul(g, Expand(g, i, {Dim(rows), Dim(columns)}), Expand(g, j, {Dim(rows), Dim(columns)}));
  const UOp* sines = Alu(g, Op::kSin, Cast(g, angles, DType::kF32));
  const UOp* sum = Reduce(g, Op::kAdd, sines, {0, 1});
  auto seq = slow->Run(test::RequestOf(Sink(g, {sum}), {}, {slow->NewHandle()}, /*fetch=*/true));
  ASSERT_TRUE(seq.ok()) << seq.status();
  std::atomic<bool> ended{false};
  std::thread neighbour([&] {
    while (!ended) EXPECT_TRUE(Step(*other).ok());
  });
  test::ExpectAsDocumented("A step takes too long", slow->Await(*seq, 0).status());
  ended = true;
  neighbour.join();
  auto next = cluster.Connect();
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(Step(*next).ok());
  EXPECT_TRUE(cluster.Books()->Verify().ok());
}

}  // namespace
}  // namespace outboard
