#include "gateway/server/key_uses.h"

#include <utility>

#include "gateway/base/limits.h"

namespace outboard::gateway {

KeyUses::KeyUses(std::unique_ptr<Accounts> accounts)
    : accounts_(std::move(accounts)), thread_([this] { Write(); }) {}

KeyUses::~KeyUses() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void KeyUses::Note(const std::string& key_id, WallTime now) {
  std::lock_guard lock(mutex_);
  const auto last = written_.find(key_id);
  if (last != written_.end()) {
    const int64_t since_ms = now.unix_ms - last->second.unix_ms;
    if (since_ms >= 0 && since_ms < kKeyUseMs) return;  // below 0: the clock was set back
  }
  std::erase_if(written_,
                [&](const auto& entry) { return now.unix_ms - entry.second.unix_ms >= kKeyUseMs; });
  written_[key_id] = noted_[key_id] = now;
  wake_.notify_all();
}

void KeyUses::Write() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !noted_.empty(); });
    if (noted_.empty()) return;
    const std::map<std::string, WallTime> noted = std::exchange(noted_, {});
    lock.unlock();
    // A time that cannot be written is not missed: the next use writes a later one.
    for (const auto& [key_id, at] : noted) accounts_->NoteKeyUse(key_id, at).IgnoreError();
    lock.lock();
  }
}

}  // namespace outboard::gateway
