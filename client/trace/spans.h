// What a trace has collected, before it is a file: spans on the clocks of where they were, and what
// is known of those clocks. Plain values without a lock; perfetto.h writes them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "client/trace/clock_bounds.h"
#include "proto/cloud.pb.h"

namespace outboard::trace {

// A session between two reconnections: the other sides, and so their clocks, are the same.
struct EpochKey {
  uint32_t session = 0;
  uint64_t epoch = 0;
  friend auto operator<=>(const EpochKey&, const EpochKey&) = default;
};

// On this process's clock.
struct ClientSpan {
  const char* name = nullptr;
  uint32_t session = 0;  // 0: of none
  uint32_t thread = 0;   // 1, 2, 3 ... as they made their first span
  uint64_t seq = 0;      // of the item it belongs to; 0: none
  uint64_t begin_ns = 0, end_ns = 0;
};

// On the clock of where it was.
struct RemoteSpan {
  EpochKey epoch;
  proto::Span span;
};

// What one epoch's messages have said of clocks.
struct EpochClocks {
  ClockBounds gateway;  // against ours
  ClockBounds worker;   // against the gateway's; where there is none, against ours
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
