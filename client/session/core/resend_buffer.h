// The sequenced items of a session that may have to be sent again: those that are not done and, if
// a lost worker can be replaced, those that are done but not in a snapshot yet (Recovery in
// proto/cloud.proto).
//
// Items are stored serialised, as they are sent; bytes of a Put and encodings of graphs are shared.
// An item is found by its number, because numbers have no gaps. Threads: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "proto/cloud.pb.h"

namespace outboard::transport {

class ResendBuffer {
 public:
  struct Entry {
    uint64_t seq = 0;
    bool is_run = false;
    std::string item;                          // a serialised ClientItem; of a Put without its data
    std::shared_ptr<const std::string> bytes;  // of an inline Put
    std::shared_ptr<const std::string> graph;  // of a Run
    size_t put_bytes() const { return bytes == nullptr ? 0 : bytes->size(); }
  };

  // Appends the next item; its number is one above the last.
  Entry& Add(Entry entry);
  // Drops the items up to `seq`.
  void DropThrough(uint64_t seq);
  void Clear() { DropThrough(last_seq()); }

  const Entry& at(uint64_t seq) const { return entries_[seq - dropped_seq_ - 1]; }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  uint64_t dropped_seq() const { return dropped_seq_; }  // the buffer holds items above it
  uint64_t last_seq() const { return dropped_seq_ + entries_.size(); }
  size_t size() const { return entries_.size(); }
  uint64_t put_bytes() const { return put_bytes_; }

 private:
  std::deque<Entry> entries_;
  uint64_t dropped_seq_ = 0;
  uint64_t put_bytes_ = 0;
};

}  // namespace outboard::transport
