// Items that a session sends: made from requests, packed into frames, and retained until they are
// acknowledged, so that they can be sent again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/request.h"
#include "proto/cloud.pb.h"

namespace outboard::session {

// Converts requests to items of the wire, without sequence numbers. Checks the properties of a
// request that are known locally; the cloud checks the rest.
//
// Errors: INVALID_ARGUMENT    an index out of range, a repetition without anything to repeat
//         RESOURCE_EXHAUSTED  a limit of wire/limits.h, with the limit and the count
// Threads: pure functions.

absl::StatusOr<proto::ClientItem> RunItem(const RunRequest& request);
absl::Status CheckDims(std::span<const int64_t> dims);
// Returns a Put without its data; `dims` must pass CheckDims.
proto::ClientItem PutItem(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                          uint64_t total_bytes);
absl::StatusOr<proto::ClientItem> FetchItem(std::span<const uint64_t> handles);
absl::StatusOr<proto::ClientItem> KeepItem(std::span<const KeepEntry> entries);
absl::StatusOr<proto::ClientItem> SaveItem(std::string_view name,
                                           std::span<const SaveEntry> entries);

// Packs items into frames to send: items in order, graphs and Puts in pieces, each frame within the
// wire's limits (wire/limits.h). Threads: one owner.

class FramePacker {
 public:
  // Starts a new epoch and drops frames that were not taken, since they belong to no stream any
  // more.
  void Restart(uint64_t epoch);
  uint64_t epoch() const { return epoch_; }

  void Add(proto::ClientItem item);
  void AddGraph(const std::string& id, const std::string& bytes);
  void AddPut(const proto::ClientItem& put, const std::string& bytes);

  std::vector<proto::ClientFrame> Take();

 private:
  uint64_t epoch_ = 0;
  std::vector<proto::ClientFrame> frames_;
  size_t frame_bytes_ = 0;  // of frames_.back()
};

// The sequenced items of a session that may have to be sent again: those that are not done and, if
// a lost worker can be replaced, those that are done but not in a snapshot yet (Recovery in
// proto/cloud.proto).
//
// Items are stored serialised, as they are sent; bytes of a Put and encodings of graphs are shared.
// An item is found by its number, because numbers have no gaps. Threads: one owner.

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
  // Before the first item: its number is seq + 1.
  void BeginAfter(uint64_t seq) { dropped_seq_ = seq; }
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

}  // namespace outboard::session
