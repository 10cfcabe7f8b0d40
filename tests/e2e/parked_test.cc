// A worker whose memory is short, with real processes: the session of a program that is away is
// saved, put away for the next, and goes on from there.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>

#include "tests/net/fault_proxy.h"
#include "tests/support/cluster.h"
#include "tests/support/step.h"

namespace outboard {
namespace {

using test::Eventually;

constexpr int64_t kRows = 4096, kColumns = 4096;  // 64 MB of floats

// An array of kRows * kColumns times `value`, in the cloud.
uint64_t MakeLarge(Session& session, float value) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(1), Dim(1)});
  const UOp* const large = Expand(g, Add(g, x, x), {Dim(kRows), Dim(kColumns)});
  const int64_t dims[] = {1, 1};
  const uint64_t input = session.NewHandle(), output = session.NewHandle();
  const float half = value / 2;
  EXPECT_TRUE(
      session.Put(input, DType::kF32, dims, {reinterpret_cast<const char*>(&half), sizeof half})
          .ok());
  EXPECT_TRUE(session.Run(test::RequestOf(Sink(g, {large}), {input}, {output}, false)).ok());
  session.Release(input);
  EXPECT_TRUE(session.Sync().ok());
  return output;
}

// The sum of its rows' largest values.
absl::StatusOr<float> SumOfMaxima(Session& session, uint64_t large) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(kRows), Dim(kColumns)});
  const UOp* const sum = Reduce(g, Op::kAdd, Reduce(g, Op::kMax, x, {1}), {0, 1});
  const uint64_t output = session.NewHandle();
  auto seq = session.Run(test::RequestOf(Sink(g, {sum}), {large}, {output}, /*fetch=*/true));
  if (!seq.ok()) return seq.status();
  auto value = session.Await(*seq, 0);
  if (!value.ok()) return value.status();
  float result = 0;
  if (value->bytes.size() != sizeof result) return absl::DataLossError("a value of another size");
  std::memcpy(&result, value->bytes.data(), sizeof result);
  return result;
}

TEST(Parked, WhatAProgramLeftIsSavedBeforeTheNextGetsItsMemory) {
  test::Cluster cluster;
  // By the clock no snapshot would be taken.
  cluster.StartGateway("--snapshot-every 3600");
  const auto worker = cluster.StartWorker("--session-memory 256MB");
  test::FaultProxy proxy(cluster.target());
  session::SessionOptions through_proxy = cluster.Options();
  through_proxy.target = proxy.address();
  through_proxy.protection = {};
  auto away = Session::Connect(through_proxy);
  ASSERT_TRUE(away.ok()) << away.status();
  const uint64_t large = MakeLarge(**away, 0.25f);
  const auto log = [&] { return cluster.gateway().err(); };

  proxy.SetRefuse(true);
  proxy.CutAll();
  // It waits until the device is idle, and then for the snapshot.
  auto next = Session::Connect(cluster.Options());
  ASSERT_TRUE(next.ok()) << next.status() << log();
  EXPECT_TRUE(test::Step(**next).ok());
  EXPECT_TRUE(Eventually([&] { return log().find("event=session_stored") != std::string::npos; }))
      << log();
  EXPECT_NE(log().find("saved=true"), std::string::npos) << log();
  EXPECT_TRUE(Eventually([&] {
    return test::DescendantsNamed(worker->pid(), "executor").size() == 2;
  })) << "and the spare one";
  EXPECT_TRUE((*next)->Close().ok());

  proxy.SetRefuse(false);
  const auto sum = SumOfMaxima(**away, large);
  ASSERT_TRUE(sum.ok()) << sum.status() << log();
  EXPECT_EQ(*sum, 0.25f * kRows);
  EXPECT_EQ(log().find("event=session_moving"), std::string::npos) << "it was no loss";
  EXPECT_TRUE((*away)->Close().ok());
}

}  // namespace
}  // namespace outboard
