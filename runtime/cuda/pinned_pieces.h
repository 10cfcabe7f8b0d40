// Copies between the host's memory and a device's through pinned pieces: the driver copies from and
// to pinned memory while the host goes on; any other memory it would pin or copy itself, at each
// call, while the host waits.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/driver_context.h"

namespace outboard::cuda {

// Two of these are in use by turns; one is long enough that the calls cost nothing beside its copy.
inline constexpr int64_t kPinnedPieceBytes = int64_t{4} << 20;

// Pinned memory of kPinnedPieceBytes, and an event that tells when it may be used again. Where the
// host has none to pin it is ordinary memory, which the driver copies through its own pieces: the
// same bytes, slower, and the thread waits.
class PinnedPiece {
 public:
  explicit PinnedPiece(DriverContext* context) : context_(context) {}
  ~PinnedPiece();
  PinnedPiece(const PinnedPiece&) = delete;
  PinnedPiece& operator=(const PinnedPiece&) = delete;

  absl::Status Open();
  char* data() const { return static_cast<char*>(data_); }
  // All work queued on `stream` so far uses it.
  absl::Status MarkUsed(CUstream stream);
  // Waits until that work is done.
  absl::Status Wait();

 private:
  DriverContext* const context_;
  void* data_ = nullptr;
  std::unique_ptr<char[]> ordinary_;  // data_, where it is not pinned
  CUevent done_ = nullptr;
  bool used_ = false;
};

// Copies to the device, on one stream. Threads: one at a time.
class UploadPieces {
 public:
  explicit UploadPieces(DriverContext* context)
      : context_(context), pieces_{PinnedPiece(context), PinnedPiece(context)} {}
  absl::Status Open(CUstream stream);

  // Queues a copy of `bytes` bytes, which `source` fills into one piece after the other. Stops at
  // its first error and returns it.
  using Source = absl::FunctionRef<absl::Status(int64_t offset, char* piece, int64_t bytes)>;
  absl::Status CopyAll(CUdeviceptr to, int64_t bytes, Source source);

  // Returns room for `bytes`, at most kPinnedPieceBytes. What reads it must be queued before the
  // next call.
  absl::StatusOr<char*> Take(int64_t bytes);

 private:
  DriverContext* const context_;
  CUstream stream_ = nullptr;
  std::array<PinnedPiece, 2> pieces_;
  int current_ = 0;
  int64_t used_ = 0;  // of the current one
};

// Copies from the device on a stream of its own, beside the work of other streams. Threads: one at
// a time.
class DownloadPieces {
 public:
  explicit DownloadPieces(DriverContext* context)
      : context_(context), pieces_{PinnedPiece(context), PinnedPiece(context)} {}
  ~DownloadPieces();
  absl::Status Open();

  // Passes `bytes` bytes at `from`, as all work queued on the streams `after` leaves them, to
  // `sink`, in order, `piece_bytes` at a time or less. Stops at the first error of `sink` and
  // returns it.
  using Sink = absl::FunctionRef<absl::Status(int64_t offset, const char* piece, int64_t bytes)>;
  static constexpr size_t kStreamsMax = 2;
  absl::Status Read(std::span<const CUstream, kStreamsMax> after, CUdeviceptr from, int64_t bytes,
                    int64_t piece_bytes, Sink sink);

 private:
  DriverContext* const context_;
  CUstream stream_ = nullptr;
  std::array<CUevent, kStreamsMax> before_{};  // one for each stream that is waited for
  std::array<PinnedPiece, 2> pieces_;
};

}  // namespace outboard::cuda
