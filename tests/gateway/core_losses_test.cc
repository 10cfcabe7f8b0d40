// Which losses of executors a session is blamed for (G8 in core.cc).
#include <gtest/gtest.h>

#include "tests/gateway/core_world.h"

namespace outboard::gateway {
namespace {

using test::World;

CoreOptions Recoverable() {
  CoreOptions options;
  options.snapshot_ns = 30 * kSecondNs;
  return options;
}

TEST(GatewayCoreLosses, G8WhatBringsDownEveryExecutorEndsAtTheThird) {
  World w(Recoverable());
  w.Join(1);
  SessionId id = w.OpenLive(1);
  for (uint64_t placement = 1; placement <= 3; ++placement) {
    ASSERT_EQ(w.core.session_count(), 1u) << placement;
    w.Tell(ExecutorGone{id, absl::UnavailableError("signal 11"), true, placement});
    if (placement < 3) w.Tell(ExecutorAttached{id, {}});
  }
  EXPECT_EQ(w.core.session_count(), 0u);
  ASSERT_NE(w.Get<EndClient>(), nullptr);
  EXPECT_EQ(w.Get<EndClient>()->why.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(w.core.devices_busy(), 0u);
}

TEST(GatewayCoreLosses, G8AnExecutorThatItsWorkDidNotReach_IsNotItsFault) {
  World w(Recoverable());
  w.Join(1);
  SessionId id = w.OpenLive(1);
  const auto lose = [&](uint64_t placement) {
    w.Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true, placement});
  };
  lose(1);
  lose(2);  // not attached: it was the spare one, killed with the first
  w.Tell(ExecutorAttached{id, {}});
  lose(3);
  ASSERT_NE(w.Get<Assign>(), nullptr);
  for (uint64_t placement = 4; placement < 11; ++placement) lose(placement);
  EXPECT_EQ(w.core.session_count(), 1u);
  lose(11);  // where none can be started it is not tried for ever
  EXPECT_NE(w.Get<EndClient>(), nullptr);
}

TEST(GatewayCoreLosses, G8LossesFarApartAreNotCounted) {
  World w(Recoverable());
  w.Join(1);
  SessionId id = w.OpenLive(1);
  for (uint64_t placement = 1; placement <= 5; ++placement) {
    w.Pass(400, {WorkerId{1}}, {id});
    w.Tell(ExecutorGone{id, absl::UnavailableError("signal 9"), true, placement});
    w.Tell(ExecutorAttached{id, {}});
    ASSERT_NE(w.Get<Live>(), nullptr) << placement;
  }
}

}  // namespace
}  // namespace outboard::gateway
