// Uploads and downloads under way: one tenant's do not shut out another's, and one whose client
// says nothing is ended.
#include "gateway/streams/transfer_limiter.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

#include "gateway/base/limits.h"

namespace outboard::gateway {
namespace {

constexpr TenantId kA{1}, kB{2};

TEST(TransferLimiter, AreLimitedByTenant) {
  TransferLimiter transfers("uploads", std::chrono::hours(1));
  std::vector<std::unique_ptr<TransferLimiter::Transfer>> of_a;
  for (int i = 0; i < kTransfersPerTenantMax; ++i) {
    auto transfer = transfers.Begin(kA, [] {});
    ASSERT_TRUE(transfer.ok()) << transfer.status();
    of_a.push_back(*std::move(transfer));
  }
  EXPECT_TRUE(absl::IsUnavailable(transfers.Begin(kA, [] {}).status()));
  EXPECT_TRUE(transfers.Begin(kB, [] {}).ok());
  of_a.pop_back();
  EXPECT_TRUE(transfers.Begin(kA, [] {}).ok());
}

TEST(TransferLimiter, AreLimitedInAll) {
  TransferLimiter transfers("uploads", std::chrono::hours(1));
  std::vector<std::unique_ptr<TransferLimiter::Transfer>> all;
  for (size_t i = 0; i < kTransfersMax; ++i) {
    auto transfer = transfers.Begin(TenantId{static_cast<int64_t>(i)}, [] {});
    ASSERT_TRUE(transfer.ok()) << transfer.status();
    all.push_back(*std::move(transfer));
  }
  EXPECT_TRUE(absl::IsUnavailable(transfers.Begin(TenantId{-1}, [] {}).status()));
}

TEST(TransferLimiter, OneThatWaitsForItsClientIsCancelled) {
  TransferLimiter transfers("uploads", std::chrono::milliseconds(20));
  std::promise<void> first, second;
  bool busy_cancelled = false;
  const auto busy = *transfers.Begin(kA, [&] { busy_cancelled = true; });  // on our side
  auto went_on = *transfers.Begin(kA, [&] { busy_cancelled = true; });
  went_on->Waits();
  went_on->Goes();
  std::unique_ptr<TransferLimiter::Transfer> ends = *transfers.Begin(kA, [&] {
    ends.reset();  // as a call that ends within its being cancelled
    first.set_value();
  });
  const auto stays = *transfers.Begin(kA, [&] { second.set_value(); });
  ends->Waits();
  stays->Waits();
  first.get_future().wait();
  second.get_future().wait();
  EXPECT_FALSE(busy_cancelled);
}

}  // namespace
}  // namespace outboard::gateway
