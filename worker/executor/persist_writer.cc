#include "worker/executor/persist_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "wire/limits.h"
#include "wire/merkle.h"

namespace outboard::worker {
namespace {

absl::Status FileError(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the file of what is to be stored: ", what, ": ", std::strerror(errno)));
}

absl::Status WriteFully(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status Clear(int fd) {
  if (ftruncate(fd, 0) != 0) return FileError("ftruncate");
  return absl::OkStatus();
}

}  // namespace

PersistWriter::PersistWriter(int file, size_t pieces_max) : file_(file), pieces_max_(pieces_max) {
  thread_ = std::thread([this] { Work(); });
}

PersistWriter::~PersistWriter() {
  {
    std::lock_guard lock(mutex_);
    end_ = true;
    changed_.notify_all();
  }
  thread_.join();
  close(file_);
}

// ---- the session's thread -----------------------------------------------------------------------

void PersistWriter::Write(std::shared_ptr<const PersistRequest> request) {
  OB_CHECK(!busy());
  std::erase_if(known_, [](const auto& known) { return known.second.array.expired(); });
  request_ = std::move(request);
  written_.reset();
  roots_.assign(request_->arrays.size(), {});
  skip_.assign(request_->arrays.size(), false);
  for (size_t i = 0; i < request_->arrays.size(); ++i) {
    const auto known = known_.find(request_->arrays[i].get());
    if (known == known_.end()) continue;
    roots_[i] = known->second.root;
    // A checkpoint is asked for once: it relies on nothing that the store may have let go of.
    skip_[i] = !request_->checkpoint && stored_.contains(known->second.root);
  }
  job_ = request_.get();
  std::lock_guard lock(mutex_);
  working_ = true;
  changed_.notify_all();
}

// The thread has finished: what it found out, and the arrays, are ours again.
void PersistWriter::Collect() {
  for (size_t i = 0; i < roots_.size(); ++i)
    if (!roots_[i].empty())
      known_[request_->arrays[i].get()] = {request_->arrays[i], std::move(roots_[i])};
  written_ = std::move(result_);
  if (written_->blobs.ok()) under_way_ = written_->roots;
  job_ = nullptr;
  request_.reset();
}

std::optional<PersistWriter::Written> PersistWriter::Take() {
  if (busy()) {
    {
      std::lock_guard lock(mutex_);
      if (working_) return std::nullopt;
    }
    Collect();
  }
  return std::exchange(written_, std::nullopt);
}

void PersistWriter::LetGo() {
  if (!busy()) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !working_; });
  }
  Collect();
}

void PersistWriter::Stored(const proto::Stored& stored) {
  if (stored.code() == 0) {
    stored_.insert(under_way_.begin(), under_way_.end());
    std::set<std::string> held;  // what no array holds any more is not asked for again
    for (const auto& [array, known] : known_)
      if (!known.array.expired()) held.insert(known.root);
    std::erase_if(stored_, [&](const std::string& root) { return !held.contains(root); });
  } else {
    stored_
        .clear();  // it may be that one of them is not there any more: all of it is offered again
  }
  under_way_.clear();
}

// ---- the writing thread -------------------------------------------------------------------------

void PersistWriter::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return end_ || working_; });
    if (end_) return;
    lock.unlock();
    Written result{job_->id, proto::StoreBlobs()};
    if (absl::Status status = WriteAll(result); !status.ok()) {
      Clear(file_).IgnoreError();
      result = {job_->id, std::move(status)};
    }
    lock.lock();
    result_ = std::move(result);
    working_ = false;
    changed_.notify_all();
  }
}

absl::Status PersistWriter::WriteAll(Written& written) {
  OB_RETURN_IF_ERROR(Clear(file_));
  written_roots_.clear();
  end_bytes_ = 0;
  std::map<const DeviceArray*, std::string> root_of;  // one array may have several handles
  for (size_t i = 0; i < roots_.size(); ++i) {
    if (skip_[i]) {
      written.roots.insert(roots_[i]);
      continue;
    }
    const DeviceArray& array = *job_->arrays[i];
    if (const auto known = root_of.find(&array); known != root_of.end()) roots_[i] = known->second;
    if (roots_[i].empty() || !written_roots_.contains(roots_[i])) {
      const auto read = [&](runtime::Device::Sink sink) {
        return array.device().Download(array.address(), array.bytes(), wire::kBlobChunkBytes, sink);
      };
      OB_ASSIGN_OR_RETURN(roots_[i],
                          WriteBlob(static_cast<uint64_t>(array.bytes()), read, written));
    }
    root_of[&array] = roots_[i];
    written.roots.insert(roots_[i]);
  }
  const std::string entries = job_->ManifestBytes(roots_);
  const auto read = [&](runtime::Device::Sink sink) {
    absl::Status status;
    for (size_t at = 0; at < entries.size() && status.ok(); at += wire::kBlobChunkBytes)
      status = sink(std::string_view(entries).substr(at, wire::kBlobChunkBytes));
    return status;
  };
  OB_ASSIGN_OR_RETURN(const std::string manifest, WriteBlob(entries.size(), read, written));
  proto::StoreBlobs& blobs = *written.blobs;
  blobs.set_id(job_->id);
  blobs.set_seq(job_->seq);
  blobs.set_epoch(job_->epoch);
  blobs.set_checkpoint(job_->checkpoint);
  blobs.set_name(job_->name);
  blobs.set_manifest_root(manifest);
  return absl::OkStatus();
}

// Hashes and writes a chunk at a time, while it is in the cache.
absl::StatusOr<std::string> PersistWriter::WriteBlob(uint64_t bytes, ReadChunks read,
                                                     Written& written) {
  if (lseek(file_, static_cast<off_t>(end_bytes_), SEEK_SET) < 0) return FileError("lseek");
  std::vector<wire::Hash> chunks;
  OB_RETURN_IF_ERROR(read([&](std::string_view chunk) {
    chunks.push_back(wire::HashChunk(chunk));
    return WriteFully(file_, chunk);
  }));
  const std::string root(wire::AsBytes(wire::MerkleRoot(chunks, bytes)));
  if (!written_roots_.insert(root).second) return root;  // the next is written over it
  proto::StoreBlobs& blobs = *written.blobs;
  if (static_cast<size_t>(blobs.pieces_size()) == pieces_max_) {
    blobs.set_id(job_->id);
    blobs.set_checkpoint(job_->checkpoint);
    blobs.set_more(true);
    written.before.push_back(std::exchange(blobs, {}));
  }
  proto::StoreBlobs::Piece& piece = *blobs.add_pieces();
  piece.set_root(root);
  piece.set_offset(end_bytes_);
  piece.set_size_bytes(bytes);
  end_bytes_ += bytes;
  return root;
}

}  // namespace outboard::worker
