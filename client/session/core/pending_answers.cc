#include "client/session/core/pending_answers.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"

namespace outboard::session {

// ---- values -------------------------------------------------------------------------------------

void PendingAnswers::Expect(uint64_t seq, uint32_t index) {
  slots_.try_emplace({seq, index});
  incomplete_.insert({seq, index});
}

bool PendingAnswers::OnValue(proto::Value& piece) {
  const Key key{piece.seq(), piece.index()};
  const auto it = slots_.find(key);
  if (it == slots_.end() || it->second.complete) return false;
  Slot& slot = it->second;
  std::string& bytes = slot.value.bytes;
  if (bytes.empty()) {
    if (piece.dtype() >= kDTypeCount) {
      Fail(key.first,
           absl::InternalError(absl::StrCat("a value of the unknown dtype ", piece.dtype())));
      return true;
    }
    slot.value.dtype = static_cast<DType>(piece.dtype());
    slot.value.dims.assign(piece.dims().begin(), piece.dims().end());
    slot.total_bytes = piece.total_bytes();  // no reserve: it is only a claim
  }
  const uint64_t length = piece.data().size();
  if (length > slot.total_bytes || piece.offset() > slot.total_bytes - length) {
    Fail(key.first, absl::InternalError(absl::StrCat("a piece of a value of ", slot.total_bytes,
                                                     " bytes goes beyond its end")));
    return true;
  }
  if (piece.offset() > bytes.size()) {
    slot.ahead[piece.offset()] = std::move(*piece.mutable_data());
    return false;
  }
  if (piece.offset() < bytes.size()) return false;  // is there
  bytes.empty() ? bytes.swap(*piece.mutable_data()) : void(bytes += piece.data());
  while (!slot.ahead.empty() && slot.ahead.begin()->first <= bytes.size()) {
    if (slot.ahead.begin()->first == bytes.size()) bytes += slot.ahead.begin()->second;
    slot.ahead.erase(slot.ahead.begin());
  }
  if (bytes.size() < slot.total_bytes) return false;
  slot.ahead.clear();
  slot.complete = true;
  incomplete_.erase(key);
  if (slot.forgotten) slots_.erase(it);
  return true;
}

void PendingAnswers::Restart() {
  for (const Key& key : incomplete_) {
    Slot& slot = slots_[key];
    slot.value.bytes.clear();
    slot.ahead.clear();
  }
}

bool PendingAnswers::Ready(uint64_t seq, uint32_t index) const {
  const auto it = slots_.find({seq, index});
  return it == slots_.end() || it->second.forgotten || it->second.complete;
}

absl::StatusOr<HostTensor> PendingAnswers::Take(uint64_t seq, uint32_t index) {
  const auto it = slots_.find({seq, index});
  if (it == slots_.end() || it->second.forgotten)
    return absl::FailedPreconditionError(absl::StrCat("value ", index, " of item ", seq,
                                                      " was not asked for, or was taken already"));
  Slot slot = std::move(it->second);
  slots_.erase(it);
  if (!slot.status.ok()) return slot.status;
  return std::move(slot.value);
}

void PendingAnswers::Forget(uint64_t seq, uint32_t index) {
  const auto it = slots_.find({seq, index});
  if (it == slots_.end()) return;
  if (it->second.complete) {
    slots_.erase(it);
  } else {
    it->second.forgotten = true;
  }
}

uint64_t PendingAnswers::first_incomplete_seq() const {
  return incomplete_.empty() ? std::numeric_limits<uint64_t>::max() : incomplete_.begin()->first;
}

// ---- saves --------------------------------------------------------------------------------------

void PendingAnswers::ExpectSaved(uint64_t seq) { saves_.emplace(seq, std::nullopt); }

void PendingAnswers::OnSaved(const proto::Saved& saved) {
  const auto it = saves_.find(saved.seq());
  if (it != saves_.end() && !it->second)
    it->second = Saved{saved.total_bytes(), saved.sent_bytes()};
}

bool PendingAnswers::saves_any() const {
  return std::any_of(saves_.begin(), saves_.end(),
                     [](const auto& save) { return !save.second.has_value(); });
}

bool PendingAnswers::SavedReady(uint64_t seq) const {
  const auto it = saves_.find(seq);
  return it == saves_.end() || it->second.has_value();
}

absl::StatusOr<Saved> PendingAnswers::TakeSaved(uint64_t seq) {
  const auto it = saves_.find(seq);
  if (it == saves_.end())
    return absl::FailedPreconditionError(
        absl::StrCat("item ", seq, " is no Save, or was awaited already"));
  absl::StatusOr<Saved> saved = *std::move(it->second);
  saves_.erase(it);
  return saved;
}

// ---- both ---------------------------------------------------------------------------------------

void PendingAnswers::Fail(uint64_t seq, const absl::Status& status) {
  if (const auto save = saves_.find(seq); save != saves_.end() && !save->second)
    save->second = status;
  auto it = slots_.lower_bound({seq, 0});
  while (it != slots_.end() && it->first.first == seq) {
    Slot& slot = it->second;
    if (!slot.complete) {
      slot.complete = true;
      slot.status = status;
      incomplete_.erase(it->first);
    }
    it = slot.forgotten ? slots_.erase(it) : std::next(it);
  }
}

void PendingAnswers::FailAll(const absl::Status& status) {
  for (const Key& key : incomplete_) {
    Slot& slot = slots_[key];
    slot.complete = true;
    slot.status = status;
  }
  incomplete_.clear();
  for (auto& [seq, saved] : saves_)
    if (!saved) saved = status;
}

}  // namespace outboard::session
