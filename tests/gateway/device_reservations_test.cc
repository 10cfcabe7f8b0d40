// How long devices are kept for a request of several, and what that costs its account.
#include <gtest/gtest.h>

#include "tests/gateway/device_shop.h"

namespace outboard::gateway {
namespace {

// One account kept seven of eight devices idle for as long as another one's session ran.
TEST(DeviceQueue, AReservationHasAnEnd_AndWhatItKeptGoesToTheNext) {
  Shop shop({Pool(1, 8)});
  shop.Open(1, kCara);
  shop.Start();
  shop.queue.RememberUse(kBert, 36'000, shop.now);  // so that Anna is next
  shop.Open(2, kAnna, {.devices = 8});
  shop.Open(3, kBert);
  EXPECT_EQ(shop.Start(), Sessions{});
  int reserved_s = 0, waited_s = 0;
  for (int s = 0; s < 7200; ++s) {
    shop.Pass(1);
    for (const uint64_t id : shop.Start()) waited_s = id == 3 ? s + 1 : waited_s;
    reserved_s += shop.pools.reserved_by().has_value();
  }
  EXPECT_EQ(waited_s, 300);
  EXPECT_NEAR(reserved_s, 3600, 300) << "it is reserved again after as long a time";
  EXPECT_GT(shop.queue.shares().UsedS(kAnna, shop.now), 1000) << "who keeps it uses it";
  // Once all are free it has them.
  shop.Leave(1);
  shop.Leave(3);
  EXPECT_EQ(shop.Start(), Sessions{2});
  // What was reserved has come: the next one need not wait.
  shop.Leave(2);
  shop.Open(4, kBert);
  EXPECT_EQ(shop.Start(), Sessions{4});
  shop.Open(5, kAnna, {.devices = 8});
  shop.Start();
  EXPECT_TRUE(shop.pools.reserved_by().has_value());
}

TEST(DeviceQueue, AReservationThatIsGivenUp_IsNotHadAnewAtOnce) {
  Shop shop({Pool(1, 8)});
  shop.Open(1, kCara);
  shop.Start();
  int reserved_s = 0;
  uint64_t last = 10;
  for (int round = 0; round < 10; ++round) {
    shop.Open(++last, kAnna, {.devices = 8});
    shop.Start();
    for (int s = 0; s < 200; ++s) {
      shop.Pass(1);
      shop.Start();
      reserved_s += shop.pools.reserved_by().has_value();
    }
    shop.queue.Remove(Session(last), shop.pools);
  }
  EXPECT_NEAR(reserved_s, 1000, 150);
  // Another account's turn does not wait for hers.
  shop.Open(++last, kBert, {.devices = 8});
  shop.Start();
  EXPECT_TRUE(shop.pools.reserved_by().has_value());
}

// Its devices are there, and cannot be taken yet: to withdraw then is to give up all the same.
TEST(DeviceQueue, AReservationThatIsGivenUpWhileItsPlaceIsNotReady_IsNotHadAnewAtOnce) {
  Shop shop({Pool(1, 8)});
  shop.Open(1, kCara);
  shop.Start();
  shop.Open(2, kAnna, {.devices = 8});
  shop.Start();
  ASSERT_TRUE(shop.pools.reserved_by().has_value());
  for (int s = 0; s < 100; ++s) shop.Pass(1);
  shop.Leave(1);
  const std::vector<DeviceGrant> grants = shop.queue.Next(shop.pools, {});
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_TRUE(shop.queue.Next(shop.pools, {grants.front().session}).empty());
  shop.queue.Remove(Session(2), shop.pools);
  shop.Open(3, kCara);
  shop.Start();
  shop.Open(4, kAnna, {.devices = 8});
  shop.Start();
  EXPECT_FALSE(shop.pools.reserved_by().has_value());
}

}  // namespace
}  // namespace outboard::gateway
