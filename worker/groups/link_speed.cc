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
