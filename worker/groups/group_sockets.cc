#include "worker/groups/group_sockets.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/collective/sockets.h"
#include "wire/limits.h"
#include "worker/groups/device_transfers.h"

namespace outboard::worker {

GroupSockets::~GroupSockets() {
  for (const int fd : by_rank_)
    if (fd >= 0) close(fd);
}

void GroupSockets::Take(const proto::GroupSocket& socket, int fd) {
  OB_CHECK(socket.rank() < wire::kSessionDevicesMax);
  if (by_rank_.size() <= socket.rank()) by_rank_.resize(socket.rank() + 1, -1);
  std::swap(by_rank_[socket.rank()], fd);
  if (fd >= 0) close(fd);
}

absl::Status GroupSockets::JoinGroup(const proto::Begin& begin, Engine& engine) {
  if (begin.mesh().empty() || engine.group() != nullptr) return absl::OkStatus();
  collective::Member member{.rank = begin.rank(),
                            .mesh = {begin.mesh().begin(), begin.mesh().end()},
                            .epoch = begin.group_epoch()};
  by_rank_.resize(static_cast<size_t>(std::max<int64_t>(member.ranks(), 1)), -1);
  OB_ASSIGN_OR_RETURN(std::unique_ptr<collective::Collective> collective,
                      collective::MakeOverSockets(std::move(member), std::exchange(by_rank_, {})));
  if (const DeviceTransfers* const transfers = DeviceTransfersOf(engine.kind())) {
    OB_ASSIGN_OR_RETURN(collective, WithDeviceTransfers(std::move(collective), *transfers));
  }
  engine.JoinGroup(std::move(collective));
  return absl::OkStatus();
}

}  // namespace outboard::worker
