#include "gateway/groups/rank_answers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::gateway {

void RankAnswers::Restart() {
  for (Rank& rank : ranks_) rank.opened = false;
  opened_ = 0;
  told_seq_ = checked_seq_ = 0;
  told_end_ = false;
  held_.Clear();
  failures_.clear();
  failed_.clear();
}

void RankAnswers::Acknowledged(uint64_t through_seq) {
  failed_.erase(failed_.begin(), failed_.upper_bound(through_seq));
}

uint64_t RankAnswers::most_opened() const {
  uint64_t most = 0;
  for (const Rank& rank : ranks_) most = std::max(most, rank.opened_seq);
  return most;
}

bool RankAnswers::opened_alike() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [&](const Rank& rank) { return rank.opened_seq == ranks_[0].opened_seq; });
}

proto::Done RankAnswers::last_done() const {
  proto::Done done;
  done.set_through_seq(told_seq_);
  AddWork(done);
  return done;
}

void RankAnswers::AddWork(proto::Done& done) const {
  uint64_t device_time_us = 0, kernels = 0, operations = 0, bytes_accessed = 0;
  for (const Rank& each : ranks_) {
    device_time_us += each.device_time_us;
    kernels += each.kernels;
    operations += each.operations;
    bytes_accessed += each.bytes_accessed;
  }
  done.set_device_time_us(device_time_us);
  done.set_kernels_launched(kernels);
  done.set_operations(operations);
  done.set_bytes_accessed(bytes_accessed);
}

uint64_t RankAnswers::LeastDone() const {
  return std::min_element(ranks_.begin(), ranks_.end(),
                          [](const Rank& a, const Rank& b) { return a.done_seq < b.done_seq; })
      ->done_seq;
}

absl::Status RankAnswers::Merge(uint32_t rank, uint64_t sent_seq, proto::ServerFrame& frame) {
  Items out;
  bool first_word = false;  // all have opened with this frame
  for (proto::ServerItem& item : *frame.mutable_items()) {
    bool passes = rank == 0;
    if (item.has_opened()) {
      if (std::exchange(ranks_[rank].opened, true)) continue;
      OnOpened(rank, *item.mutable_opened());
      if (rank == 0) held_.Add()->Swap(&item);  // before what follows it
      first_word |= all_opened();
      if (first_word) {
        proto::Opened* opened = nullptr;
        for (proto::ServerItem& held : held_)
          if (held.has_opened()) opened = held.mutable_opened();
        opened->set_applied_seq(LeastDone());
        told_seq_ = checked_seq_ = LeastDone();
        out.Swap(&held_);
      }
      continue;
    }
    const bool ends = item.has_failed() && item.failed().seq() == 0;
    if (!ranks_[rank].opened && !ends) continue;  // of the client before
    if (item.has_done()) passes = OnDone(rank, sent_seq, *item.mutable_done());
    if (item.has_failed()) passes = OnFailed(rank, item.failed());
    if (!passes) continue;
    (all_opened() || ends ? out : held_).Add()->Swap(&item);
  }
  frame.mutable_items()->Swap(&out);
  return CheckFailures();
}

void RankAnswers::OnOpened(uint32_t rank, proto::Opened& opened) {
  ++opened_;
  ranks_[rank].opened_seq = ranks_[rank].done_seq = opened.applied_seq();
  opened.set_devices(static_cast<uint32_t>(ranks_.size()));
}

bool RankAnswers::OnDone(uint32_t rank, uint64_t sent_seq, proto::Done& done) {
  Rank& from = ranks_[rank];
  if (const uint64_t most = std::max(sent_seq, from.opened_seq); done.through_seq() > most) {
    lied_ = true;
    done.set_through_seq(most);
  }
  from.done_seq = std::max(from.done_seq, done.through_seq());
  from.device_time_us = std::max(from.device_time_us, done.device_time_us());
  from.kernels = std::max(from.kernels, done.kernels_launched());
  from.operations = std::max(from.operations, done.operations());
  from.bytes_accessed = std::max(from.bytes_accessed, done.bytes_accessed());
  AddWork(done);
  done.clear_kernel_uses();
  done.set_durable_seq(0);
  if (rank != 0) {
    done.clear_values();
    done.clear_spans();
    done.clear_passages();
  }
  const uint64_t least = all_opened() ? LeastDone() : told_seq_;
  done.set_through_seq(least);
  const bool is_news = least > std::exchange(told_seq_, std::max(told_seq_, least));
  return is_news || done.values_size() > 0 || done.spans_size() > 0 || done.passages_size() > 0;
}

// An item may have failed before this epoch began, and be answered again; a forwarder that was cut
// off may send what it has sent before.
bool RankAnswers::OnFailed(uint32_t rank, const proto::Failed& failed) {
  if (failed.seq() == 0) return !std::exchange(told_end_, true);
  // A Fetch or a Save, which changes nothing that the ranks hold; only rank 0 stores.
  if (failed.handles().empty()) return rank == 0;
  if (failed.seq() > checked_seq_) {
    const auto [at, is_first] = failures_.try_emplace(failed.seq());
    if (is_first) at->second = {.rank = rank, .message = failed.message()};
    at->second.ranks |= uint64_t{1} << rank;
  }
  return failed_.insert(failed.seq()).second;
}

// A rank that had applied an item when it opened need not say again that it failed.
absl::Status RankAnswers::CheckFailures() {
  if (!all_opened()) return absl::OkStatus();
  checked_seq_ = std::max(checked_seq_, LeastDone());
  while (!failures_.empty() && failures_.begin()->first <= checked_seq_) {
    const auto [seq, failure] = *failures_.begin();
    failures_.erase(failures_.begin());
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].opened_seq < seq && (failure.ranks >> rank & 1) == 0)
        return absl::InternalError(absl::StrCat("item ", seq, " failed on rank ", failure.rank,
                                                " of ", ranks_.size(), " and not on rank ", rank,
                                                ": ", failure.message));
  }
  return absl::OkStatus();
}

}  // namespace outboard::gateway
