// What a dry session counts, and that it has no values.
#include "client/session/dry_session.h"

#include <gtest/gtest.h>

#include "client/session/current_session.h"
#include "client/tensor/tensor.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

TEST(DrySession, StepsAreBuiltAndCountedAndHaveNoValues) {
  SetSession(MakeDrySession());
  Tensor w = Tensor::from<float>({1, 2, 3, 4}).state_();
  for (int i = 0; i < 3; ++i) {
    w.assign(w * 2);
    w.realize();
  }
  const session::Stats stats = SessionIfConnected()->stats();
  EXPECT_EQ(stats.runs, 3u);
  EXPECT_EQ(stats.steps, 3u);
  EXPECT_EQ(stats.bytes_up, 4 * sizeof(float));
  EXPECT_EQ(StatusOf([&] { w.to_host(); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(SessionIfConnected()->Sync().ok());
  EXPECT_TRUE(SessionIfConnected()->status().ok());
  EXPECT_TRUE(CloseSession().ok());
  SetSession(nullptr);
}

}  // namespace
}  // namespace outboard
