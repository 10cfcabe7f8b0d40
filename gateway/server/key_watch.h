// Looks at the keys of open calls every kKeyCheckMs, and ends the calls whose key stands no more:
// revoked, expired, or its account suspended.
//
// Threads: any. `deny` is called from the watch's thread, never after its Watched is destroyed; it
// may destroy it.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"

namespace outboard::gateway {

class ClientAuth;

class KeyWatch {
 public:
  explicit KeyWatch(ClientAuth* auth);
  ~KeyWatch();  // requires that all Watched are destroyed
  KeyWatch(const KeyWatch&) = delete;
  KeyWatch& operator=(const KeyWatch&) = delete;

  // Why the call is to end. Called again every kKeyCheckMs while the call is still there.
  using Deny = std::function<void(const absl::Status& why)>;

  class Watched {
   public:
    ~Watched();

   private:
    friend class KeyWatch;
    Watched(KeyWatch* watch, std::string key_id, Deny deny)
        : watch_(watch), key_id_(std::move(key_id)), deny_(std::move(deny)) {}
    KeyWatch* const watch_;
    const std::string key_id_;
    const Deny deny_;
  };
  // Null for a caller without a key.
  std::unique_ptr<Watched> Watch(const std::string& key_id, Deny deny);

 private:
  void Work();
  void DenyAll(const std::string& key_id, const absl::Status& why);

  ClientAuth* const auth_;
  std::recursive_mutex mutex_;  // recursive: `deny` may destroy the Watched
  std::set<Watched*> all_;
  bool stopping_ = false;
  std::condition_variable_any wake_;
  std::thread thread_;
};

}  // namespace outboard::gateway
