#include "worker/groups/describe_groups.h"

#include <string>

#include "absl/status/statusor.h"
#include "telemetry/log.h"
#include "worker/groups/link_speed.h"
#include "worker/process/program_file.h"

namespace outboard::worker {

void DescribeGroups(int devices, const GroupLinks* links, proto::Register& entry) {
  entry.set_serves_groups(true);
  entry.set_has_collectives(true);
  entry.set_groups_recover(true);
  if (links != nullptr) {
    entry.set_data_address(links->advertised());
    entry.set_measures_links(true);
  }
  entry.set_version(BuildOfWorker());
  if (devices < 2) return;
  static const absl::StatusOr<LinkSpeed> speed = MeasureLink();
  if (!speed.ok()) {
    telemetry::LogWarning("link_not_measured",
                          {{"message", std::string(speed.status().message())}});
    return;
  }
  entry.set_link_bytes_per_s(static_cast<uint64_t>(speed->bytes_per_s));
  entry.set_link_message_ns(static_cast<uint64_t>(1e9 * speed->message_s));
}

}  // namespace outboard::worker
