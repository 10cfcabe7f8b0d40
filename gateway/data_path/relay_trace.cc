#include "gateway/data_path/relay_trace.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::gateway {

void RelayTrace::Begin(bool wanted) {
  const std::lock_guard lock(mutex_);
  wanted_ = wanted;
  dropped_ = 0;
  came_.clear();
  spans_.clear();
}

void RelayTrace::Add(const char* name, uint64_t begin_ns, uint64_t seq, std::string detail) {
  if (spans_.size() >= kSpansMax) {
    ++dropped_;
    return;
  }
  proto::Span& span = spans_.emplace_back();
  span.set_where(proto::Span::GATEWAY);
  span.set_name(name);
  span.set_seq(seq);
  span.set_begin_ns(begin_ns);
  span.set_duration_ns(static_cast<uint64_t>(clock_().ns) - begin_ns);
  span.set_detail(std::move(detail));
}

void RelayTrace::Up(uint64_t begin_ns, uint64_t seq, int items) {
  if (begin_ns == 0 || seq == 0) return;
  const std::lock_guard lock(mutex_);
  if (came_.size() < kSpansMax) {
    came_.emplace_back().set_seq(seq);
    came_.back().set_received_ns(begin_ns);
  }
  Add("to worker", begin_ns, seq, absl::StrCat(items, items == 1 ? " item" : " items"));
}

void RelayTrace::Verified(uint64_t begin_ns, size_t graph_bytes) {
  if (begin_ns == 0) return;
  const std::lock_guard lock(mutex_);
  Add("verify graph", begin_ns, 0, absl::StrCat(graph_bytes, " bytes"));
}

void RelayTrace::Down(uint64_t begin_ns, proto::Done& done) {
  // An executor that sends pieces of a value has none; its next Done has.
  if (begin_ns == 0 || done.passages_size() == 0) return;
  const std::lock_guard lock(mutex_);
  Add("to client", begin_ns, done.through_seq(), "");
  for (proto::Span& span : spans_) *done.add_spans() = std::move(span);
  spans_.clear();
  done.set_spans_dropped(done.spans_dropped() + std::exchange(dropped_, 0));
  if (came_.empty()) came_.emplace_back();
  const auto now_ns = static_cast<uint64_t>(clock_().ns);
  for (proto::Passage& came : came_) {
    came.set_where(proto::Span::GATEWAY);
    came.set_sent_ns(now_ns);
    *done.add_passages() = std::move(came);
  }
  came_.clear();
}

}  // namespace outboard::gateway
