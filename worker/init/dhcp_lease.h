// The DHCP client of one network device, without sockets: says what to send and when, and takes
// what comes.
//
//   discovering --offer--> requesting --ack--> bound --half of the lease--> renewing --ack--> bound
//   requesting, renewing --nak--> discovering
//   requesting --kRequestsMost unanswered--> discovering
//   renewing --the lease is over--> discovering, and the address is lost
//
// What is unanswered is asked again after 1, 2, 4 ... 32 s, more or less, for ever.
// Threads: one. Times are seconds of a clock that only goes forward.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "worker/init/dhcp_packet.h"

namespace outboard::worker {

class DhcpLease {
 public:
  // `random`: numbers for transactions and jitter.
  DhcpLease(const MacAddress& mac, double now, std::function<uint32_t()> random);

  // What is to be sent now, by broadcast; none before `NextAt`.
  std::optional<std::string> Due(double now);
  double NextAt() const { return next_at_; }
  // True where the address came, changed, or stays for longer: `lease` says it.
  bool On(std::string_view packet, double now);
  // None: there is no address, or it was lost.
  const std::optional<DhcpAnswer>& lease() const { return lease_; }

 private:
  enum class State { kDiscovering, kRequesting, kBound, kRenewing };
  static constexpr int kRequestsMost = 4;
  void Begin(State state, double now);
  double Jittered(double seconds);

  const MacAddress mac_;
  const std::function<uint32_t()> random_;
  State state_ = State::kDiscovering;
  uint32_t transaction_ = 0;
  double began_at_ = 0, next_at_ = 0, ends_at_ = 0;
  int tries_ = 0;
  DhcpAnswer offer_;
  std::optional<DhcpAnswer> lease_;
};

}  // namespace outboard::worker
