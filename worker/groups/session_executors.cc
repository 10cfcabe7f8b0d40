#include "worker/groups/session_executors.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/collective/sockets.h"
#include "wire/data_address.h"
#include "wire/limits.h"

namespace outboard::worker {
namespace {

// Less than the gateway waits for all executors to attach (CoreOptions::start_ns, start_more_ns).
constexpr std::chrono::milliseconds kConnectWithin{20'000}, kConnectMore{1'000};

absl::Status NoSockets(size_t executors) {
  return absl::UnavailableError(
      absl::StrCat("no sockets for ", executors, " executors: ", strerror(errno)));
}

bool MakePair(int pair[2]) {
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return false;
  for (int i = 0; i < 2; ++i) collective::WidenSocket(pair[i]);
  return true;
}

}  // namespace

SessionExecutors::SessionExecutors(
    proto::Assign assign, std::function<void(uint32_t rank, const absl::Status&)> on_first_end)
    : assign_(std::move(assign)), on_first_end_(std::move(on_first_end)) {}

SessionExecutors::~SessionExecutors() {
  {
    std::lock_guard lock(ends_mutex_);
    are_ending_ = true;
  }
  for (const auto& host : hosts_) host->LetGo();
  hosts_.clear();
  if (links_ != nullptr) links_->Remove(group_);
}

void SessionExecutors::Ended(uint32_t rank, const absl::Status& status) {
  if (!has_told_.exchange(true)) on_first_end_(rank, status);
}

void SessionExecutors::Add(ExecutorHostOptions options, ChildProcess executor) {
  const uint32_t rank = first_rank() + static_cast<uint32_t>(hosts_.size());
  options.rank = rank;
  options.on_end = [this, rank](const absl::Status& status) { Ended(rank, status); };
  hosts_.push_back(std::make_unique<ExecutorHost>(std::move(options), std::move(executor)));
}

absl::Status SessionExecutors::Introduce(GroupLinks* links) {
  const bool is_spread = assign_.has_group();
  if (hosts_.size() == 1 && !is_spread) return absl::OkStatus();
  if (is_spread && links == nullptr)
    return absl::UnavailableError("this worker has no data address, and the session has devices "
                                  "on others");
  const uint32_t first = first_rank();
  for (uint32_t one = 0; one < hosts_.size(); ++one) {
    const int own = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (own < 0) return NoSockets(hosts_.size());
    hosts_[one]->PassGroupSocket(first + one, own);
    for (uint32_t other = one + 1; other < hosts_.size(); ++other) {
      int pair[2];
      if (!MakePair(pair)) return NoSockets(hosts_.size());
      hosts_[one]->PassGroupSocket(first + other, pair[0]);
      hosts_[other]->PassGroupSocket(first + one, pair[1]);
    }
  }
  return is_spread ? IntroduceElsewhere(*links) : absl::OkStatus();
}

// Of two workers the one with the lower ranks connects.
absl::Status SessionExecutors::IntroduceElsewhere(GroupLinks& links) {
  int64_t ranks = 0;
  for (const proto::GroupPlace::Node& node : assign_.group().nodes()) ranks += node.ranks();
  std::vector<GroupLinkOptions> made;
  const auto failed = [&](absl::Status why) {
    for (const GroupLinkOptions& link : made)
      if (link.executor >= 0) close(link.executor);
    return why;
  };
  uint32_t there = 0;
  const int nodes = assign_.group().nodes_size();
  int here_node = 0;  // of `nodes`, in the order of their ranks
  for (uint32_t first = 0; here_node < nodes && first < first_rank();)
    first += assign_.group().nodes(here_node++).ranks();
  for (int number = 0; number < nodes; ++number) {
    const proto::GroupPlace::Node& node = assign_.group().nodes(number);
    const uint32_t end = there + node.ranks();
    if (end < there || end > wire::kSessionDevicesMax)
      return failed(absl::InvalidArgumentError(
          absl::StrCat("a session on ", wire::kSessionDevicesMax, " devices at most")));
    if (there == first_rank()) {  // here
      there = end;
      continue;
    }
    std::optional<sockaddr_storage> address;
    if (there > first_rank()) {
      const auto parsed = wire::ParseDataAddress(node.data_address());
      if (!parsed.ok()) return failed(absl::UnavailableError(parsed.status().message()));
      address = *parsed;
    }
    // In a ring, since one that finds its neighbour standing still ends its executors, which frees
    // all others.
    const int apart = std::abs(number - here_node);
    if (apart == 1 || apart == nodes - 1)
      made.push_back({.name = MakeWatch({assign_.session_id(), assign_.placement(),
                                         std::min(first_rank(), there),
                                         std::max(first_rank(), there)}),
                      .attach_token = assign_.attach_token(),
                      .partner = there,
                      .address = address,
                      .connect_within = kConnectWithin + ranks * kConnectMore});
    for (; there < end; ++there) {
      for (uint32_t one = 0; one < hosts_.size(); ++one) {
        const uint32_t here = first_rank() + one;
        int pair[2];
        if (!MakePair(pair)) return failed(NoSockets(hosts_.size()));
        hosts_[one]->PassGroupSocket(there, pair[0]);
        made.push_back({.name = {assign_.session_id(), assign_.placement(), std::min(here, there),
                                 std::max(here, there)},
                        .attach_token = assign_.attach_token(),
                        .partner = there,
                        .address = address,
                        .executor = pair[1],
                        .connect_within = kConnectWithin + ranks * kConnectMore});
      }
    }
  }
  links_ = &links;
  // Those here end at once, which frees their partners: the worker that is lost may be the one that
  // the gateway hears of last.
  group_ = links.Add(std::move(made), [this](uint32_t rank, const absl::Status& why) {
    Ended(rank, why);
    std::lock_guard lock(ends_mutex_);
    for (size_t i = 0; !are_ending_ && i < hosts_.size(); ++i) hosts_[i]->End();
  });
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
