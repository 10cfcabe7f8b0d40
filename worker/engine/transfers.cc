#include "worker/engine/transfers.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "proto/groups.pb.h"

namespace outboard::worker {
namespace {

// What a rank says of itself: the code of its status, and the beginning of its message.
constexpr size_t kMessageBytes = 500;
struct RankReport {
  uint64_t made = 0;
  int32_t code = 0;
  char message[kMessageBytes] = {};
};

collective::TransferPattern PatternOf(Op op) {
  if (op == Op::kUnshard) return collective::TransferPattern::kAllGather;
  return op == Op::kAllToAll ? collective::TransferPattern::kAllToAll
                             : collective::TransferPattern::kBroadcast;
}

// For those who know what is there: the host does not.
char* PointerTo(runtime::DeviceAddress address) {
  return reinterpret_cast<char*>(static_cast<uintptr_t>(address));
}

// From rank 0 to all ranks. `send` is looked at there alone, and is as long everywhere.
absl::Status Broadcast(collective::Collective& group, std::span<const char> send,
                       std::span<char> receive) {
  const collective::BlockTransfer transfer{collective::TransferPattern::kBroadcast,
                                           group.member().ranks(), 1, 0, send, receive};
  OB_ASSIGN_OR_RETURN(const collective::TransferId id, group.of_host().Start({&transfer, 1}));
  return group.of_host().Wait(id);
}

// Of `send`, as long on all ranks, from all to all.
absl::Status AllGather(collective::Collective& group, std::span<const char> send,
                       std::span<char> receive) {
  const collective::BlockTransfer transfer{collective::TransferPattern::kAllGather,
                                           group.member().ranks(), 1, 0, send, receive};
  OB_ASSIGN_OR_RETURN(const collective::TransferId id, group.of_host().Start({&transfer, 1}));
  return group.of_host().Wait(id);
}

// A SimplerKernel on its way.
struct SimplerBytes {
  decltype(GraphId::bytes) kernel{};  // its id
  uint8_t how = 0;
};
static_assert(sizeof(SimplerBytes) == sizeof(GraphId::bytes) + 1);

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
    const bool is_direct = group_->takes_device_memory();
    const char* from = is_direct ? PointerTo((*memory_)[transfer.send])
                                 : device_->HostBytes((*memory_)[transfer.send]);
    char* to = is_direct ? PointerTo((*memory_)[transfer.receive])
                         : device_->HostBytes((*memory_)[transfer.receive]);
    if (!is_direct && (from == nullptr || to == nullptr)) {
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
  OB_ASSIGN_OR_RETURN(const Agreement agreement, AgreeOn(group, mine, 0));
  return agreement.status;
}

absl::StatusOr<Agreement> AgreeOn(collective::Collective& group, const absl::Status& mine,
                                  uint64_t made) {
  const int64_t ranks = group.member().ranks();
  RankReport report{.made = made, .code = static_cast<int32_t>(mine.code())};
  const std::string text(mine.message());
  std::memcpy(report.message, text.data(), std::min(text.size(), kMessageBytes - 1));
  std::vector<RankReport> all(static_cast<size_t>(ranks));
  OB_RETURN_IF_ERROR(
      AllGather(group, {reinterpret_cast<const char*>(&report), sizeof report},
                {reinterpret_cast<char*>(all.data()), all.size() * sizeof(RankReport)}));
  Agreement agreement{.status = mine};
  for (size_t rank = 0; rank < all.size(); ++rank) {
    RankReport& of_rank = all[rank];
    if (!agreement.differs && of_rank.made != all[0].made)
      agreement.differs = static_cast<int64_t>(rank);
    if (of_rank.code == 0 || !agreement.status.ok()) continue;
    of_rank.message[kMessageBytes - 1] = '\0';  // it came from another process
    agreement.status = absl::Status(static_cast<absl::StatusCode>(of_rank.code),
                                    absl::StrCat("rank ", rank, ": ", of_rank.message));
  }
  return agreement;
}

absl::StatusOr<std::vector<KernelVersion>> ShareVersions(collective::Collective& group,
                                                         const std::vector<KernelVersion>& mine) {
  std::string bytes;
  if (group.member().rank == 0) {
    proto::GroupKernels message;
    for (const KernelVersion& version : mine) *message.add_kernels() = ToWire({0, version});
    bytes = message.SerializeAsString();
    if (bytes.size() > static_cast<size_t>(kSharedVersionBytesMax)) bytes.clear();
  }
  int64_t size = 0;  // by itself, since most often it is 0
  const auto own = static_cast<int64_t>(bytes.size());
  OB_RETURN_IF_ERROR(Broadcast(group, {reinterpret_cast<const char*>(&own), sizeof own},
                               {reinterpret_cast<char*>(&size), sizeof size}));
  if (size < 0 || size > kSharedVersionBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("rank 0 tells of ", size, " bytes of kernels"));
  if (size == 0) return std::vector<KernelVersion>();
  bytes.resize(static_cast<size_t>(size));
  std::string received(static_cast<size_t>(size), '\0');
  OB_RETURN_IF_ERROR(Broadcast(group, bytes, received));
  proto::GroupKernels message;
  if (!message.ParseFromString(received))
    return absl::InvalidArgumentError("what rank 0 tells of kernels cannot be read");
  std::vector<KernelVersion> versions;
  for (const proto::KernelUse& use : message.kernels()) {
    OB_ASSIGN_OR_RETURN(KernelUseRecord record, KernelUseFromWire(use));
    versions.push_back(std::move(record.version));
  }
  return versions;
}

absl::StatusOr<std::vector<SimplerKernel>> ShareSimpler(collective::Collective& group,
                                                        std::span<const SimplerKernel> mine) {
  mine = mine.first(std::min(mine.size(), static_cast<size_t>(kSharedSimplerMax)));
  const auto ranks = static_cast<size_t>(group.member().ranks());
  const auto own = static_cast<int64_t>(mine.size());
  std::vector<int64_t> counts(ranks);
  OB_RETURN_IF_ERROR(
      AllGather(group, {reinterpret_cast<const char*>(&own), sizeof own},
                {reinterpret_cast<char*>(counts.data()), ranks * sizeof(int64_t)}));
  for (const int64_t count : counts)  // it came from another process
    if (count < 0 || count > kSharedSimplerMax)
      return absl::InvalidArgumentError(absl::StrCat("a rank tells of ", count, " kernels"));
  const auto most = static_cast<size_t>(*std::ranges::max_element(counts));
  std::vector<SimplerKernel> told;
  if (most == 0) return told;
  std::vector<SimplerBytes> send(most), all(most * ranks);
  for (size_t i = 0; i < mine.size(); ++i)
    send[i] = {mine[i].kernel.hash().bytes, static_cast<uint8_t>(mine[i].how)};
  OB_RETURN_IF_ERROR(
      AllGather(group, {reinterpret_cast<const char*>(send.data()), most * sizeof(SimplerBytes)},
                {reinterpret_cast<char*>(all.data()), all.size() * sizeof(SimplerBytes)}));
  for (size_t rank = 0; rank < ranks; ++rank)
    for (size_t i = 0; i < static_cast<size_t>(counts[rank]); ++i) {
      const SimplerBytes& one = all[rank * most + i];
      const auto how = static_cast<Simpler>(one.how);
      if (how < Simpler::kCompilersOpts || how > Simpler::kInHalves)
        return absl::InvalidArgumentError("what a rank tells of kernels cannot be read");
      told.push_back({KernelId(GraphId{one.kernel}), how});
    }
  return told;
}

}  // namespace outboard::worker
