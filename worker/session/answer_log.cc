#include "worker/session/answer_log.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::worker {

absl::Status AnswerLog::Add(uint64_t seq, Answer kept) {
  if (kept.array == nullptr) failed_bytes_ += kept.failed.ByteSizeLong();
  if (kept_.size() >= kKeptItemsMax || failed_bytes_ > kKeptFailedBytesMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("too much waits for the client's acknowledgement; the limit is ",
                     kKeptItemsMax, " values, or ", kKeptFailedBytesMax, " bytes of failures"));
  kept_.emplace(seq, std::move(kept));
  return absl::OkStatus();
}

void AnswerLog::AddSave(SaveAnswer answer) {
  saves_.push_back(std::move(answer));
  if (saves_.size() > kSaveAnswersMax) saves_.pop_front();
}

void AnswerLog::AddTo(PersistRequest& request) const {
  for (const auto& [seq, kept] : kept_) {
    proto::SessionSnapshot::Unacknowledged& out = *request.snapshot.add_unacknowledged();
    out.set_seq(seq);
    out.set_index(kept.index);
    out.set_handle(kept.handle);
    if (kept.array == nullptr) {
      *out.mutable_failed() = kept.failed;
      continue;
    }
    Describe(*kept.array, &out);
    request.arrays.push_back(kept.array);
  }
  for (const SaveAnswer& answer : saves_) {
    proto::SessionSnapshot::Unacknowledged& out = *request.snapshot.add_unacknowledged();
    out.set_seq(answer.seq);
    *out.mutable_saved() = answer.item.saved();
    if (answer.item.has_failed()) *out.mutable_failed() = answer.item.failed();
  }
}

void AnswerLog::Acknowledge(uint64_t through_seq) {
  const auto end = kept_.upper_bound(through_seq);
  for (auto it = kept_.begin(); it != end; ++it)
    if (it->second.array == nullptr) failed_bytes_ -= it->second.failed.ByteSizeLong();
  kept_.erase(kept_.begin(), end);
}

}  // namespace outboard::worker
