// What an upload does next: reads and hashes chunks, asks which of them are missing, sends those.
// Asking and sending overlap with hashing, so that the line is busy from the first chunk on.
//
// Without I/O. Threads: one at a time. Chunks are counted through all blobs of the upload, from 0.
//
//   unread --kHash--> hashed --kAsk--> there
//                                 \--> missing --kSend--> sent
// A chunk of a blob whose name is known begins as hashed; one whose hash came before is there,
// since the other is sent. Again() makes all that have a hash hashed again: only the end of its
// stream says that a chunk has arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "wire/merkle.h"

namespace outboard::wire {

class BlobUploadPlan {
 public:
  struct Blob {
    uint64_t size_bytes = 0;
    const BlobName* name = nullptr;  // where it is known
  };
  // held_max: chunks that may be in memory between their hash and their sending.
  BlobUploadPlan(std::span<const Blob> blobs, size_t held_max);

  enum class Do { kHash, kAsk, kSend, kWait, kNothing };  // kNothing: nothing will come either
  struct Job {
    Do what = Do::kNothing;
    size_t chunk = 0;
    std::vector<size_t> ask;
  };
  Job Next();

  // What became of a job.
  void Hashed(size_t chunk, const Hash& hash);
  void Answered(std::span<const size_t> asked, std::span<const Hash> missing);
  void Sent(size_t chunk);

  // The connections broke: jobs under way are forgotten, and everything that has a hash is asked
  // for.
  void Again();
  // What was known of the blob's name is wrong.
  void Unname(size_t blob);

  struct Chunk {
    size_t blob = 0;
    size_t index = 0;  // in the blob
    uint64_t offset = 0;
    uint32_t bytes = 0;
    Hash hash{};
  };
  const Chunk& chunk(size_t i) const { return entries_[i].chunk; }
  size_t chunk_count() const { return entries_.size(); }
  // Whether the memory that it was hashed in is still to be used.
  bool IsHeld(size_t chunk) const { return entries_[chunk].held; }
  std::vector<Hash> HashesOf(size_t blob) const;
  uint64_t saved_bytes() const;  // of chunks that were there

 private:
  enum class State { kUnread, kHashing, kHashed, kAsked, kThere, kMissing, kSending, kSent };
  struct Entry {
    Chunk chunk;
    State state = State::kUnread;
    bool held = false;
  };
  void Set(size_t i, State state);
  void Drop(size_t i);

  const size_t held_max_;
  std::vector<Entry> entries_;
  std::vector<size_t> first_;  // of each blob, and the end
  std::deque<size_t> to_hash_, to_ask_, to_send_;
  std::map<Hash, size_t> first_with_;  // which chunk stands for all of its hash
  size_t hashing_ = 0, held_ = 0;
  bool asking_ = false;
};

}  // namespace outboard::wire
