#include "runtime/collective/rendezvous.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::collective {

absl::Status MemoryRendezvous::Set(const std::string& key, std::string value) {
  if (value.size() > kRendezvousBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("a value of ", value.size(),
                                                   " bytes for a rendezvous; the limit is ",
                                                   kRendezvousBytesMax));
  const std::lock_guard lock(mutex_);
  values_.emplace(key, std::move(value));
  set_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryRendezvous::Get(const std::string& key,
                                                  std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!set_.wait_for(lock, patience, [&] { return values_.contains(key); }))
    return absl::DeadlineExceededError(
        absl::StrCat("no rank has set ", key, " within ", patience.count(), " ms"));
  return values_.at(key);
}

}  // namespace outboard::collective
