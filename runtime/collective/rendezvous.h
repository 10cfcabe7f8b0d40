// Where ranks leave their addresses for each other while a group comes together.
//
// A key is set once and never changes; keys carry the epoch of the group ("3/..."), so what a rank
// of an earlier life left there is not found. In a fleet the gateway carries these few bytes, with
// the messages that it exchanges with workers anyway; nothing else knows the addresses.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::collective {

// Of one value: the addresses of a rank's connections to all others, 128 bytes each at most.
inline constexpr size_t kRendezvousBytesMax = size_t{256} << 10;

// Threads: any.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // The first value of a key stays; a later one is dropped.
  // Errors: INVALID_ARGUMENT  longer than kRendezvousBytesMax; those of whatever carries it
  virtual absl::Status Set(const std::string& key, std::string value) = 0;
  // Waits for the value of `key`.
  // Errors: DEADLINE_EXCEEDED  nobody set it within `patience`; those of whatever carries it
  virtual absl::StatusOr<std::string> Get(const std::string& key,
                                          std::chrono::milliseconds patience) = 0;
};

// For ranks that share a process, or a supervisor.
class MemoryRendezvous final : public Rendezvous {
 public:
  absl::Status Set(const std::string& key, std::string value) override;
  absl::StatusOr<std::string> Get(const std::string& key,
                                  std::chrono::milliseconds patience) override;

 private:
  std::mutex mutex_;
  std::condition_variable set_;
  std::map<std::string, std::string> values_;
};

}  // namespace outboard::collective
