// Writes when each API key was last used, at most once in kKeyUseMs for a key, from a thread of its
// own: no call waits for the disk.
//
// Threads: any.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gateway/accounts/accounts.h"

namespace outboard::gateway {

class KeyUses {
 public:
  // `accounts`: a connection of its own to the file, so that nobody waits for its writes.
  explicit KeyUses(std::unique_ptr<Accounts> accounts);
  ~KeyUses();  // what is noted is written
  KeyUses(const KeyUses&) = delete;
  KeyUses& operator=(const KeyUses&) = delete;

  // Only of keys that exist: each takes memory for kKeyUseMs.
  void Note(const std::string& key_id, WallTime now);

 private:
  void Write();

  const std::unique_ptr<Accounts> accounts_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, WallTime> noted_;    // to be written
  std::map<std::string, WallTime> written_;  // within the last kKeyUseMs
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outboard::gateway
