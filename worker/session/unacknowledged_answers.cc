#include "worker/session/unacknowledged_answers.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::worker {

absl::Status UnacknowledgedAnswers::Add(uint64_t seq, Answer answer) {
  if (answer.array == nullptr) failed_bytes_ += answer.failed.ByteSizeLong();
  if (answers_.size() >= kUnacknowledgedMax || failed_bytes_ > kUnacknowledgedFailureBytesMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("too much waits for the client's acknowledgement; the limit is ",
                     kUnacknowledgedMax, " values, or ", kUnacknowledgedFailureBytesMax,
                     " bytes of failures"));
  answers_.emplace(seq, std::move(answer));
  return absl::OkStatus();
}

void UnacknowledgedAnswers::AddSave(SaveAnswer answer) {
  saves_.push_back(std::move(answer));
  if (saves_.size() > kSaveAnswersMax) saves_.pop_front();
}

void UnacknowledgedAnswers::AddTo(PersistRequest& request) const {
  for (const auto& [seq, answer] : answers_) {
    proto::SessionSnapshot::Unacknowledged& out = *request.snapshot.add_unacknowledged();
    out.set_seq(seq);
    out.set_index(answer.index);
    out.set_handle(answer.handle);
    if (answer.array == nullptr) {
      *out.mutable_failed() = answer.failed;
      continue;
    }
    Describe(*answer.array, &out);
    request.arrays.push_back(answer.array);
  }
  for (const SaveAnswer& answer : saves_) {
    proto::SessionSnapshot::Unacknowledged& out = *request.snapshot.add_unacknowledged();
    out.set_seq(answer.seq);
    *out.mutable_saved() = answer.item.saved();
    if (answer.item.has_failed()) *out.mutable_failed() = answer.item.failed();
  }
}

void UnacknowledgedAnswers::Acknowledge(uint64_t through_seq) {
  const auto end = answers_.upper_bound(through_seq);
  for (auto it = answers_.begin(); it != end; ++it)
    if (it->second.array == nullptr) failed_bytes_ -= it->second.failed.ByteSizeLong();
  answers_.erase(answers_.begin(), end);
}

}  // namespace outboard::worker
