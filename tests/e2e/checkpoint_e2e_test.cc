// A checkpoint in the cloud, by real processes: saved in one session, loaded to the bit in the
// next, and nothing of it passes through the program.
#include <gtest/gtest.h>

#include "base/check.h"
#include "client/nn/checkpoint.h"
#include "client/session/current_session.h"
#include "tests/support/cluster.h"

namespace outboard {
namespace {

TEST(Checkpoint, OutlivesItsSessionAndTravelsNowhere) {
  test::Cluster cluster;
  cluster.StartUp(1);
  const auto connect = [&] { SetSession(ValueOrDie(Session::Connect(cluster.Options()))); };
  constexpr uint64_t kBytes = 700'000 * sizeof(float);
  connect();
  std::string bytes;
  {
    Tensor w = Tensor::randn({700, 1000}), b = Tensor::arange(5);
    const SavedBytes saved = save("run/1", {{"w", w}, {"b", b}});
    EXPECT_EQ(saved.total, kBytes + 5 * sizeof(int32_t));
    EXPECT_LT(save("run/2", {{"w", w}}).sent, 200u);  // its list: w is stored already
    EXPECT_LT(SessionIfConnected()->stats().bytes_down, kBytes / 10);
    bytes = w.to_host().bytes;
  }
  ASSERT_TRUE(CloseSession().ok());
  connect();
  {
    const nn::StateDict state = load("run/1");
    ASSERT_EQ(state.size(), 2u);
    EXPECT_EQ(state[0].second.to_vector<int32_t>(), (std::vector<int32_t>{0, 1, 2, 3, 4}));
    EXPECT_LT(SessionIfConnected()->stats().bytes_down, kBytes / 10);
    EXPECT_EQ(state[1].second.to_host().bytes, bytes);
    EXPECT_LT(SessionIfConnected()->stats().bytes_up, kBytes / 10);
  }
  ASSERT_TRUE(CloseSession().ok());
}

}  // namespace
}  // namespace outboard
