#include "worker/groups/link_probes.h"

#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "runtime/collective/sockets.h"
#include "telemetry/log.h"
#include "wire/data_address.h"
#include "worker/groups/link_speed.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kIdBytes = 16, kTokenBytesMax = 64;

// Neither leaves before the other has all that it needs for its measurement: what is on its way
// goes with the link. Whoever leaves second may find that the first has gone.
void Part(collective::Collective& rank) {
  const char byte = 0;
  char both[2];
  const collective::BlockTransfer transfer{.pattern = collective::TransferPattern::kAllGather,
                                           .count = 2,
                                           .send = {&byte, 1},
                                           .receive = {both, sizeof both}};
  const absl::StatusOr<collective::TransferId> id = rank.Start({&transfer, 1});
  if (id.ok()) rank.Wait(*id).IgnoreError();
}

}  // namespace

LinkProbes::~LinkProbes() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (Probe& probe : probes_)
      if (!probe.is_over) probe.rank->Abort(absl::CancelledError("the worker stops"));
  }
  changed_.notify_all();
  if (watch_.joinable()) watch_.join();
  for (Probe& probe : probes_) probe.thread.join();
}

void LinkProbes::Report(const proto::MeasureLink& command, double bytes_per_s,
                        double message_s) const {
  if (command.data_address().empty()) return;
  proto::WorkerEvent event;
  proto::LinkMeasured& measured = *event.mutable_link_measured();
  measured.set_id(command.id());
  measured.set_bytes_per_s(static_cast<uint64_t>(bytes_per_s));
  measured.set_message_ns(static_cast<uint64_t>(1e9 * message_s));
  tell_(event);
}

// Under mutex_.
void LinkProbes::JoinFinishedThreads() {
  for (auto at = probes_.begin(); at != probes_.end();) {
    const auto probe = at++;
    if (!probe->is_over) continue;
    probe->thread.join();
    probes_.erase(probe);
  }
}

// On a thread of its own: ends those that take too long when their time has come.
void LinkProbes::WatchTime() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    JoinFinishedThreads();
    std::optional<Clock::time_point> next;
    for (Probe& probe : probes_) {
      if (probe.is_over || probe.is_ended) continue;
      if (probe.until <= Clock::now()) {
        probe.is_ended = true;
        probe.rank->Abort(absl::DeadlineExceededError("the partner stands still"));
      } else if (!next || probe.until < *next) {
        next = probe.until;
      }
    }
    if (next)
      changed_.wait_until(lock, *next);
    else
      changed_.wait(lock);
  }
}

absl::Status LinkProbes::Connect(const proto::MeasureLink& command, Probe& probe) {
  if (links_ == nullptr) return absl::UnavailableError("this worker has no data address");
  if (command.id().size() != kIdBytes || command.token().empty() ||
      command.token().size() > kTokenBytesMax)
    return absl::InvalidArgumentError("no id or token of a link");
  const bool connects = !command.data_address().empty();
  std::optional<sockaddr_storage> address;
  if (connects) {
    OB_ASSIGN_OR_RETURN(address, wire::ParseDataAddress(command.data_address()));
  }
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return absl::UnavailableError("no socket");
  for (const int end : pair) collective::WidenSocket(end);
  const int64_t here = connects ? 0 : 1;
  std::vector<int> sockets = {-1, -1};
  sockets[1 - here] = pair[0];
  auto rank = collective::MakeOverSockets({.rank = here, .mesh = {2}, .epoch = 1},
                                          std::move(sockets));
  if (!rank.ok()) {
    close(pair[1]);
    return rank.status();
  }
  probe.rank = *std::move(rank);
  std::vector<GroupLinkOptions> links;
  links.push_back({.name = {command.id(), 0, 0, 1},
                   .attach_token = command.token(),
                   .partner = static_cast<uint32_t>(1 - here),
                   .address = address,
                   .executor = pair[1],
                   .connect_within = connect_within_});
  probe.group = links_->Add(std::move(links), [rank = probe.rank.get()](
                                                  uint32_t, const absl::Status& why) {
    rank->Abort(why);
  });
  return absl::OkStatus();
}

void LinkProbes::Begin(const proto::MeasureLink& command) {
  std::lock_guard lock(mutex_);
  JoinFinishedThreads();
  absl::Status begun = probes_.size() < kProbesMax
                           ? absl::OkStatus()
                           : absl::ResourceExhaustedError("other links are being measured");
  if (begun.ok()) {
    Probe& probe = probes_.emplace_back();
    probe.until = Clock::now() + within_;
    begun = Connect(command, probe);
    if (begun.ok()) {
      try {
        if (!watch_.joinable()) watch_ = std::thread([this] { WatchTime(); });
        probe.thread = std::thread([this, command, &probe] {
          const absl::StatusOr<LinkSpeed> speed = MeasureLinkOf(*probe.rank);
          if (speed.ok()) Part(*probe.rank);
          links_->Remove(probe.group);  // nobody aborts it after this
          if (!speed.ok())
            telemetry::LogWarning("link_not_measured",
                                  {{"message", std::string(speed.status().message())}});
          Report(command, speed.ok() ? speed->bytes_per_s : 0, speed.ok() ? speed->message_s : 0);
          std::lock_guard over(mutex_);
          probe.is_over = true;
          changed_.notify_all();
        });
        changed_.notify_all();
      } catch (const std::system_error& error) {
        links_->Remove(probe.group);
        begun = absl::UnavailableError(error.what());
      }
    }
    if (!begun.ok()) probes_.pop_back();
  }
  if (begun.ok()) return;
  telemetry::LogWarning("link_not_measured", {{"message", std::string(begun.message())}});
  Report(command, 0, 0);
}

}  // namespace outboard::worker
