#include "wire/blobs/upload_plan.h"

#include <algorithm>
#include <set>

#include "wire/limits.h"

namespace outboard::wire {

namespace {
// Asks for fewer only if no more come for now: each request costs a round trip.
constexpr size_t kAskAtLeast = 4;
}  // namespace

BlobUploadPlan::BlobUploadPlan(std::span<const Blob> blobs, size_t held_max) : held_max_(held_max) {
  for (size_t b = 0; b < blobs.size(); ++b) {
    first_.push_back(entries_.size());
    for (uint64_t at = 0; at < blobs[b].size_bytes; at += kBlobChunkBytes) {
      Entry entry;
      entry.chunk.blob = b;
      entry.chunk.index = at / kBlobChunkBytes;
      entry.chunk.offset = at;
      entry.chunk.bytes =
          static_cast<uint32_t>(std::min<uint64_t>(kBlobChunkBytes, blobs[b].size_bytes - at));
      entries_.push_back(entry);
      const size_t i = entries_.size() - 1;
      if (blobs[b].name == nullptr) {
        to_hash_.push_back(i);
      } else {
        entries_[i].chunk.hash = blobs[b].name->chunks[entry.chunk.index];
        Set(i, State::kHashed);
      }
    }
  }
  first_.push_back(entries_.size());
}

// Queues hashed chunks to be asked for, once for each hash.
void BlobUploadPlan::Set(size_t i, State state) {
  Entry& entry = entries_[i];
  if (state == State::kHashed && first_with_.emplace(entry.chunk.hash, i).first->second != i)
    state = State::kThere;
  entry.state = state;
  if (state == State::kHashed) to_ask_.push_back(i);
  if (state == State::kMissing) to_send_.push_back(i);
  if (state == State::kThere || state == State::kSent) Drop(i);
}

void BlobUploadPlan::Drop(size_t i) {
  if (entries_[i].held) --held_;
  entries_[i].held = false;
}

BlobUploadPlan::Job BlobUploadPlan::Next() {
  Job job;
  if (!to_send_.empty()) {
    job.what = Do::kSend;
    job.chunk = to_send_.front();
    to_send_.pop_front();
    entries_[job.chunk].state = State::kSending;
    return job;
  }
  const bool more_come = !to_hash_.empty() || hashing_ > 0;
  if (!asking_ && !to_ask_.empty() &&
      (to_ask_.size() >= kAskAtLeast || !more_come || held_ >= held_max_)) {
    job.what = Do::kAsk;
    const size_t count = std::min(to_ask_.size(), kBlobHashesMax);
    job.ask.assign(to_ask_.begin(), to_ask_.begin() + static_cast<ptrdiff_t>(count));
    to_ask_.erase(to_ask_.begin(), to_ask_.begin() + static_cast<ptrdiff_t>(count));
    for (size_t i : job.ask) entries_[i].state = State::kAsked;
    asking_ = true;
    return job;
  }
  if (!to_hash_.empty() && held_ < held_max_) {
    job.what = Do::kHash;
    job.chunk = to_hash_.front();
    to_hash_.pop_front();
    entries_[job.chunk].state = State::kHashing;
    entries_[job.chunk].held = true;
    ++held_;
    ++hashing_;
    return job;
  }
  if (more_come || asking_ || !to_ask_.empty()) job.what = Do::kWait;
  return job;
}

void BlobUploadPlan::Hashed(size_t chunk, const Hash& hash) {
  --hashing_;
  entries_[chunk].chunk.hash = hash;
  Set(chunk, State::kHashed);
}

void BlobUploadPlan::Answered(std::span<const size_t> asked, std::span<const Hash> missing) {
  asking_ = false;
  const std::set<Hash> wanted(missing.begin(), missing.end());
  for (size_t i : asked)
    Set(i, wanted.contains(entries_[i].chunk.hash) ? State::kMissing : State::kThere);
}

void BlobUploadPlan::Sent(size_t chunk) { Set(chunk, State::kSent); }

void BlobUploadPlan::Again() {
  to_hash_.clear();
  to_ask_.clear();
  to_send_.clear();
  first_with_.clear();
  hashing_ = 0;
  asking_ = false;
  for (size_t i = 0; i < entries_.size(); ++i) {
    Drop(i);
    if (entries_[i].state == State::kUnread || entries_[i].state == State::kHashing) {
      entries_[i].state = State::kUnread;
      to_hash_.push_back(i);
    } else {
      Set(i, State::kHashed);
    }
  }
}

void BlobUploadPlan::Unname(size_t blob) {
  for (size_t i = first_[blob]; i < first_[blob + 1]; ++i) entries_[i].state = State::kUnread;
  Again();
}

uint64_t BlobUploadPlan::saved_bytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.state == State::kThere ? entry.chunk.bytes : 0;
  return bytes;
}

std::vector<Hash> BlobUploadPlan::HashesOf(size_t blob) const {
  std::vector<Hash> hashes;
  for (size_t i = first_[blob]; i < first_[blob + 1]; ++i) hashes.push_back(entries_[i].chunk.hash);
  return hashes;
}

}  // namespace outboard::wire
