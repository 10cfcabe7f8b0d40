// Schedules the jobs of an upload: read and hash chunks, ask which of them are missing, send those.
// Asking and sending overlap with hashing, so that the connection is busy from the first chunk on.
//
// No I/O. Threads: one at a time. Chunks are numbered across all blobs of the upload, from 0.
//
//   unread --kHash--> hashed --kAsk--> there
//                                 \--> missing --kSend--> sent
// A chunk of a blob with a known name begins as hashed; a chunk whose hash occurred before counts
// as there, since the other one is sent. Again() returns all chunks with a hash to hashed: only the
// end of its stream confirms that a chunk has arrived.
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
    const BlobName* name = nullptr;  // null: not known
  };
  // `held_max`: the most chunks in memory between hashing and sending.
  BlobUploadPlan(std::span<const Blob> blobs, size_t held_max);

  enum class Do { kHash, kAsk, kSend, kWait, kNothing };  // kNothing: no more jobs
  struct Job {
    Do what = Do::kNothing;
    size_t chunk = 0;
    std::vector<size_t> ask;
  };
  Job Next();

  // Results of a job.
  void Hashed(size_t chunk, const Hash& hash);
  void Answered(std::span<const size_t> asked, std::span<const Hash> missing);
  void Sent(size_t chunk);

  // Restarts after broken connections: drops jobs in flight and asks again for all chunks with a
  // hash.
  void Again();
  // Drops a blob's known name, which was wrong, and calls Again.
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
  // True while the memory that holds the hashed chunk is needed for sending.
  bool IsHeld(size_t chunk) const { return entries_[chunk].held; }
  std::vector<Hash> HashesOf(size_t blob) const;
  uint64_t saved_bytes() const;  // of chunks that were not missing

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
  std::map<Hash, size_t> first_with_;  // the chunk that is sent for all chunks of this hash
  size_t hashing_ = 0, held_ = 0;
  bool asking_ = false;
};

}  // namespace outboard::wire
