// Links between workers: who measures them when, and what a session that is on several is predicted
// by.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gateway/base/token.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/core_driver_entries.h"

namespace outboard::gateway {

// Of one that has just joined.
void CoreDriver::MeasureLinksOf(WorkerId id, const proto::Register& reg) {
  const Worker* const worker = FindWorker(id);
  if (worker == nullptr || !reg.measures_links() || worker->data_address.empty()) return;
  links_.Joined(id, worker->owner.has_value() ? absl::StrCat(worker->owner->value) : "");
  MeasureLinks();
}

void CoreDriver::MeasureLinks() {
  while (const auto pair = links_.Next(host_->Now())) {
    const Worker *const connects = FindWorker(pair->first), *const waits = FindWorker(pair->second);
    proto::GatewayCommand command;
    proto::MeasureLink& measure = *command.mutable_measure_link();
    measure.set_id(BytesOf(host_->DrawToken()));
    measure.set_token(BytesOf(host_->DrawToken()));
    links_.Begun(*pair, measure.id(), host_->Now());
    if (connects == nullptr || waits == nullptr) continue;  // until it is given up
    waits->endpoint->Send(command);
    measure.set_data_address(waits->data_address);
    connects->endpoint->Send(std::move(command));
  }
}

void CoreDriver::OnLinkMeasured(WorkerId worker, const proto::LinkMeasured& measured) {
  std::lock_guard lock(mutex_);
  links_.Measured(worker, measured.id(),
                  {.bytes_per_s = static_cast<double>(measured.bytes_per_s()),
                   .message_s = 1e-9 * static_cast<double>(measured.message_ns())});
  MeasureLinks();
}

// Axes of the mesh whose devices share a worker have links of their own, where others are between
// workers.
shard::DeviceSpeeds CoreDriver::SpeedsFor(const Assign& assign, const Worker& first,
                                          const shard::Mesh& mesh) const {
  shard::DeviceSpeeds speeds = first.speeds;
  if (assign.parts.size() < 2) return speeds;
  speeds.inner_bytes_per_s = first.speeds.link_bytes_per_s;
  speeds.inner_collective_s = first.speeds.collective_s;
  std::vector<size_t> part_of;  // by rank
  uint32_t most = 1;            // of the session's devices, on one worker
  for (size_t i = 0; i < assign.parts.size(); ++i) {
    part_of.insert(part_of.end(), assign.parts[i].ranks, i);
    most = std::max(most, assign.parts[i].ranks);
    const Worker* const worker = FindWorker(assign.parts[i].worker);
    if (worker == nullptr) continue;
    speeds.operations_per_s = std::min(speeds.operations_per_s, worker->speeds.operations_per_s);
    speeds.inner_bytes_per_s =
        std::min(speeds.inner_bytes_per_s, worker->speeds.link_bytes_per_s);
    speeds.inner_collective_s =
        std::max(speeds.inner_collective_s, worker->speeds.collective_s);
  }
  double bytes_per_s = 0, message_s = 0;
  for (size_t i = 0; i < assign.parts.size(); ++i)
    for (size_t j = i + 1; j < assign.parts.size(); ++j) {
      const auto link = links_.Between(assign.parts[i].worker, assign.parts[j].worker);
      // All devices of a worker send over its one link; what nobody has measured is assumed.
      const shard::DeviceSpeeds between =
          link.has_value() ? shard::SpeedsOfLink(link->bytes_per_s / most, link->message_s)
                           : shard::DeviceSpeeds();
      bytes_per_s = bytes_per_s == 0 ? between.link_bytes_per_s
                                     : std::min(bytes_per_s, between.link_bytes_per_s);
      message_s = std::max(message_s, between.collective_s);
    }
  // No better than within a worker: what is measured there is what an executor can send.
  speeds.link_bytes_per_s = std::min(speeds.inner_bytes_per_s, bytes_per_s);
  speeds.collective_s = std::max(speeds.inner_collective_s, message_s);
  for (int axis = 0; axis < mesh.axes() && part_of.size() == static_cast<size_t>(mesh.ranks());
       ++axis) {
    bool shares = true;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
      shares &= part_of[rank] ==
                part_of[rank - mesh.coordinate(rank, axis) * mesh.stride(axis)];
    if (shares) speeds.inner_axes |= static_cast<uint8_t>(1 << axis);
  }
  return speeds;
}

}  // namespace outboard::gateway
