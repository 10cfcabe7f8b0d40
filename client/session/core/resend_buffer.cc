#include "client/session/core/resend_buffer.h"

#include <utility>

namespace outboard::transport {

ResendBuffer::Entry& ResendBuffer::Add(Entry entry) {
  entry.seq = last_seq() + 1;
  put_bytes_ += entry.put_bytes();
  entries_.push_back(std::move(entry));
  return entries_.back();
}

void ResendBuffer::DropThrough(uint64_t seq) {
  for (; !entries_.empty() && dropped_seq_ < seq; ++dropped_seq_) {
    put_bytes_ -= entries_.front().put_bytes();
    entries_.pop_front();
  }
}

}  // namespace outboard::transport
