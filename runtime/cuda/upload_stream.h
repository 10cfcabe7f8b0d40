// Uploads beside the device's work: a stream of copies into buffers that no work has named yet.
//
//   Add --> fresh --> (Copy)* --> BeforeWork, or Remove --> not known here
//
// Invariants:
//  1. A buffer is *fresh* from its allocation until the first work that names an address in it.
//  2. Copies into fresh buffers go on this stream; all others are work, in the order of the calls.
//  3. Copies into a fresh buffer wait for the work that may still use its memory: what was queued
//     before the memory's last owner freed it.
//  4. The first work that names a fresh buffer waits for the copies into it. So does all later work
//     on its memory, if the buffer is freed before any work has named it.
//
// Work is counted as it is queued; the count is the *place* of work on its stream. Marks are events
// of that stream: the copies of invariant 3 wait for the first mark behind a place.
//
// Threads: one at a time, but for stream().
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/cuda/driver_context.h"
#include "runtime/cuda/pinned_pieces.h"

namespace outboard::cuda {

class UploadStream {
 public:
  explicit UploadStream(DriverContext* context) : context_(context), pieces_(context) {}
  ~UploadStream();
  UploadStream(const UploadStream&) = delete;
  UploadStream& operator=(const UploadStream&) = delete;

  // Work is what is queued on `work`, a stream of the same context.
  absl::Status Open(CUstream work);

  CUstream stream() const { return stream_; }

  // ---- work

  // Call before work is queued that reads or writes at these addresses.
  absl::Status BeforeWork(std::span<const CUdeviceptr> addresses);
  // Marks the end of what is queued, so that copies can wait for that much alone. Without marks
  // they wait for more.
  absl::Status Mark();
  // The place of the work that was queued last.
  uint64_t queued() const { return queued_; }
  // All work up to this place is done; there may be more.
  uint64_t Done();

  // ---- fresh buffers

  // A buffer of `bytes` at `block`, whose memory may be used by work up to the place `used_until`.
  void Add(CUdeviceptr block, int64_t bytes, uint64_t used_until);
  // The buffer is freed; one that is not fresh is not known here.
  absl::Status Remove(CUdeviceptr block);
  bool IsFresh(CUdeviceptr address) const { return Find(address) != fresh_.end(); }

  // Copies `bytes` bytes into a fresh buffer. `source` fills one piece after the other.
  using Source = UploadPieces::Source;
  absl::Status Copy(CUdeviceptr to, int64_t bytes, Source source);
  // Overwrites the memory of a fresh buffer, which may be larger than the buffer, with zeros.
  absl::Status Clear(CUdeviceptr block, int64_t bytes);

 private:
  struct Buffer {
    int64_t bytes;
    uint64_t used_until;       // copies wait for the work up to this place; 0: they need not
    CUevent copied = nullptr;  // after the last copy into it; nullptr: there is none
  };
  struct MarkedPlace {
    uint64_t place = 0;  // 0: not used yet
    CUevent event = nullptr;
  };
  using Fresh = std::map<CUdeviceptr, Buffer>;

  Fresh::iterator Find(CUdeviceptr address);
  Fresh::const_iterator Find(CUdeviceptr address) const;
  absl::Status WaitForWork(Buffer& buffer);
  absl::Status Copied(Buffer& buffer);
  // Work that is queued from now on waits for the copies into this buffer, which is forgotten.
  absl::Status LetWorkWait(Fresh::iterator buffer);

  DriverContext* const context_;
  CUstream work_ = nullptr, stream_ = nullptr;
  UploadPieces pieces_;
  Fresh fresh_;                   // by first address
  std::vector<CUevent> unused_;  // events for Buffer::copied
  uint64_t queued_ = 0, done_ = 0;
  uint64_t waited_ = 0;               // copies that are queued from now on run behind this place
  std::array<MarkedPlace, 8> marks_;  // a ring
  size_t next_mark_ = 0;
};

}  // namespace outboard::cuda
