// The data of a trace before it is written: spans on the clocks of their machines, and bounds on
// the offsets of those clocks. Plain values without a lock; perfetto.h writes them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "client/trace/clock_bounds.h"
#include "proto/cloud.pb.h"

namespace outboard::trace {

// A session between two reconnections: the same peers, and so the same clocks.
struct EpochKey {
  uint32_t session = 0;
  uint64_t epoch = 0;
  friend auto operator<=>(const EpochKey&, const EpochKey&) = default;
};

// On this process's clock.
struct ClientSpan {
  const char* name = nullptr;
  uint32_t session = 0;  // 0: of none
  uint32_t thread = 0;   // 1, 2, 3 ... in the order of their first spans
  uint64_t seq = 0;      // of the item it belongs to; 0: none
  uint64_t begin_ns = 0, end_ns = 0;
};

// On the clock of its machine.
struct RemoteSpan {
  EpochKey epoch;
  proto::Span span;
};

// Clock bounds from one epoch's messages.
struct EpochClocks {
  ClockBounds gateway;  // against ours
  ClockBounds worker;   // against the gateway's; without a gateway, against ours
  std::map<uint64_t, uint64_t> sent_ns, at_gateway_ns;  // by the seq of a frame's last item
  bool has_gateway = false;

  void Sent(uint64_t seq, uint64_t now_ns);
  void Came(const proto::Done& done, uint64_t now_ns);
  ClockMap GatewayMap() const { return gateway.Settle(); }
  ClockMap WorkerMap() const { return (has_gateway ? gateway.Then(worker) : worker).Settle(); }
};

struct Collected {
  std::vector<ClientSpan> client;
  std::vector<RemoteSpan> remote;
  std::map<EpochKey, EpochClocks> epochs;
  std::map<EpochKey, std::string> workers;  // their names, for people
  uint64_t dropped = 0;
};

}  // namespace outboard::trace
