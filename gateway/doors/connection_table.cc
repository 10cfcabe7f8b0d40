// Invariants, under the lock:
//   N1  Each entry of connections_ is in of_address_, in descriptors_ if it has a name, and in
//       unproved_ exactly if it is not proved.
//   N2  A socket is shut down only after its cookie was compared: its number may have been given to
//       another one.
#include "gateway/doors/connection_table.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "gateway/base/limits.h"

namespace outboard::gateway {

namespace {

// Every connection is looked at, so a flood of them must not cause it each time.
constexpr std::chrono::milliseconds kSweepAtMostEvery{100};

// gRPC writes the brackets of an IPv6 address in two ways.
std::string WithoutBrackets(std::string_view peer) {
  std::string name(peer);
  for (const std::string_view bracket : {"[", "]", "%5B", "%5D"})
    if (const size_t at = name.find(bracket); at != std::string::npos)
      name.erase(at, bracket.size());
  return name;
}

// Since it was accepted; 0 where the kernel does not count: a unix socket is this machine's.
uint64_t BytesReceivedBy(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  constexpr size_t kEnd = offsetof(tcp_info, tcpi_bytes_received) + sizeof(uint64_t);
  return size >= kEnd ? info.tcpi_bytes_received : 0;
}

}  // namespace

ConnectionLimits DefaultConnectionLimits() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto all = static_cast<int>(
      std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(std::numeric_limits<int>::max())));
  return {.per_address = kConnectionsPerAddressMax,
          .proxies = {},
          .in_total = kConnectionsMax,
          .descriptors = std::max(all - kDescriptorsForDisk, kDescriptorsForDisk),
          .key_within = std::chrono::milliseconds(kConnectionKeyMs),
          .bytes_before_key = kBytesBeforeKeyMax,
          .bytes_before_key_in_total = kBytesBeforeKeyInTotalMax};
}

uint64_t ConnectionTable::CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

bool ConnectionTable::IsLimited(const AddressKey& address, std::string_view peer) const {
  return !address.is_local && !AnyContains(limits_.proxies, AddressesOfPeer(peer));
}

size_t ConnectionTable::CountOf(const AddressKey& address) const {
  const auto at = of_address_.find(address);
  return at == of_address_.end() ? 0 : at->second.size();
}

bool ConnectionTable::Add(int fd, const AddressKey& address, std::string_view peer,
                          Clock::time_point now) {
  std::lock_guard lock(mutex_);
  Forget(fd);  // the kernel gave its number again
  if (IsLimited(address, peer) && CountOf(address) >= limits_.per_address) {
    ForgetClosed(address);
    if (CountOf(address) >= limits_.per_address) {
      refusals_->Count(RefusalReason::kConnectionsOfAddress, address.ToString());
      return false;
    }
  }
  if (fd >= limits_.descriptors || connections_.size() >= limits_.in_total) {
    if (now - swept_at_ >= kSweepAtMostEvery) {
      ForgetAllClosed();
      swept_at_ = now;
    }
    bool makes_room = connections_.size() < limits_.in_total && fd < limits_.descriptors;
    while (!makes_room && !unproved_.empty()) makes_room = EndOldestUnproved();
    // gRPC closes what is ended in a moment; until then the reserve has one descriptor less, and
    // not more than half of it is lent.
    if (!makes_room || fd >= limits_.descriptors + kDescriptorsForDisk / 2) {
      refusals_->Count(RefusalReason::kConnectionsInTotal, address.ToString());
      return false;
    }
  }
  Connection& connection = connections_[fd];
  connection = {CookieOf(fd), address, WithoutBrackets(peer), now, false};
  of_address_[address].insert(fd);
  if (!peer.empty()) descriptors_[connection.peer] = fd;
  unproved_.emplace(now, fd);
  return true;
}

void ConnectionTable::Proved(std::string_view peer) {
  std::lock_guard lock(mutex_);
  const auto at = descriptors_.find(WithoutBrackets(peer));
  if (at == descriptors_.end()) return;
  Connection& connection = connections_.at(at->second);
  if (std::exchange(connection.proved, true)) return;
  unproved_.erase({connection.since, at->second});
}

void ConnectionTable::EndUnproved(Clock::time_point now) {
  if (limits_.key_within.count() == 0) return;
  std::lock_guard lock(mutex_);
  while (!unproved_.empty() && now - unproved_.begin()->first >= limits_.key_within) {
    const AddressKey address = connections_.at(unproved_.begin()->second).address;
    if (EndOldestUnproved()) refusals_->Count(RefusalReason::kNoKeyInTime, address.ToString());
  }
}

void ConnectionTable::EndGreedy() {
  if (limits_.bytes_before_key == 0) return;
  std::lock_guard lock(mutex_);
  std::vector<std::pair<uint64_t, int>> sent;
  uint64_t all = 0;
  for (const auto& [since, fd] : unproved_) {
    const uint64_t bytes = BytesReceivedBy(fd);
    if (bytes == 0 || CookieOf(fd) != connections_.at(fd).cookie) continue;
    sent.emplace_back(bytes, fd);
    all += bytes;
  }
  std::sort(sent.begin(), sent.end(), std::greater<>());
  for (const auto& [bytes, fd] : sent) {
    if (bytes <= limits_.bytes_before_key && all <= limits_.bytes_before_key_in_total) break;
    all -= bytes;
    const AddressKey address = connections_.at(fd).address;
    if (End(fd)) refusals_->Count(RefusalReason::kBytesBeforeKey, address.ToString());
  }
}

bool ConnectionTable::EndOldestUnproved() { return End(unproved_.begin()->second); }

// False: it had been closed.
bool ConnectionTable::End(int fd) {
  // gRPC may close the descriptor at any time, and the kernel give its number again: a descriptor
  // of our own keeps the socket that was compared.
  const int ours = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  const bool is_known = ours >= 0 || errno == EBADF;
  const int with = is_known ? ours : fd;  // no descriptor is left, so the room must come from here
  const bool is_open = CookieOf(with) == connections_.at(fd).cookie;  // N2
  Forget(fd);
  if (is_open) shutdown(with, SHUT_RDWR);  // gRPC notices, and closes it
  if (ours >= 0) close(ours);
  return is_open;
}

bool ConnectionTable::has_unproved() {
  std::lock_guard lock(mutex_);
  return limits_.bytes_before_key != 0 && !unproved_.empty();
}

size_t ConnectionTable::open() {
  std::lock_guard lock(mutex_);
  ForgetAllClosed();
  return connections_.size();
}

void ConnectionTable::Forget(int fd) {
  const auto at = connections_.find(fd);
  if (at == connections_.end()) return;
  const Connection& connection = at->second;
  const auto of_address = of_address_.find(connection.address);
  of_address->second.erase(fd);
  if (of_address->second.empty()) of_address_.erase(of_address);
  if (const auto named = descriptors_.find(connection.peer);
      named != descriptors_.end() && named->second == fd)
    descriptors_.erase(named);
  if (!connection.proved) unproved_.erase({connection.since, fd});
  connections_.erase(at);
}

void ConnectionTable::ForgetClosed(const AddressKey& address) {
  const auto at = of_address_.find(address);
  if (at == of_address_.end()) return;
  const std::vector<int> all(at->second.begin(), at->second.end());
  for (const int fd : all)
    if (CookieOf(fd) != connections_.at(fd).cookie) Forget(fd);
}

void ConnectionTable::ForgetAllClosed() {
  std::vector<int> closed;
  for (const auto& [fd, connection] : connections_)
    if (CookieOf(fd) != connection.cookie) closed.push_back(fd);
  for (const int fd : closed) Forget(fd);
}

}  // namespace outboard::gateway
