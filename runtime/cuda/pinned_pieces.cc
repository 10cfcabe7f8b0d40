#include "runtime/cuda/pinned_pieces.h"

#include <algorithm>

namespace outboard::cuda {
namespace {

constexpr int64_t kAlignment = 16;

}  // namespace

// ---- PinnedPiece --------------------------------------------------------------------------------

PinnedPiece::~PinnedPiece() {
  if (!Wait().ok() || !context_->Enter().ok()) return;  // the process ends, and all with it
  if (done_ != nullptr) context_->api().cuEventDestroy(done_);
  if (data_ != nullptr && ordinary_ == nullptr) context_->api().cuMemFreeHost(data_);
}

absl::Status PinnedPiece::Open() {
  constexpr auto kBytes = static_cast<size_t>(kPinnedPieceBytes);
  const CUresult code = context_->api().cuMemHostAlloc(&data_, kBytes, 0);
  if (code == CUDA_ERROR_OUT_OF_MEMORY) {
    ordinary_ = std::make_unique_for_overwrite<char[]>(kBytes);
    data_ = ordinary_.get();
    context_->WarnOfUnpinnedCopies();
  } else if (code != CUDA_SUCCESS) {
    return context_->Check(code, "cuMemHostAlloc");
  }
  OB_CUDA(*context_, cuEventCreate, &done_, CU_EVENT_DISABLE_TIMING);
  return absl::OkStatus();
}

absl::Status PinnedPiece::MarkUsed(CUstream stream) {
  OB_CUDA(*context_, cuEventRecord, done_, stream);
  used_ = true;
  return absl::OkStatus();
}

absl::Status PinnedPiece::Wait() {
  if (!used_) return absl::OkStatus();
  OB_CUDA(*context_, cuEventSynchronize, done_);
  used_ = false;
  return absl::OkStatus();
}

// ---- UploadPieces -------------------------------------------------------------------------------

absl::Status UploadPieces::Open(CUstream stream) {
  stream_ = stream;
  for (PinnedPiece& piece : pieces_)
    if (absl::Status status = piece.Open(); !status.ok()) return status;
  return absl::OkStatus();
}

absl::StatusOr<char*> UploadPieces::Take(int64_t bytes) {
  if (used_ + bytes > kPinnedPieceBytes) {
    absl::Status status = pieces_[current_].MarkUsed(stream_);
    if (status.ok()) status = pieces_[1 - current_].Wait();
    if (!status.ok()) return status;
    current_ = 1 - current_;
    used_ = 0;
  }
  char* const taken = pieces_[current_].data() + used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return taken;
}

absl::Status UploadPieces::CopyAll(CUdeviceptr to, int64_t bytes, Source source) {
  for (int64_t offset = 0; offset < bytes; offset += kPinnedPieceBytes) {
    const int64_t length = std::min(kPinnedPieceBytes, bytes - offset);
    const absl::StatusOr<char*> piece = Take(length);
    if (!piece.ok()) return piece.status();
    if (absl::Status status = source(offset, *piece, length); !status.ok()) return status;
    OB_CUDA(*context_, cuMemcpyHtoDAsync, to + static_cast<CUdeviceptr>(offset), *piece,
            static_cast<size_t>(length), stream_);
  }
  return absl::OkStatus();
}

// ---- DownloadPieces -----------------------------------------------------------------------------

DownloadPieces::~DownloadPieces() {
  if (!context_->Enter().ok()) return;
  for (const CUevent before : before_)
    if (before != nullptr) context_->api().cuEventDestroy(before);
  if (stream_ != nullptr) context_->api().cuStreamDestroy(stream_);
}

absl::Status DownloadPieces::Open() {
  for (PinnedPiece& piece : pieces_)
    if (absl::Status status = piece.Open(); !status.ok()) return status;
  for (CUevent& before : before_)
    OB_CUDA(*context_, cuEventCreate, &before, CU_EVENT_DISABLE_TIMING);
  OB_CUDA(*context_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  return absl::OkStatus();
}

absl::Status DownloadPieces::Read(std::span<const CUstream, kStreamsMax> after,
                                  CUdeviceptr from, int64_t bytes, int64_t piece_bytes,
                                  Sink sink) {
  piece_bytes = std::clamp<int64_t>(piece_bytes, 1, kPinnedPieceBytes);
  for (size_t i = 0; i < kStreamsMax; ++i) {
    OB_CUDA(*context_, cuEventRecord, before_[i], after[i]);
    if (bytes > 0) OB_CUDA(*context_, cuStreamWaitEvent, stream_, before_[i], 0);
    // Of nothing: what came before is done all the same.
    if (bytes <= 0) OB_CUDA(*context_, cuEventSynchronize, before_[i]);
  }
  if (bytes <= 0) return absl::OkStatus();
  const auto begin = [&](int64_t offset) -> absl::Status {
    PinnedPiece& piece = pieces_[offset / piece_bytes % 2];
    OB_CUDA(*context_, cuMemcpyDtoHAsync, piece.data(), from + static_cast<CUdeviceptr>(offset),
            static_cast<size_t>(std::min(piece_bytes, bytes - offset)), stream_);
    return piece.MarkUsed(stream_);
  };
  // The next piece is copied while `sink` has this one.
  absl::Status status = begin(0);
  for (int64_t offset = 0; status.ok() && offset < bytes; offset += piece_bytes) {
    PinnedPiece& piece = pieces_[offset / piece_bytes % 2];
    if (offset + piece_bytes < bytes) status = begin(offset + piece_bytes);
    if (status.ok()) status = piece.Wait();
    if (status.ok()) status = sink(offset, piece.data(), std::min(piece_bytes, bytes - offset));
  }
  for (PinnedPiece& piece : pieces_) status.Update(piece.Wait());  // not read: `sink` failed
  return status;
}

}  // namespace outboard::cuda
