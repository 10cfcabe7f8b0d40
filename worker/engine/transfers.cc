#include "worker/engine/transfers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::worker {
namespace {

// What a rank says of itself: the code of its status, and the beginning of its message.
constexpr size_t kMessageBytes = 508;
struct Fare {
  int32_t code = 0;
  char message[kMessageBytes] = {};
};

collective::TransferPattern PatternOf(Op op) {
  if (op == Op::kUnshard) return collective::TransferPattern::kAllGather;
  return op == Op::kAllToAll ? collective::TransferPattern::kAllToAll
                             : collective::TransferPattern::kBroadcast;
}

}  // namespace

absl::Status Transfers::Start(int bucket) {
  if (group_ == nullptr)
    return absl::InternalError("a graph for a group of devices runs on one that is in none");
  OB_RETURN_IF_ERROR(device_->Synchronize());
  const std::vector<int>& transfers = schedule_->buckets[bucket];
  Bucket& now = started_[bucket];
  now.staged.resize(2 * transfers.size());
  std::vector<collective::BlockTransfer> together;
  for (size_t i = 0; i < transfers.size(); ++i) {
    const schedule::ScheduledTransfer& transfer = schedule_->transfers[transfers[i]];
    const int64_t sent = schedule_->buffers[transfer.send].bytes(),
                  received = schedule_->buffers[transfer.receive].bytes();
    const char* from = device_->HostBytes((*memory_)[transfer.send]);
    char* to = device_->HostBytes((*memory_)[transfer.receive]);
    if (from == nullptr || to == nullptr) {
      std::string &send = now.staged[i], &receive = now.staged[transfers.size() + i];
      send.resize(static_cast<size_t>(sent));
      receive.resize(static_cast<size_t>(received));
      OB_RETURN_IF_ERROR(device_->Download((*memory_)[transfer.send], sent, send.data()));
      from = send.data();
      to = receive.data();
    }
    together.push_back({PatternOf(transfer.op),
                        transfer.count,
                        transfer.stride,
                        transfer.root,
                        {from, static_cast<size_t>(sent)},
                        {to, static_cast<size_t>(received)}});
  }
  OB_ASSIGN_OR_RETURN(now.id, group_->Start(together));
  return absl::OkStatus();
}

absl::Status Transfers::Wait(int bucket) {
  const auto found = started_.find(bucket);
  OB_CHECK(found != started_.end());
  OB_RETURN_IF_ERROR(group_->Wait(found->second.id));
  const std::vector<int>& transfers = schedule_->buckets[bucket];
  for (size_t i = 0; i < transfers.size(); ++i)
    if (const std::string& received = found->second.staged[transfers.size() + i]; !received.empty())
      OB_RETURN_IF_ERROR(
          device_->Upload((*memory_)[schedule_->transfers[transfers[i]].receive], received));
  started_.erase(found);
  return absl::OkStatus();
}

absl::Status Agree(collective::Collective& group, const absl::Status& mine) {
  const int64_t ranks = group.member().ranks();
  Fare fare{.code = static_cast<int32_t>(mine.code())};
  const std::string text(mine.message());
  std::memcpy(fare.message, text.data(), std::min(text.size(), kMessageBytes - 1));
  std::vector<Fare> all(static_cast<size_t>(ranks));
  const collective::BlockTransfer transfer{
      collective::TransferPattern::kAllGather,
      ranks,
      1,
      0,
      {reinterpret_cast<const char*>(&fare), sizeof fare},
      {reinterpret_cast<char*>(all.data()), all.size() * sizeof(Fare)}};
  OB_ASSIGN_OR_RETURN(const collective::TransferId id, group.Start({&transfer, 1}));
  OB_RETURN_IF_ERROR(group.Wait(id));
  OB_RETURN_IF_ERROR(mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    Fare& of_rank = all[rank];
    if (of_rank.code == 0) continue;
    of_rank.message[kMessageBytes - 1] = '\0';  // it came from another process
    return absl::Status(static_cast<absl::StatusCode>(of_rank.code),
                        absl::StrCat("rank ", rank, ": ", of_rank.message));
  }
  return absl::OkStatus();
}

}  // namespace outboard::worker
