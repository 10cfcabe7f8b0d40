#include "gateway/groups/group_snapshots.h"

#include <algorithm>

#include "wire/limits.h"

namespace outboard::gateway {

// ---- when ---------------------------------------------------------------------------------------

void SnapshotAsks::Begin(uint32_t interval_ms, int64_t now_ms) {
  if (interval_ms_ == 0) next_ms_ = now_ms + interval_ms;
  interval_ms_ = interval_ms;
  asked_ = {};
  is_open_ = false;
}

void SnapshotAsks::Sent(uint64_t seq, uint64_t put_bytes) {
  sent_seq_ = seq;
  sent_put_bytes_ += put_bytes;
}

bool SnapshotAsks::IsUrgent() const {
  return requested_ || sent_seq_ - durable_seq_ >= wire::kNotDurableItemsMax ||
         sent_put_bytes_ - durable_put_bytes_ >= wire::kNotDurableBytesMax;
}

std::optional<SnapshotAsks::Ask> SnapshotAsks::Due(int64_t now_ms, uint64_t from_seq) {
  if (sent_seq_ <= durable_seq_) requested_ = false;
  const bool has_more = sent_seq_ > durable_seq_ && sent_seq_ >= from_seq;
  if (interval_ms_ == 0 || is_open_ || !has_more) return std::nullopt;
  if (now_ms < next_ms_ && !(IsUrgent() && now_ms >= retry_ms_)) return std::nullopt;
  asked_ = {sent_seq_, asked_.number + 1};
  asked_put_bytes_ = sent_put_bytes_;
  is_open_ = true;
  settled_ = 0;
  next_ms_ = now_ms + interval_ms_;
  retry_ms_ = now_ms + kRetryMs;
  return asked_;
}

void SnapshotAsks::Missed(uint32_t rank, uint64_t number) {
  if (is_open_ && number == asked_.number) Settle(rank);
}

void SnapshotAsks::PartKept(uint32_t rank, uint64_t seq) {
  if (is_open_ && seq == asked_.seq) Settle(rank);
}

void SnapshotAsks::Settle(uint32_t rank) {
  settled_ |= uint64_t{1} << rank;
  const uint64_t all = ranks_ >= 64 ? ~uint64_t{0} : (uint64_t{1} << ranks_) - 1;
  is_open_ = settled_ != all;
}

// Bytes of Puts between the asked item and another one that became durable count once more.
void SnapshotAsks::Durable(uint64_t seq) {
  if (seq <= durable_seq_) return;
  durable_seq_ = seq;
  if (asked_.number > 0 && seq == asked_.seq) durable_put_bytes_ = asked_put_bytes_;
}

// ---- what ---------------------------------------------------------------------------------------

bool SnapshotParts::Add(uint32_t rank, uint64_t seq, const wire::Hash& manifest) {
  if (rank >= ranks_ || seq <= whole_seq_) return false;
  std::map<uint32_t, wire::Hash>& parts = parts_[seq];
  parts[rank] = manifest;
  if (parts.size() < ranks_) {
    while (parts_.size() > kItemsMax) parts_.erase(parts_.begin());
    return false;
  }
  whole_.clear();
  for (const auto& [of, root] : parts) whole_.push_back(root);
  whole_seq_ = seq;
  parts_.erase(parts_.begin(), parts_.upper_bound(seq));
  return true;
}

std::string RootOfParts(const std::vector<wire::Hash>& parts) {
  std::string root;
  for (const wire::Hash& part : parts) root += wire::AsBytes(part);
  return root;
}

std::optional<std::vector<wire::Hash>> PartsOfRoot(std::string_view root, uint32_t ranks) {
  if (root.size() != ranks * wire::kHashBytes) return std::nullopt;
  std::vector<wire::Hash> parts;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    parts.push_back(*wire::HashFromBytes(PartOfRoot(root, rank, ranks)));
  return parts;
}

std::string PartOfRoot(std::string_view root, uint32_t rank, uint32_t ranks) {
  if (ranks == 1 || root.empty()) return std::string(root);
  return std::string(root.substr(rank * wire::kHashBytes, wire::kHashBytes));
}

}  // namespace outboard::gateway
