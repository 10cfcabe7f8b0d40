#include "worker/groups/link_speed.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/collective/sockets.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRanks = 2;
constexpr size_t kBlockBytes = size_t{4} << 20;  // a bucket of gradients
constexpr size_t kMessageBytes = 64;
constexpr int kBlocks = 4, kMessages = 50;

// What each of `rounds` all-gathers takes, at best: others use the machine, too.
absl::StatusOr<double> SecondsOf(collective::Collective& rank, size_t block_bytes, int rounds) {
  const std::vector<char> send(block_bytes);
  std::vector<char> receive(kRanks * block_bytes);
  const collective::BlockTransfer transfer{
      .pattern = collective::TransferPattern::kAllGather,
      .count = kRanks,
      .send = send,
      .receive = receive};
  double best = 0;
  for (int i = 0; i < rounds; ++i) {
    const Clock::time_point begin = Clock::now();
    OB_ASSIGN_OR_RETURN(const collective::TransferId id, rank.Start({&transfer, 1}));
    OB_RETURN_IF_ERROR(rank.Wait(id));
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

absl::StatusOr<LinkSpeed> MeasureAs(collective::Collective& rank) {
  OB_RETURN_IF_ERROR(SecondsOf(rank, kBlockBytes, 1).status());  // memory and sockets grow
  OB_ASSIGN_OR_RETURN(const double message_s, SecondsOf(rank, kMessageBytes, kMessages));
  OB_ASSIGN_OR_RETURN(const double block_s, SecondsOf(rank, kBlockBytes, kBlocks));
  return LinkSpeed{.bytes_per_s = static_cast<double>(kBlockBytes) /
                                  std::max(block_s - message_s, 0.1 * block_s),
                   .message_s = message_s};
}

}  // namespace

namespace {

// The larger of what both ranks have measured.
absl::StatusOr<double> Slower(collective::Collective& rank, double seconds) {
  double both[kRanks] = {};
  const collective::BlockTransfer transfer{
      .pattern = collective::TransferPattern::kAllGather,
      .count = kRanks,
      .send = {reinterpret_cast<const char*>(&seconds), sizeof seconds},
      .receive = {reinterpret_cast<char*>(both), sizeof both}};
  OB_ASSIGN_OR_RETURN(const collective::TransferId id, rank.Start({&transfer, 1}));
  OB_RETURN_IF_ERROR(rank.Wait(id));
  for (const double one : both)  // it came from another machine
    if (!(one >= 0 && one < 1e6)) return absl::InvalidArgumentError("a time that cannot be");
  return std::max(both[0], both[1]);
}

}  // namespace

absl::StatusOr<LinkSpeed> MeasureLinkOf(collective::Collective& rank) {
  constexpr size_t kFirstBytes = size_t{64} << 10, kGrowth = 4;
  constexpr double kNextMostS = 0.2;  // what the next size would take, twice
  OB_RETURN_IF_ERROR(SecondsOf(rank, kMessageBytes, 1).status());  // it connects first
  OB_ASSIGN_OR_RETURN(double message_s, SecondsOf(rank, kMessageBytes, 10));
  OB_ASSIGN_OR_RETURN(message_s, Slower(rank, message_s));
  for (size_t bytes = kFirstBytes;; bytes *= kGrowth) {
    OB_ASSIGN_OR_RETURN(double seconds, SecondsOf(rank, bytes, 2));
    OB_ASSIGN_OR_RETURN(seconds, Slower(rank, seconds));  // so that both go on, or neither
    if (bytes * kGrowth <= kBlockBytes && 2 * kGrowth * seconds <= kNextMostS) continue;
    return LinkSpeed{.bytes_per_s =
                         static_cast<double>(bytes) / std::max(seconds - message_s, 0.1 * seconds),
                     .message_s = message_s};
  }
}

absl::StatusOr<LinkSpeed> MeasureLink() {
  OB_ASSIGN_OR_RETURN(std::vector<std::vector<int>> sockets, collective::ConnectRanks(kRanks));
  std::vector<std::unique_ptr<collective::Collective>> ranks;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    OB_ASSIGN_OR_RETURN(std::unique_ptr<collective::Collective> made,
                        collective::MakeOverSockets({.rank = rank, .mesh = {kRanks}, .epoch = 1},
                                                    std::move(sockets[rank])));
    ranks.push_back(std::move(made));
  }
  std::thread partner([&] { MeasureAs(*ranks[1]).status().IgnoreError(); });
  absl::StatusOr<LinkSpeed> speed = MeasureAs(*ranks[0]);
  if (!speed.ok()) ranks[0]->Abort(speed.status());
  partner.join();
  return speed;
}

}  // namespace outboard::worker
