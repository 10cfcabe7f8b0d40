#include "runtime/cuda/upload_stream.h"

#include <algorithm>
#include <iterator>

namespace outboard::cuda {

UploadStream::~UploadStream() {
  if (!context_->Enter().ok()) return;  // the process ends, and all with it
  for (const auto& [block, buffer] : fresh_)
    if (buffer.copied != nullptr) unused_.push_back(buffer.copied);
  for (const MarkedPlace& mark : marks_)
    if (mark.event != nullptr) unused_.push_back(mark.event);
  for (const CUevent event : unused_) context_->api().cuEventDestroy(event);
  if (stream_ != nullptr) context_->api().cuStreamDestroy(stream_);
}

absl::Status UploadStream::Open(CUstream work) {
  work_ = work;
  OB_CUDA(*context_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  for (MarkedPlace& mark : marks_)
    OB_CUDA(*context_, cuEventCreate, &mark.event, CU_EVENT_DISABLE_TIMING);
  return pieces_.Open(stream_);
}

// ---- work ---------------------------------------------------------------------------------------

absl::Status UploadStream::BeforeWork(std::span<const CUdeviceptr> addresses) {
  ++queued_;
  for (const CUdeviceptr address : addresses) {
    if (fresh_.empty()) return absl::OkStatus();
    const auto buffer = Find(address);
    if (buffer == fresh_.end()) continue;
    if (absl::Status status = LetWorkWait(buffer); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status UploadStream::Mark() {
  MarkedPlace& mark = marks_[next_mark_];
  next_mark_ = (next_mark_ + 1) % marks_.size();
  OB_CUDA(*context_, cuEventRecord, mark.event, work_);
  mark.place = queued_;
  return absl::OkStatus();
}

uint64_t UploadStream::Done() {
  for (MarkedPlace& mark : marks_) {
    if (mark.place <= done_) continue;
    if (context_->api().cuEventQuery(mark.event) == CUDA_SUCCESS) done_ = mark.place;
  }
  return done_;
}

// ---- fresh buffers ------------------------------------------------------------------------------

UploadStream::Fresh::iterator UploadStream::Find(CUdeviceptr address) {
  auto behind = fresh_.upper_bound(address);
  if (behind == fresh_.begin()) return fresh_.end();
  const auto buffer = std::prev(behind);
  const auto bytes = static_cast<CUdeviceptr>(std::max<int64_t>(buffer->second.bytes, 1));
  return address - buffer->first < bytes ? buffer : fresh_.end();
}
UploadStream::Fresh::const_iterator UploadStream::Find(CUdeviceptr address) const {
  return const_cast<UploadStream*>(this)->Find(address);
}

void UploadStream::Add(CUdeviceptr block, int64_t bytes, uint64_t used_until) {
  fresh_[block] = {.bytes = bytes, .used_until = used_until};
}

absl::Status UploadStream::Remove(CUdeviceptr block) {
  const auto buffer = fresh_.find(block);
  return buffer == fresh_.end() ? absl::OkStatus() : LetWorkWait(buffer);
}

absl::Status UploadStream::LetWorkWait(Fresh::iterator buffer) {
  const CUevent copied = buffer->second.copied;
  fresh_.erase(buffer);
  if (copied == nullptr) return absl::OkStatus();
  unused_.push_back(copied);  // a wait that is queued keeps what it waits for
  OB_CUDA(*context_, cuStreamWaitEvent, work_, copied, 0);
  return absl::OkStatus();
}

absl::Status UploadStream::WaitForWork(Buffer& buffer) {
  const uint64_t place = buffer.used_until;
  buffer.used_until = 0;
  if (place <= waited_ || place <= Done()) return absl::OkStatus();
  const MarkedPlace* first = nullptr;  // of the marks behind the place
  for (const MarkedPlace& mark : marks_)
    if (mark.place >= place && (first == nullptr || mark.place < first->place)) first = &mark;
  if (first == nullptr) {
    if (absl::Status status = Mark(); !status.ok()) return status;
    first = &marks_[(next_mark_ + marks_.size() - 1) % marks_.size()];
  }
  OB_CUDA(*context_, cuStreamWaitEvent, stream_, first->event, 0);
  waited_ = std::max(waited_, first->place);
  return absl::OkStatus();
}

absl::Status UploadStream::Copied(Buffer& buffer) {
  if (buffer.copied == nullptr && !unused_.empty()) {
    buffer.copied = unused_.back();
    unused_.pop_back();
  }
  if (buffer.copied == nullptr)
    OB_CUDA(*context_, cuEventCreate, &buffer.copied, CU_EVENT_DISABLE_TIMING);
  OB_CUDA(*context_, cuEventRecord, buffer.copied, stream_);
  return absl::OkStatus();
}

absl::Status UploadStream::Copy(CUdeviceptr to, int64_t bytes, Source source) {
  Buffer& buffer = Find(to)->second;
  if (absl::Status status = WaitForWork(buffer); !status.ok()) return status;
  absl::Status status = pieces_.CopyAll(to, bytes, source);
  // Also after an error: pieces before it may be on their way.
  if (absl::Status marked = Copied(buffer); !marked.ok()) status.Update(marked);
  return status;
}

absl::Status UploadStream::Clear(CUdeviceptr block, int64_t bytes) {
  Buffer& buffer = Find(block)->second;
  if (absl::Status status = WaitForWork(buffer); !status.ok()) return status;
  OB_CUDA(*context_, cuMemsetD8Async, block, 0, static_cast<size_t>(bytes), stream_);
  return Copied(buffer);
}

}  // namespace outboard::cuda
