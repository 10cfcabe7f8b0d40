// What a relay knows of snapshots: when its ranks are to take one (R7 of relay.cc), what the client
// hears of it, and with which kernels items behind it are run again (R4).
#include <utility>

#include "gateway/data_path/relay.h"
#include "wire/limits.h"

namespace outboard::gateway {

namespace {
constexpr size_t kKernelUsesBytesMax = wire::kFrameBytesMax / 2;  // it has to fit into an Open
}  // namespace

void Relay::PartKept(uint32_t rank, uint64_t seq) {
  std::lock_guard lock(mutex_);
  asks_.PartKept(rank, seq);
}

// The client may wait for room: it hears of it at once.
void Relay::SnapshotDurable(uint64_t seq) {
  std::lock_guard lock(mutex_);
  asks_.Durable(seq);
  ForgetKernelUses(seq);
  if (runs_ != nullptr) runs_->Done(seq);
  if (client_ == nullptr || answers_ == nullptr || !answers_->all_opened()) return;
  proto::ServerFrame frame;
  frame.set_epoch(start_.epoch);
  *frame.add_items()->mutable_done() = answers_->last_done();
  FillDone(*frame.mutable_items(0)->mutable_done());
  client_->Send(std::move(frame));
}

void Relay::CheckSnapshot() {
  std::lock_guard lock(mutex_);
  AskForSnapshotIfDue();
}

// R7. Ranks that began with a snapshot get items again: how arrays lie behind one of these is not
// known any more, and a snapshot of it would be no use to a gateway that is started again, or to
// another client. It is asked for behind the last of them.
void Relay::AskForSnapshotIfDue() {
  if (answers_ == nullptr || !answers_->all_opened() || !has_all()) return;
  if (runs_ != nullptr && runs_->sent_seq() > sent_seq_) return;
  const auto ask = asks_.Due(clock_().ns / 1'000'000, answers_->most_opened());
  if (!ask.has_value()) return;
  if (runs_ != nullptr) runs_->NoteSnapshot(ask->seq);
  proto::ClientFrame frame;
  frame.set_epoch(start_.epoch);
  proto::TakeSnapshot& told = *frame.add_items()->mutable_take_snapshot();
  told.set_seq(ask->seq);
  told.set_number(ask->number);
  SendToAll(std::move(frame));
}

// R7.
bool Relay::HaveParted() const { return is_fresh_ && !answers_->opened_alike(); }

// R8. Whether a client that did not send them can go on behind the items that the ranks have.
bool Relay::MayEnter() {
  return answers_->opened_alike() &&
         (runs_ == nullptr || runs_->GoOnBehind(answers_->least_done()));
}

Relay::KernelUsesOfRanks Relay::TakeKernelUses() {
  std::lock_guard lock(mutex_);
  KernelUsesOfRanks all;
  for (RankStream& rank : executors_) {
    rank.kernel_uses_bytes = 0;
    all.push_back(std::exchange(rank.kernel_uses, {}));
  }
  return all;
}

void Relay::GiveKernelUses(KernelUsesOfRanks kernel_uses, bool replays) {
  std::lock_guard lock(mutex_);
  kernel_uses.resize(executors_.size());
  for (size_t rank = 0; rank < executors_.size(); ++rank) {
    RankStream& to = executors_[rank];
    to.kernel_uses = std::move(kernel_uses[rank]);
    to.kernel_uses_bytes = 0;
    for (const auto& [key, entry] : to.kernel_uses) to.kernel_uses_bytes += entry.ByteSizeLong();
  }
  replays_ = replays;
}

// Of a session that cannot go on elsewhere nobody asks; a client ends one that has too many.
void Relay::NoteKernelUses(
    RankStream& rank, const google::protobuf::RepeatedPtrField<proto::KernelUse>& kernel_uses) {
  for (const proto::KernelUse& entry : kernel_uses) {
    if (!start_.recoverable || rank.kernel_uses_bytes > kKernelUsesBytesMax) return;
    if (rank.kernel_uses.try_emplace({entry.seq(), entry.kernel()}, entry).second)
      rank.kernel_uses_bytes += entry.ByteSizeLong();
  }
}

void Relay::ForgetKernelUses(uint64_t durable_seq) {
  for (RankStream& rank : executors_) {
    while (!rank.kernel_uses.empty() && rank.kernel_uses.begin()->first.first <= durable_seq) {
      rank.kernel_uses_bytes -= rank.kernel_uses.begin()->second.ByteSizeLong();
      rank.kernel_uses.erase(rank.kernel_uses.begin());
    }
  }
}

}  // namespace outboard::gateway
