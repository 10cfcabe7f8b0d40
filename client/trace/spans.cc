#include "client/trace/spans.h"

namespace outboard::trace {
namespace {

constexpr size_t kTimesMax = 65'536;  // frames under way; the oldest goes

void Note(std::map<uint64_t, uint64_t>& times, uint64_t seq, uint64_t ns) {
  times.try_emplace(seq, ns);  // what was sent again was sent at first already
  if (times.size() > kTimesMax) times.erase(times.begin());
}

// Each way of a message from one clock to another.
void Passed(ClockBounds& bounds, const std::map<uint64_t, uint64_t>& sent_ns, uint64_t at_ns,
            const proto::Passage& there, uint64_t came_ns) {
  if (const auto sent = sent_ns.find(there.seq()); there.seq() != 0 && sent != sent_ns.end())
    bounds.AtMost(at_ns, static_cast<int64_t>(there.received_ns() - sent->second));
  bounds.AtLeast(at_ns, static_cast<int64_t>(there.sent_ns() - came_ns));
}

}  // namespace

void EpochClocks::Sent(uint64_t seq, uint64_t now_ns) { Note(sent_ns, seq, now_ns); }

void EpochClocks::Came(const proto::Done& done, uint64_t now_ns) {
  const proto::Passage* last_gateway = nullptr;
  for (const proto::Passage& passage : done.passages()) {
    if (passage.where() != proto::Span::GATEWAY) continue;
    has_gateway = true;
    last_gateway = &passage;
    if (passage.seq() != 0) Note(at_gateway_ns, passage.seq(), passage.received_ns());
    Passed(gateway, sent_ns, now_ns, passage, now_ns);
  }
  for (const proto::Passage& passage : done.passages()) {
    if (passage.where() != proto::Span::EXECUTOR) continue;
    if (last_gateway != nullptr)
      Passed(worker, at_gateway_ns, now_ns, passage, last_gateway->sent_ns());
    else if (!has_gateway)
      Passed(worker, sent_ns, now_ns, passage, now_ns);
  }
}

}  // namespace outboard::trace
