// The persistence of ExecutorCore: snapshots, checkpoints and the kernel versions that a replay
// uses (E8 in executor_core.cc).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "wire/retryable.h"
#include "wire/status_code.h"
#include "worker/executor/executor_core.h"

namespace outboard::worker {
namespace {

// A Done has room for a value's piece beside so many.
constexpr size_t kKernelUsesOfDone = 1000;
constexpr size_t kSavesWaitingMax = kSaveAnswersMax;

}  // namespace

// ---- what is stored -----------------------------------------------------------------------------

std::shared_ptr<const PersistRequest> ExecutorCore::TakeStore(int64_t now_ms) {
  if (!open_ || ended_ || restoration_ != nullptr || storing_) return nullptr;
  std::shared_ptr<PersistRequest> request;
  if (taken_snapshot_ != nullptr) {
    const bool is_late = options_.planted.snapshot_late && rank_ != 0;
    if (is_late && applied_seq_ == taken_snapshot_->seq) return nullptr;  // until one is behind it
    request = std::move(taken_snapshot_);
    if (is_late) {
      request->arrays.clear();
      request->snapshot.Clear();
      FillSnapshot(*request);
      request->snapshot.set_seq(request->seq);
    }
  } else if (!saves_.empty()) {
    request = std::move(saves_.front());
    saves_.pop_front();
  } else if (schedule_.Due(now_ms)) {
    request = std::make_shared<PersistRequest>();
    request->seq = applied_seq_;
    FillSnapshot(*request);
    schedule_.Begun(now_ms);
    if (options_.planted.ack_before_store) schedule_.Stored(/*stored=*/true, now_ms);
  } else {
    return nullptr;
  }
  request->id = next_store_++;
  request->epoch = epoch_;
  storing_ = Storing{request->id,         request->seq,  request->total_bytes(),
                     request->checkpoint, request->told, epoch_};
  state_.SetBeingStored(request, options_.let_go);
  return request;
}

void ExecutorCore::OnStored(const proto::Stored& stored, int64_t now_ms, const SendFrame& send) {
  if (!storing_ || storing_->id != stored.id()) return;
  const Storing done = *std::exchange(storing_, std::nullopt);
  if (ended_) return;
  out_.SetTarget(&send);
  if (done.checkpoint) {
    SaveAnswer answer{done.seq, {}};
    if (stored.code() == 0) {
      proto::Saved& saved = *answer.item.mutable_saved();
      saved.set_seq(done.seq);
      saved.set_total_bytes(done.total_bytes);
      saved.set_sent_bytes(stored.sent_bytes());
    } else {
      proto::Failed& failed = *answer.item.mutable_failed();
      failed.set_seq(done.seq);
      failed.set_cause_seq(done.seq);
      failed.set_code(stored.code());
      failed.set_message(stored.message());
      failed.set_retryable(wire::IsRetryable(wire::FailureOf::kCheckpoint,
                                             wire::CodeFromWire(stored.code())));
    }
    AnswerSave(std::move(answer));
  } else if (done.told > 0) {
    // The gateway knows of what is kept: it has all parts, or not.
    if (stored.code() != 0 && done.epoch == epoch_) MissToldSnapshot(done.told);
  } else {
    schedule_.Stored(stored.code() == 0, now_ms);
    if (stored.code() == 0) SendDone();
  }
  FinishAnswers();
}

void ExecutorCore::FillSnapshot(PersistRequest& request) {
  request.snapshot.set_seq(applied_seq_);
  AddStats(request.snapshot);
  state_.AddTo(request);
  unacknowledged_.AddTo(request);
}

// E8. What is being stored already is not waited for: the next item would change the arrays.
void ExecutorCore::TakeToldSnapshot() {
  if (ordered_snapshot_.number() == 0 || applied_seq_ < ordered_snapshot_.seq()) return;
  const proto::TakeSnapshot told = std::exchange(ordered_snapshot_, {});
  const bool has_passed = applied_seq_ > told.seq();
  if (has_passed || storing_ || taken_snapshot_ != nullptr || !saves_.empty())
    return MissToldSnapshot(told.number());
  taken_snapshot_ = std::make_shared<PersistRequest>();
  taken_snapshot_->seq = told.seq();
  taken_snapshot_->told = told.number();
  FillSnapshot(*taken_snapshot_);
  // One that nobody writes yet is given up.
  state_.SetBeingStored(taken_snapshot_, [this] {
    if (std::exchange(taken_snapshot_, nullptr) != nullptr) MissToldSnapshot(last_ordered_number_);
  });
}

void ExecutorCore::MissToldSnapshot(uint64_t number) {
  last_missed_number_ = std::max(last_missed_number_, number);
  missed_is_news_ = true;
}

std::optional<int64_t> ExecutorCore::wake_ms() const {
  if (!open_ || ended_ || restoration_ != nullptr || storing_) return std::nullopt;
  return schedule_.wake_ms();
}

// ---- Save ---------------------------------------------------------------------------------------

void ExecutorCore::ApplySave(uint64_t seq, const proto::Save& save) {
  auto request = std::make_shared<PersistRequest>();
  const SessionState::JoinGraphs whole = JoinGraphsOf(save.whole());
  if (rank_ != 0) {  // it has its part in what rank 0 stores
    if (!whole.empty()) state_.ApplySave(seq, save, *request, whole);
    return;
  }
  // Other ranks may wait for this one's part, even if nothing is stored.
  const bool is_full = saves_.size() >= kSavesWaitingMax;
  Outcome outcome;
  if (!is_full || !whole.empty()) outcome = state_.ApplySave(seq, save, *request, whole);
  if (is_full) {
    proto::Failed failed;
    failed.set_seq(seq);
    failed.set_cause_seq(seq);
    constexpr absl::StatusCode kFull = absl::StatusCode::kResourceExhausted;
    failed.set_code(static_cast<uint32_t>(kFull));
    failed.set_message(
        absl::StrCat(saves_.size(), " checkpoints are waiting to be stored, the limit"));
    failed.set_retryable(wire::IsRetryable(wire::FailureOf::kCheckpoint, kFull));
    outcome.answers = {Answer{nullptr, 0, 0, std::move(failed)}};
  }
  if (outcome.answers.empty()) {
    saves_.push_back(std::move(request));
    return;
  }
  SaveAnswer answer{seq, {}};
  *answer.item.mutable_failed() = std::move(outcome.answers[0].failed);
  AnswerSave(std::move(answer));
}

void ExecutorCore::AnswerSave(SaveAnswer answer) {
  out_.Write(answer.item);
  unacknowledged_.AddSave(std::move(answer));
}

// ---- kernel uses --------------------------------------------------------------------------------

// The client knows the kernel uses that it has sent; a replay chooses the same versions again.
void ExecutorCore::KnowKernelUses() {
  kernel_uses_told_ = 0;
  known_kernel_uses_.clear();
  for (const proto::KernelUse& entry : opened_by_.kernel_uses())
    known_kernel_uses_.emplace(entry.seq(), entry.kernel());
}

// The client's kernel uses: those that were reported to it after the last snapshot.
absl::Status ExecutorCore::FollowKernelUses() {
  std::vector<KernelUseRecord> entries;
  for (const proto::KernelUse& entry : opened_by_.kernel_uses()) {
    absl::StatusOr<KernelUseRecord> logged = KernelUseFromWire(entry);
    OB_RETURN_IF_ERROR(logged.status());
    if (logged->seq > applied_seq_) entries.push_back(*std::move(logged));
  }
  state_.Follow(entries);
  return absl::OkStatus();
}

void ExecutorCore::AddKernelUses(proto::Done& done) {
  const std::vector<KernelUseRecord>& log = kernel_use_log();
  if (!schedule_.takes_snapshots()) return;  // nobody would follow it
  for (; kernel_uses_told_ < log.size(); ++kernel_uses_told_) {
    const KernelUseRecord& entry = log[kernel_uses_told_];
    if (entry.seq <= schedule_.durable_seq()) continue;  // a snapshot has it
    proto::KernelUse told = ToWire(entry);
    if (known_kernel_uses_.contains({told.seq(), told.kernel()})) continue;
    if (static_cast<size_t>(done.kernel_uses_size()) == kKernelUsesOfDone) {
      proto::ServerItem full;
      full.mutable_done()->set_through_seq(done_seq_);
      full.mutable_done()->mutable_kernel_uses()->Swap(done.mutable_kernel_uses());
      out_.Write(std::move(full));
    }
    *done.add_kernel_uses() = std::move(told);
  }
}

}  // namespace outboard::worker
