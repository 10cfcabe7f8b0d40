#include "gateway/server/key_watch.h"

#include <chrono>
#include <vector>

#include "gateway/accounts/accounts.h"
#include "gateway/base/limits.h"
#include "gateway/data_path/host.h"

namespace outboard::gateway {

KeyWatch::KeyWatch(ClientAuth* auth) : auth_(auth), thread_([this] { Work(); }) {}

KeyWatch::~KeyWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::unique_ptr<KeyWatch::Watched> KeyWatch::Watch(const std::string& key_id, Deny deny) {
  if (key_id.empty()) return nullptr;
  std::unique_ptr<Watched> watched(new Watched(this, key_id, std::move(deny)));
  std::lock_guard lock(mutex_);
  all_.insert(watched.get());
  return watched;
}

KeyWatch::Watched::~Watched() {
  std::lock_guard lock(watch_->mutex_);
  watch_->all_.erase(this);
}

void KeyWatch::Work() {
  std::unique_lock lock(mutex_);
  while (
      !wake_.wait_for(lock, std::chrono::milliseconds(kKeyCheckMs), [this] { return stopping_; })) {
    std::set<std::string> keys;
    for (const Watched* watched : all_) keys.insert(watched->key_id_);
    lock.unlock();
    for (const std::string& key_id : keys) {  // reads the disk
      const absl::Status status = auth_->Check(key_id);
      if (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status))
        DenyAll(key_id, status);
    }
    lock.lock();
  }
}

void KeyWatch::DenyAll(const std::string& key_id, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  std::vector<Watched*> denied;
  for (Watched* watched : all_)
    if (watched->key_id_ == key_id) denied.push_back(watched);
  for (Watched* watched : denied) {
    if (!all_.contains(watched)) continue;
    const Deny deny = watched->deny_;  // outlives the Watched
    deny(why);
  }
}

}  // namespace outboard::gateway
