#include "worker/groups/session_executors.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/collective/sockets.h"

namespace outboard::worker {

SessionExecutors::SessionExecutors(
    proto::Assign assign, std::function<void(uint32_t rank, const absl::Status&)> on_first_end)
    : assign_(std::move(assign)), on_first_end_(std::move(on_first_end)) {}

SessionExecutors::~SessionExecutors() {
  for (const auto& host : hosts_) host->LetGo();
}

void SessionExecutors::Add(ExecutorHostOptions options, ChildProcess executor) {
  const auto rank = static_cast<uint32_t>(hosts_.size());
  options.rank = rank;
  options.on_end = [this, rank](const absl::Status& status) {
    if (!has_told_.exchange(true)) on_first_end_(rank, status);
  };
  hosts_.push_back(std::make_unique<ExecutorHost>(std::move(options), std::move(executor)));
}

absl::Status SessionExecutors::Introduce() {
  if (hosts_.size() == 1) return absl::OkStatus();
  const auto no_more = [this] {
    return absl::UnavailableError(
        absl::StrCat("no sockets for ", hosts_.size(), " executors: ", strerror(errno)));
  };
  for (uint32_t one = 0; one < hosts_.size(); ++one) {
    const int own = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (own < 0) return no_more();
    hosts_[one]->PassGroupSocket(one, own);
    for (uint32_t other = one + 1; other < hosts_.size(); ++other) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return no_more();
      for (const int end : pair) collective::WidenSocket(end);
      hosts_[one]->PassGroupSocket(other, pair[0]);
      hosts_[other]->PassGroupSocket(one, pair[1]);
    }
  }
  return absl::OkStatus();
}

void SessionExecutors::Attach(proto::Fleet::Stub& fleet, const std::string& local_socket) {
  for (const auto& host : hosts_) host->Attach(fleet, local_socket);
}

void SessionExecutors::UseBulk(const std::vector<std::shared_ptr<grpc::Channel>>& bulk) {
  for (const auto& host : hosts_) host->UseBulk(bulk);
}

void SessionExecutors::End() {
  for (const auto& host : hosts_) host->End();
}

uint64_t SessionExecutors::memory_bytes() const {
  uint64_t bytes = 0;
  for (const auto& host : hosts_) bytes += host->memory_bytes();
  return bytes;
}

uint32_t SessionExecutors::RanksOf(const proto::Assign& assign) {
  return static_cast<uint32_t>(std::max(1, assign.devices_size()));
}

proto::HeldSession SessionExecutors::Described() const {
  proto::HeldSession held;
  held.set_session_id(assign_.session_id());
  held.set_attach_token(assign_.attach_token());
  *held.mutable_devices() = assign_.devices();
  held.set_placement(assign_.placement());
  return held;
}

proto::SessionEnded SessionEndedOf(const proto::Assign& assign, uint32_t rank,
                                   const absl::Status& status) {
  proto::SessionEnded ended;
  ended.set_session_id(assign.session_id());
  ended.set_placement(assign.placement());
  ended.set_rank(rank);
  ended.set_code(static_cast<uint32_t>(status.code()));
  ended.set_message(std::string(status.message()));
  if (const std::optional<uint64_t> seq = OneMoreTryOf(status)) {
    ended.set_one_more_try(true);
    ended.set_seq(*seq);
  }
  return ended;
}

}  // namespace outboard::worker
