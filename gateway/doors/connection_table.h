// The connections of a listener: how many each address has, and which of them have shown a key.
//
// gRPC closes connections without a word to whoever accepted them. A connection is therefore known
// by its descriptor and by the kernel's number of the socket behind it (SO_COOKIE, never given
// twice): it is open while the descriptor still has that socket. That is looked at when it matters,
// before a connection is refused, and costs one system call for each connection of the address.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gateway/accounts/address_range.h"
#include "gateway/doors/address_key.h"
#include "gateway/doors/refusals.h"

namespace outboard::gateway {

struct ConnectionLimits {
  size_t per_address;
  // Proxies that are trusted to say where calls come from: as this machine, they have no limit of
  // one address.
  std::vector<AddressRange> proxies;
  size_t in_total;
  // A descriptor with this number or a higher one is refused. The kernel gives the lowest that is
  // free, so those above stay free for the disk, whatever has the others.
  int descriptors;
  // A connection that has shown no key for so long is ended; 0: it may stay.
  std::chrono::milliseconds key_within{0};
  // What one may send until then, and all such connections together; 0: any.
  uint64_t bytes_before_key = 0;
  uint64_t bytes_before_key_in_total = 0;
};

// Those of gateway/base/limits.h and of this process's RLIMIT_NOFILE.
ConnectionLimits DefaultConnectionLimits();

class ConnectionTable {
 public:
  using Clock = std::chrono::steady_clock;
  ConnectionTable(const ConnectionLimits& limits, Refusals* refusals)
      : limits_(limits), refusals_(refusals) {}

  // Takes a connection that was just accepted. False: its address has too many, or all have; the
  // caller closes it. When all have too many, the oldest one that has shown no key is ended
  // instead, if there is one.
  // `peer` names it as gRPC does ("ipv4:192.0.2.7:6667"); empty: it has no name.
  bool Add(int fd, const AddressKey& address, std::string_view peer, Clock::time_point now);
  // The peer has shown a good key.
  void Proved(std::string_view peer);
  // Ends those that have shown no key in time.
  void EndUnproved(Clock::time_point now);
  // Ends those that have sent too much before a key; where all together have, those with the most.
  // The kernel's count of a TCP socket is asked for, so this looks at each: one system call.
  void EndGreedy();

  // True where EndGreedy has something to look at.
  bool has_unproved();
  size_t open();  // counts those that are open still
  const ConnectionLimits& limits() const { return limits_; }

 private:
  struct Connection {
    uint64_t cookie = 0;
    AddressKey address;
    std::string peer;
    Clock::time_point since{};
    bool proved = false;
  };
  static uint64_t CookieOf(int fd);  // 0: none
  bool IsLimited(const AddressKey& address, std::string_view peer) const;
  size_t CountOf(const AddressKey& address) const;  // mutex_ held, as in those below
  void Forget(int fd);
  void ForgetClosed(const AddressKey& address);
  void ForgetAllClosed();
  bool EndOldestUnproved();
  bool End(int fd);

  const ConnectionLimits limits_;

  Refusals* const refusals_;
  std::mutex mutex_;
  Clock::time_point swept_at_{};
  std::unordered_map<int, Connection> connections_;       // by descriptor
  std::unordered_map<std::string, int> descriptors_;      // by peer
  std::map<AddressKey, std::set<int>> of_address_;        // their descriptors
  std::set<std::pair<Clock::time_point, int>> unproved_;  // oldest first
};

}  // namespace outboard::gateway
